"""The analysis asks the game, and does without what a game does not offer."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from rich.console import Console

from slim_rl.analysis import analyze
from slim_rl.analysis.load import load
from slim_rl.analysis.terminal_tables import before_after_table, cells_table
from slim_rl.analysis.viewer import collect
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.dialogue.tracked import batch_metrics
from slim_rl.environment import BaseEnvironment
from slim_rl.frontier import Frontier
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
            turn.informative, turn.stated = list(turn.pairs), []

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
            turns = [Turn("red?", 0, "policy", {"kind": "message"}), Turn("no", 1, "partner", {"kind": "message"})]
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


class Partial(Silent, MeasuredEnvironment):
    """A game that says whether its turns ask, and nothing of what that was worth or about."""

    @classmethod
    def annotate(cls, dialogue: Dialogue) -> None:
        for turn in dialogue.turns:
            if turn.text.endswith("?"):
                turn.questions, turn.seeking = ["colour"], True


def trained(folder: Path, environment: str, after: str) -> Path:
    """Held-out games before and after training in which the policy says "go" and then `after`; the reward rises."""
    lines = []
    for step, text in ((0, "go"), (1, "go"), (2, after)):
        for number in range(12):
            dialogue = Dialogue(f"d{number}", f"g{number}", 0, number, {"colours": 4}, {"model": "m"}, {"kind": "p"})
            dialogue.turns, dialogue.stop_reason = [Turn(text, 0, "policy", {"kind": "message"})], StopReason.FINISHED
            dialogue.reward, dialogue.step = 0.2 + 0.3 * step + number / 100, step
            dialogue.phase, dialogue.environment = "train" if step == 1 else "eval", environment
            lines.append(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")
    (folder / "a.jsonl").write_bytes(b"".join(lines))
    return folder


@pytest.mark.parametrize("environment", [f"{__name__}.Silent", "nowhere.Game"])
def test_asking_that_is_not_measured_gets_no_verdict(tmp_path: Path, environment: str) -> None:
    summary = analyze([trained(tmp_path, environment, "red?")], tmp_path / "plots")
    (found,) = summary.results["verdict"]
    asked, paid, sure = found["sentences"]
    assert asked == "Questions are not measured: this game does not annotate them."
    assert paid.startswith("Reward rose from 0.255 to 0.855") and "for questions" not in sure
    rows = {row["measure"]: row for row in summary.results["held_out"]}
    assert np.isnan(rows["questions"]["after"]) and "informative_pairs" not in rows
    page = summary.report.read_text(encoding="utf-8")
    assert "learn to ask:" not in page and page.count("not measured") >= 3  # sentence, card, training's table
    for table in (before_after_table(*halves(tmp_path)), cells_table({"a": halves(tmp_path)[1]}, "a")):
        console = Console(file=io.StringIO(), width=120)
        console.print(table)
        assert "not measured" in console.file.getvalue()
    numbers = batch_metrics(halves(tmp_path)[1])
    assert "questions" not in numbers and "question_value" not in numbers and numbers["reward"] > 0.8


def test_a_game_that_annotates_in_part_is_measured_in_part(tmp_path: Path) -> None:
    summary = analyze([trained(tmp_path, f"{__name__}.Partial", "red?")], tmp_path / "plots")
    (found,) = summary.results["verdict"]
    assert found["sentences"][0].startswith("It learned to ask: from 0.000 to 1.00 questions")
    rows = {row["measure"] for row in summary.results["held_out"]}
    assert "questions_any" in rows and rows.isdisjoint({"informative_pairs", "question_value", "pairs_asked", "gain"})


def test_a_measured_game_in_which_nobody_asks_has_zero_questions(tmp_path: Path) -> None:
    summary = analyze([trained(tmp_path, f"{__name__}.Partial", "go")], tmp_path / "plots")
    assert summary.results["verdict"][0]["sentences"][0].startswith("It did not clearly learn to ask: from 0.000 to 0")


def halves(folder: Path) -> tuple[list[Dialogue], list[Dialogue]]:
    dialogues = list(read_log(folder))
    return [d for d in dialogues if d.step == 0], [d for d in dialogues if d.step == 2]
