"""A user's game, once right and once wrong in each way: its replies are in the record, and each fault is one sentence."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from slim_rl import cli
from slim_rl.analysis.dialogues import collect
from slim_rl.analysis.load import load
from slim_rl.backends.ready import check_games
from slim_rl.config import Config, parse_config
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import BaseEnvironment, View, make_environment
from slim_rl.errors import ConfigError
from slim_rl.measured import Instrument, measured
from tests import made
from tests.dialogue.players import Countdown, Says


class Oracle(BaseEnvironment):
    """Answers its only player: the number of turns so far, and a farewell."""

    reward = 1.0

    @classmethod
    def sample_state(cls, seed: int) -> dict[str, Any]:
        return {"seed": seed}

    def reset(self, game_state: Any) -> Any:
        self.turns = 0

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        if text == "what":
            return "Pardon?", False, {"action": None, "error": "Pardon?"}
        self.turns += 1
        done = self.turns == 3
        said = "Farewell, it was 3." if done else f"That was turn {self.turns}."
        return said, done, {"action": {"kind": "word"}, "error": None, **({"end": "finished"} if done else {})}

    def get_normalized_reward(self) -> float:
        return self.reward

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return "Speak."

    def get_state_description(self, seat: int = 0) -> str:
        return "Begin."


async def _async(self: Any, text: str) -> Any:
    return "", True, {}


GAMES: dict[str, dict[str, Any]] = {  # games that differ from Oracle's
    "Rich": {"reward": 10.0},
    "Nothing": {"reward": float("nan")},
    "Declared": {"reward": 10.0, "reward_range": (0.0, 10.0)},
    "Rounded": {"reward": 1.0 + 2e-16},
    "NoRules": {"get_prompt_prefix": BaseEnvironment.get_prompt_prefix},
    "NoReward": {"get_normalized_reward": BaseEnvironment.get_normalized_reward},
    "WrongStep": {"step": lambda self: ("", True, {})},
    "Async": {"step": _async},
    "ShortStep": {"step": lambda self, text: ("Done.", True)},
    "FourValues": {"step": lambda self, text: ("Done.", 0.5, True, {})},
    "WordAction": {"step": lambda self, text: ("Done.", False, {"action": "dig"})},
    "NoError": {"step": lambda self, text: (*Oracle.step(self, text)[:2], {"error": ""})},
    "LostText": {"reset": lambda self, state: ("The secret word is apple.", {})},
    "SameText": {"reset": lambda self, state: (self.get_state_description(), {}), "turns": 0},
}
globals().update({name: type(name, (Oracle,), members) for name, members in GAMES.items()})


class Words(Says):
    async def act(self, view: Any) -> Any:
        self.words = [*getattr(self, "words", ["go", "what", "go", "go"])]
        word, self.words = self.words[0], self.words[1:]
        return type(await super().act(view))(word)


def config_of(game: str, **keys: Any) -> Config:
    return parse_config({"environment": f"{__name__}.{game}", **keys})


def played(game: str, partner: str = "shy") -> Dialogue:
    worker = RolloutWorker(config_of(game, partner={"kind": partner}), None, Words("go"))
    row = GameRow.of(make_environment(worker.config), "g", {"seed": 1})
    (dialogue,) = asyncio.run(worker.play(worker.spec(row, "test")))
    return dialogue


REPLIES = ["That was turn 1.", None, "That was turn 2.", "Farewell, it was 3."]


def test_game_without_an_instrument_is_logged_read_and_shown(tmp_path: Path, capsys: Any) -> None:
    dialogue = played("Oracle")
    assert dialogue.stop_reason is StopReason.FINISHED, dialogue.failure
    assert [turn.observation for turn in dialogue.turns] == REPLIES
    with DialogueLog(tmp_path / "log.jsonl") as log:
        log.append(dialogue)
    (again,), priced = read_log(tmp_path), {"reward": "price", "reward_args": {"price": 0.5}}
    assert type(measured(Oracle)) is type(measured(None)) is Instrument and measures(again)["questions"] == 0
    assert make_training_reward(config_of("Oracle", train=priced)).reward(again) == 1.0
    (line,) = (json.loads(each) for each in (tmp_path / "log.jsonl").read_text().splitlines())
    assert [turn["observation"] for turn in line["turns"]] == REPLIES
    (view,) = collect(load([tmp_path]), 1)[0].dialogues
    assert [turn.observation for turn in view.dialogue.turns] == REPLIES
    with pytest.raises(SystemExit):
        cli.main(["show", str(tmp_path)])
    shown = capsys.readouterr().out
    assert all(f"game> {reply}" in shown for reply in REPLIES if reply) and shown.count("Pardon?") == 1


class Go(Partner):
    identity: ClassVar[dict[str, Any]] = {"kind": "go"}

    async def act(self, view: View) -> Turn:
        return Turn("go")


class Text(Go):
    async def act(self, view: Any) -> Any:
        return "go"


class Sync(Go):
    act = lambda self, view: "go"  # noqa: E731


def test_two_seat_game_turns_hold_no_observation() -> None:
    assert {turn.observation for turn in played("Countdown", f"{__name__}.Go").turns if not turn.error} == {None}


@pytest.mark.parametrize(("game", "reward"), [("Rich", None), ("Nothing", None), ("Declared", 10.0), ("Rounded", 1.0)])
def test_reward_outside_the_range_fails_the_dialogue(game: str, reward: float | None) -> None:
    dialogue = played(game)
    assert dialogue.reward == pytest.approx(reward)
    if reward is None:
        assert dialogue.stop_reason is StopReason.BROKEN
        assert f"{game}.get_normalized_reward returned" in str(dialogue.failure)
        assert f"outside {game}.reward_range (0 to 1)" in str(dialogue.failure)


def test_an_error_without_words_is_none() -> None:
    assert {turn.error for turn in played("NoError").turns} == {None}


def test_game_without_rules_opens_with_its_state() -> None:
    dialogue = played("NoRules")
    assert dialogue.reward == 1.0 and dialogue.prompt == [{"role": "user", "content": "Begin."}]


def test_dialogue_of_a_faulty_class_is_broken_by_its_exception() -> None:
    for dialogue, fault in (
        (played("WrongStep"), "TypeError: .* takes 1 positional argument but 2 were given"),
        (played("Countdown", f"{__name__}.Sync"), "TypeError: object str can't be used in 'await' expression"),
    ):
        assert (dialogue.stop_reason, dialogue.reward) == (StopReason.BROKEN, None)
        assert re.search(fault, str(dialogue.failure)), dialogue.failure


RETURNED = "{0}.step returned .*; return \\(observation, done, info\\)"
REFUSED = {
    "LostText": "{0}.reset returns 'The secret word is apple.', which no player reads",
    **dict.fromkeys(("FourValues", "ShortStep", "WordAction", "Async"), RETURNED),
    "WrongStep": "{0} cannot be played \\(.*takes 1 positional argument but 2 were given\\)",
}


@pytest.mark.parametrize("game", REFUSED)
def test_game_of_another_interface_is_refused_before_it_starts(game: str, tmp_path: Path) -> None:
    config = config_of(game, data={"train": str(tmp_path / "none.jsonl"), "eval": None})
    plays = [lambda: check_games(config)] + [lambda: played(game)] * (game != "WrongStep")
    for play in plays:
        with pytest.raises(ConfigError, match=REFUSED[game].format(game)):
            play()
    check_games(config.changed(environment=f"{__name__}.SameText"))


def test_players_of_other_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Text.act returned 'go'; return a slim_rl\.Turn"):
        played("Countdown", f"{__name__}.Text")
    config = config_of("Countdown", partner={"kind": f"{__name__}.Oracle"})
    assert not config.opposite.paid and config.opposite.scripted
    for policy, partner, name in ((Go(), Oracle(), "partner Oracle"), (Oracle(), Go(), "policy Oracle")):
        sentence = f"The {name} is not a player; make its class a subclass of slim_rl.Partner"
        with pytest.raises(ConfigError, match=sentence):
            made.played(Countdown(), policy, partner, {})
