"""The analysis asks the game, and does without what a game does not offer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from slim_rl.analysis import analyze
from slim_rl.analysis.load import load
from slim_rl.analysis.viewer import collect
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.environment import BaseEnvironment
from slim_rl.lab.frontier import Frontier
from slim_rl.measured import MeasuredEnvironment


class Silent(BaseEnvironment):
    """A game that offers the analysis nothing."""

    def reset(self, game_state: Any) -> tuple[str, dict[str, Any]]:
        return "", {}

    def step(self, text: str) -> tuple[str, bool, dict[str, Any]]:
        return "", True, {}

    def get_normalized_reward(self) -> float:
        return 0.0

    def get_prompt_prefix(self, seat: int = 0) -> str:
        return ""

    def get_state_description(self, seat: int = 0) -> str:
        return ""


class Colours(Silent, MeasuredEnvironment):
    """A game that offers all of it, in its own way."""

    @classmethod
    def annotate(cls, dialogue: Dialogue) -> None:
        for turn in dialogue.turns:
            asks = turn.text.endswith("?")
            turn.questions, turn.seeking, turn.pairs = (["colour"], True, [(0,)]) if asks else ([], False, [])
            turn.informative, turn.told = list(turn.pairs), []

    @classmethod
    def references(cls, games: list[tuple[Any, int]]) -> dict[str, Any]:
        return {"guess": {"about": "a guess", "rewards": [1 / state["colours"] for state, _ in games], "drawn": True}}

    @classmethod
    def frontier(cls, games: list[tuple[Any, int]], most: int, seed: int = 0) -> dict[str, Frontier]:
        rewards = np.tile(np.arange(most + 1) / most, (len(games), 1))
        return {"wise": Frontier(rewards, np.diff(rewards, axis=1, append=1.0))}

    @classmethod
    def viewer_board(cls, game_state: Any, seat: int) -> dict[str, Any]:
        return {"text": f"seat {seat} of {game_state['colours']} colours"}


def write(folder: Path, environment: str) -> Path:
    with (folder / "a.jsonl").open("wb") as file:
        for number in range(12):
            turns = [Turn(0, "policy", "red?", {"kind": "message"}), Turn(1, "partner", "no", {"kind": "message"})]
            dialogue = Dialogue(f"d{number}", f"g{number}", 0, number, {"colours": 4}, {"model": "m"}, {"kind": "p"})
            dialogue.turns, dialogue.reward, dialogue.stop_reason, dialogue.step = (
                turns,
                0.5,
                StopReason.FINISHED,
                number,
            )
            file.write(orjson.dumps({**dialogue.to_dict(tokens=False), "environment": environment}) + b"\n")
    return folder


def test_a_game_of_its_own_is_reported(tmp_path: Path) -> None:
    summary = analyze([write(tmp_path, f"{__name__}.Colours")], tmp_path / "plots")
    assert summary.results["references"]["guess"]["reward"]["value"] == 0.25
    assert summary.results["frontier"]["wise"]["mean"][-1] == 1.0
    assert summary.results["kinds"]["p"]["shares"]["colour"] == [1.0] * 12
    assert {"frontier", "question_kinds"} <= summary.figures.keys()
    log = load([tmp_path / "a.jsonl"])
    assert log.kinds == {"colour": "colour"}
    assert log.frame["informative_pairs"].sum() == 12
    assert collect(log, 3)["boards"] == [{"text": "seat 0 of 4 colours"}]


@pytest.mark.parametrize("environment", [f"{__name__}.Silent", "nowhere.Game", ""])
def test_a_game_that_offers_nothing_is_reported_without(tmp_path: Path, environment: str) -> None:
    summary = analyze([write(tmp_path, environment)], tmp_path / "plots")
    assert summary.results["references"] == summary.results["frontier"] == {}
    log = load([tmp_path / "a.jsonl"])
    assert collect(log, 3)["boards"] == []
    assert any("nowhere.Game" in warning for warning in log.warnings) == (environment == "nowhere.Game")
