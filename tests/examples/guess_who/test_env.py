"""Guess Who as it is played: by a policy, by hand, with each partner."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples.guess_who import GuessWhoEnv
from examples.guess_who.board import GameBoard
from examples.guess_who.partners import NO, VAGUE, YES
from examples.guess_who.settings import GuessWhoSettings
from slim_rl.commands.play import play as play_by_hand
from slim_rl.config import load_config
from slim_rl.dialogue.games_file import load_rows
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.errors import ConfigError, DataError
from slim_rl.measured import measured
from tests.examples.guess_who.made import STATE, config, play

LOCAL = "guess_who_local"


def said(dialogue: Dialogue) -> list[str]:
    return [turn.text.removeprefix("[message] ") for turn in dialogue.turns if turn.role == "partner"]


def test_an_asker_is_answered_and_guesses(tokenizer: Any) -> None:
    dialogue = play(tokenizer, ["Does it wear glasses?", "[message] Any hat?", "Well, who is it?", "[guess] kira"])
    yes, no, vague = said(dialogue)
    assert yes in YES and no in NO and vague in VAGUE
    assert (dialogue.stop_reason, dialogue.reward) == (StopReason.FINISHED, 1.0)
    assert dialogue.turns[-1].action == {"kind": "guess", "name": "Kira"}
    assert play(tokenizer, ["[guess] Yuri"]).reward == 0.0


@pytest.mark.parametrize("turn", ["**[guess]** Kira", "> [Guess] **Kira**", "[guess] _Kira_"])
def test_a_guess_may_stand_in_markdown(turn: str) -> None:
    env = GuessWhoEnv()
    env.reset(STATE)
    _, done, info = env.step(turn)
    assert done and info["action"] == {"kind": "guess", "name": "Kira"}


def test_who_says_nothing_is_told_so() -> None:
    env = GuessWhoEnv()
    env.reset(STATE)
    assert env.step("[message]")[2]["error"] == "The message is empty: write something after [message]."


def test_partner_wording_varies_by_dialogue_and_seed(tokenizer: Any) -> None:
    env = GuessWhoEnv()
    heard = set()
    from examples.guess_who.partners import ShyPartner
    from slim_rl.environment import Utterance, View

    env.reset(STATE)
    for seed in range(40):
        view = View(1, "", "", (Utterance(0, "Glasses?"),), env.get_private_view(1), seed)
        coroutine = ShyPartner().act(view)
        with pytest.raises(StopIteration) as done:
            coroutine.send(None)
        heard.add(done.value.value.text)
    assert heard == {f"[message] {text}" for text in YES}
    assert said(play(tokenizer, ["Hat?", "[guess] Kira"])) == said(play(tokenizer, ["Hat?", "[guess] Kira"]))


def test_a_mute_partner_answers_nothing(tokenizer: Any) -> None:
    dialogue = play(tokenizer, ["Glasses?", "Is it Kira?", "[guess] Kira"], partner="mute")
    assert not {*said(dialogue)} & {*YES, *NO, *VAGUE}


@pytest.mark.parametrize(
    "turn",
    ["", "[guess]", "[guess] Mara or Kira", "[guess] Olga", "[shout] Mara", "So: [guess] Mara", "[guess] Nobody"],
)
def test_a_refused_action_stays_with_its_author(turn: str) -> None:
    env = GuessWhoEnv(max_errors=2, tiles=False)
    env.reset(STATE)
    observation, done, info = env.step(turn)
    assert observation == f"Error: {info['error']}" and not done and env.turn == 0 and info["action"] is None
    _, done, info = env.step(turn)
    assert done and info["end"] == "errors" and env.get_normalized_reward() == 0.0


def test_one_message_too_many_ends_the_game(tokenizer: Any) -> None:
    dialogue = play(tokenizer, ["Hat?"] * 4)
    assert (dialogue.stop_reason, dialogue.reward, len(dialogue.turns)) == (StopReason.MAX_TURNS, 0.0, 7)


def test_who_answers_cannot_guess() -> None:
    env = GuessWhoEnv()
    env.reset(STATE)
    env.step("Hat?")
    assert env.step("[guess] Kira")[2]["error"] and env.turn == 1


def test_tiles_say_who_is_left_and_nothing_else() -> None:
    with_tiles, without = GuessWhoEnv(), GuessWhoEnv(tiles=False)
    for env, reads in ((with_tiles, "Yes.\nLeft: Mara, Kira."), (without, "Yes.")):
        env.reset(STATE)
        assert env.step("Glasses?")[0] == "Glasses?"
        assert env.step("[message] Yes.")[0] == reads
    with_tiles.step("What else?")
    assert with_tiles.step("Hard to say.")[0] == "Hard to say.\nLeft: Mara, Kira."


def test_tiles_guess_without_name_takes_first_remaining() -> None:
    env = GuessWhoEnv()
    env.reset({**STATE, "secret": "Yuri"})
    env.step("Glasses?")
    env.step("No.")
    assert env.step("[guess]")[2]["action"] == {"kind": "guess", "name": "Yuri"} and env.get_normalized_reward() == 1.0
    without = GuessWhoEnv(tiles=False)
    without.reset(STATE)
    assert without.step("[guess]")[2]["error"] and "alone" in str(env.prompt()) and "alone" not in str(without.prompt())


def test_the_hidden_character_is_told_to_who_answers_alone() -> None:
    env = GuessWhoEnv()
    env.reset(STATE)
    assert "hidden character is Kira" in env.get_state_description(1) and "Kira" not in env.get_prompt_prefix(1)
    assert "is Kira" not in str(env.prompt(0)) and env.get_private_view(0).secret is None
    assert "shy" in env.get_prompt_prefix(1) and "shy" not in env.get_prompt_prefix(0)
    assert env.board(0) is not None and not env.board(0).marked and env.board(None).marked == {(1, 0)}


def test_games_are_dealt_by_number_and_split() -> None:
    settings = GuessWhoSettings(size=6, max_questions=5)
    dealt = dict(GuessWhoEnv.deal(settings, 3, "train", range(20)))
    assert len(dealt) == 20 and dealt == dict(GuessWhoEnv.deal(settings, 3, "train", range(20)))
    assert not dealt.keys() & dict(GuessWhoEnv.deal(settings, 3, "eval", range(20))).keys()
    for state in dealt.values():
        game = GameBoard.from_dict(state)
        assert len(game.names) == 6 and game.max_questions == 5 and game.to_dict() == state


@pytest.mark.parametrize(
    "state", [{}, 3, {**STATE, "secret": "Olga"}, {"characters": [], "secret": "", "max_questions": 1}]
)
def test_another_games_state_is_refused(state: Any) -> None:
    with pytest.raises(DataError, match=r"Guess Who|hidden character"):
        GuessWhoEnv().reset(state)
    assert measured(GuessWhoEnv).viewer_board(state, 0) is None


@pytest.mark.parametrize(
    ("partner", "game", "message"),
    [
        ("shy", {"size": 25}, "game.size"),
        ("shy", {"n": 3}, "game"),
        ("forthcoming", {}, "not a partner of GuessWhoEnv: choose shy, mute, openai, self"),
    ],
)
def test_config_with_missing_game_methods_is_refused(partner: str, game: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(partner, game=game)


def test_a_person_plays_by_hand(tmp_path: Path) -> None:
    places = [f"data.train={tmp_path}/t.jsonl", f"data.eval={tmp_path}/e.jsonl", "data.num_train=16", "data.num_eval=2"]
    own = load_config(LOCAL, places)
    secret = load_rows(own, "eval")[0].game_state["secret"]
    screen, typed = io.StringIO(), iter(["Does it wear glasses?", f"[guess] {secret}"])
    reward = play_by_hand(own, console=Console(file=screen, width=100), ask=lambda _: next(typed))
    assert reward == 1.0 and "Left: " in screen.getvalue() and "the hidden one marked" in screen.getvalue()
