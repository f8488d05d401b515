"""A game that says nothing of its questions is played, logged, paid for, evaluated and reported like any other."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from examples.treasure import Compass, Treasure
from slim_rl.config import parse_config
from slim_rl.dialogue.games_file import GameRow
from slim_rl.dialogue.log import DialogueLog, annotate, read_log
from slim_rl.dialogue.measures import measures
from slim_rl.dialogue.players import Partner
from slim_rl.dialogue.record import StopReason, Turn
from slim_rl.dialogue.training_reward import make_training_reward
from slim_rl.dialogue.worker import RolloutWorker
from slim_rl.environment import BaseEnvironment, View, game_of
from slim_rl.errors import ConfigError
from slim_rl.lab import incentives
from slim_rl.measured import Instrument, measured, says


class Bare(BaseEnvironment):
    """The treasure game's rules, and nothing of what it says of its questions."""

    seats = 2
    partners: ClassVar[Any] = Treasure.partners
    sample_state = Treasure.sample_state
    __init__ = Treasure.__init__  # type: ignore[assignment]
    reset = Treasure.reset  # type: ignore[assignment]
    step = Treasure.step  # type: ignore[assignment]
    get_normalized_reward = Treasure.get_normalized_reward  # type: ignore[assignment]
    get_prompt_prefix = Treasure.get_prompt_prefix  # type: ignore[assignment]
    get_state_description = Treasure.get_state_description  # type: ignore[assignment]
    get_private_view = Treasure.get_private_view  # type: ignore[assignment]


class Seeker(Partner):
    """Asks about row B, then digs where the treasure is in the first game."""

    identity: ClassVar[dict[str, Any]] = {"kind": "seeker"}

    async def act(self, view: View) -> Turn:
        return Turn("Is it in row B?" if not view.history else "5")


PATH = f"{__name__}.Bare"
CONFIG = {"environment": PATH, "game": {}, "partner": {"kind": "honest"}, "arms": {}}


def test_only_the_rules_are_asked_of_a_game() -> None:
    assert type(measured(Bare)) is type(measured(None)) is Instrument and isinstance(measured(Treasure), Compass)
    assert Bare.__abstractmethods__ == frozenset()
    assert says(Treasure, "annotate") and not says(Bare, "annotate")


def test_it_is_played_logged_read_and_paid_for(tmp_path: Path) -> None:
    worker = RolloutWorker(parse_config(CONFIG), None, Seeker())
    rows = [GameRow.of(Bare(), f"g{n}", {"treasure": [1, n % 3]}) for n in range(4)]
    episodes = [worker.spec(row, "test", step=0, group="a") for row in rows]
    dialogues = [dialogue for (dialogue,) in asyncio.run(worker.play_all(episodes, done=annotate))]
    assert [dialogue.reward for dialogue in dialogues] == [0.5, 1.0, 0.5, 0.5]
    assert {dialogue.stop_reason for dialogue in dialogues} == {StopReason.FINISHED}
    with DialogueLog(tmp_path / "train.jsonl") as log:
        for dialogue in dialogues:
            log.append(dialogue)
    again = list(read_log(tmp_path / "train.jsonl"))
    assert game_of(PATH) is Bare and [measures(dialogue)["questions"] for dialogue in again] == [0] * 4
    priced = parse_config(CONFIG, ["train={reward: price, reward_args: {price: 0.5}}"])
    assert make_training_reward(priced)(again, 0).rewards == [0.5, 1.0, 0.5, 0.5]


def test_what_it_cannot_tell_is_said_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="neither scripted players nor a frontier"):
        incentives.measure(parse_config(CONFIG), num_games=2)
