"""Guess Who: rules, partners, values of questions and demonstrations, on a board that can be thought through.

     glasses  hat  beard  long hair
Mara    x      x
Kira    x                     x
Yuri                 x
Rosa                          x
"""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from examples.guess_who import GuessWhoEnv
from examples.guess_who.game import CHARACTERS, Suspects
from examples.guess_who.players import Demonstrator
from slim_rl.config import Config, load_config, parse_config
from slim_rl.dialogue.games_file import ensure_games, load_rows
from slim_rl.dialogue.log import annotate
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.record import Dialogue, StopReason
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.errors import ConfigError, DataError
from slim_rl.lab import incentives
from slim_rl.measured import measured
from tests.dialogue.players import Says
from tests.examples.sessions import played_by_hand, said

GAME = "examples.guess_who.GuessWhoEnv"
TRAITS = {"Mara": ["glasses", "hat"], "Kira": ["glasses", "long hair"], "Yuri": ["beard"], "Rosa": ["long hair"]}
STATE: dict[str, Any] = {"characters": TRAITS, "secret": "Kira", "max_questions": 3}


def play(tokenizer: Any, *turns: str, partner: Any = "shy", seat: int = 0) -> Dialogue:
    kind, made = (partner, None) if isinstance(partner, str) else ("shy", partner)
    config = parse_config({"environment": GAME, "partner": {"kind": kind}})
    return said(config, tokenizer, turns, STATE, seat, made)


def local(folder: Path, *overrides: str) -> Config:
    places = [f"data.train={folder}/t.jsonl", f"data.eval={folder}/e.jsonl", "data.num_train=60", "data.num_eval=30"]
    return load_config("guess_who_local", [*places, f"output_dir={folder}", *overrides])


def test_asker_asks_is_answered_and_guesses(tokenizer: Any) -> None:
    dialogue = play(tokenizer, "[ask] Glasses?", " [ASK] mara", "[guess]")
    assert [turn.text for turn in dialogue.turns if turn.seat == 1] == ["[answer] yes", "[answer] no"]
    assert (dialogue.reward, dialogue.stop_reason) == (1.0, StopReason.FINISHED)
    assert dialogue.turns[-1].action == {"kind": "guess", "about": "Kira"}
    assert play(tokenizer, "[guess] Mara").reward == 0.0
    assert play(tokenizer, "[ask] glasses", "[guess]", partner="mute").reward == 0.0


@pytest.mark.parametrize(
    "text",
    ["hat", "[ask] hat or glasses", "[ask] Alba", "[ask]", "[guess] hat", "[answer] yes", "[guess] Kira or Mara", ""],
)
def test_action_of_another_form_is_refused(text: str) -> None:
    env = GuessWhoEnv(max_errors=2)
    env.reset(STATE)
    observation, done, info = env.step(text)
    assert "Use [ask]" in observation and info["error"] and env.turn == 0 and not done
    assert env.step(text)[1:] == (True, info | {"end": "errors"})


def test_answers_are_yes_no_or_pass_and_change_who_is_left() -> None:
    env = GuessWhoEnv()
    env.reset(STATE)
    env.step("[ask] long hair")
    assert "[answer] yes" in env.step("[answer] maybe")[0] and env.turn == 1
    assert env.step("[answer] Yes.")[0].endswith("Left: Kira, Rosa.")
    env.step("[ask] hat")
    assert env.step("[answer] yes")[0].endswith("Left: Kira, Rosa."), "an answer that leaves nobody is not believed"
    assert env.get_private_view(0).secret is None and "hidden character is Kira" in env.get_state_description(1)


def test_one_question_too_many_ends_the_game(tokenizer: Any) -> None:
    dialogue = play(tokenizer, *["[ask] hat"] * 4)
    assert (dialogue.reward, dialogue.stop_reason) == (0.0, StopReason.MAX_TURNS)


def test_questions_have_kinds_values_and_ranks(tokenizer: Any) -> None:
    dialogue = play(tokenizer, "[ask] glasses", "[ask] glasses", "[ask] Mara", "[guess]")
    first, again, name, guess = (turn for turn in dialogue.turns if turn.role == "policy")
    assert (first.questions, again.questions, name.questions) == (["trait"], ["repeat"], ["character"])
    assert first.state_value == first.question_value == first.gain == 0.25
    assert first.question_rank == pytest.approx(13 / 14)
    assert (again.learnable, again.redundant, again.regret, again.informative) == ([], [("glasses",)], 0.5, [])
    assert (name.question_value, name.regret, guess.best_known) == (0.5, 0.0, 1.0)
    assert dialogue.columns == {"board": 4, "left": 1, "bits": 2.0}
    found = measures(dialogue)
    assert (found["questions"], found["questions/repeat"], found["informative_pairs"], found["repeats"]) == (3, 1, 2, 1)
    assert Dialogue.from_dict(dialogue.to_dict()) == dialogue


def test_false_answer_costs_the_truth(tokenizer: Any) -> None:
    dialogue = play(tokenizer, "[ask] glasses", "[guess]", partner=Says("[answer] no"))
    asks, *_, guesses = dialogue.turns
    assert (asks.question_value, asks.gain, guesses.best_known) == (0.25, -0.25, 0.0)


def test_frontier_doubles_the_chance_with_each_best_question() -> None:
    curves = measured(GuessWhoEnv).frontier([(STATE, 0), (STATE, 1)], 3)
    assert curves["greedy"].rewards.tolist() == [[0.25, 0.5, 1.0, 1.0], [1.0] * 4]
    assert curves["greedy"].expected_gain.tolist()[0] == [0.25, 0.5, -math.inf, -math.inf]
    assert measured(GuessWhoEnv).frontier([], 3) == measured(GuessWhoEnv).references([]) == {}


def test_questions_worth_asking_tell_something_each() -> None:
    for seed in range(9):
        game = Suspects.of(STATE)
        for question in measured(GuessWhoEnv).questions_worth_asking(STATE, 0, 9, seed):
            about = question.removeprefix("[ask] ")
            assert game.bits(about) > 0 and measured(GuessWhoEnv).asks(question)
            game.update(about, game.fits(about, "Kira"))
        assert game.left == ["Kira"]


def test_two_characters_differ_in_three_traits() -> None:
    sets = [set(traits) for traits in CHARACTERS.values()]
    assert all(len(one ^ other) >= 3 for n, one in enumerate(sets) for other in sets[:n])


def test_asking_raises_the_reward_from_the_first_question(tmp_path: Path) -> None:
    found = incentives.measure(local(tmp_path), 200, (1, 3, 6))
    assert found.rewards_asking and found.first_gain is not None and found.first_gain.low > 0, found.sentence
    assert found.lines[0].reward.value == 0.125 and found.curve[-1].reward.value > 0.9


def test_demonstrator_asks_as_often_as_drawn(tmp_path: Path) -> None:
    config = local(tmp_path)
    worker = RolloutWorker(config, None, Demonstrator((0.0, 0.0, 1.0)))
    specs = [worker.spec(row, "t") for row in load_rows(config, "eval")]
    for (game,) in asyncio.run(worker.play_all(specs)):
        annotate(game)
        assert len(game.turns) == 5 and game.turns[0].pairs != game.turns[2].pairs and game.reward is not None


def test_person_plays_by_hand(tmp_path: Path) -> None:
    config = local(tmp_path)
    secret = load_rows(config, "eval")[0].game_state["secret"]
    reward, screen = played_by_hand(config, ["hat", f"[guess] {secret}"])
    assert reward == 1.0 and "partner> [answer]" in screen and "Left: " in screen


def test_arms_that_differ_in_rules_play_the_same_games(tmp_path: Path) -> None:
    ensure_games(local(tmp_path))
    assert load_rows(local(tmp_path, "game.rules=full", "game.max_errors=5"), "eval")
    with pytest.raises(DataError, match="size"):
        load_rows(local(tmp_path, "game.size=6"), "eval")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("warmstart.lessons={told: 3}", "warmstart.lessons has told, .* Choose from asked"),
        ("warmstart.partners={forthcoming: 1}", "forthcoming 'forthcoming' is not a partner .* choose shy, mute"),
        ("warmstart.player={thinks: turn}", "warmstart.player is {'thinks': 'turn'}, but .* leave it out"),
        ("environment=examples.secret_number.SecretNumber", "has no demonstrations. Give its instrument a curriculum"),
    ],
)
def test_a_warm_start_that_the_game_does_not_have_is_refused(tmp_path: Path, override: str, message: str) -> None:
    pytest.importorskip("torch")
    from slim_rl.lab.warmstart.train import warmstart

    extra = ["game={}", "partner={}", "arms={}"] if override.startswith("environment") else []
    with pytest.raises(ConfigError, match=message):
        warmstart(local(tmp_path, override, *extra), tmp_path / "model")
