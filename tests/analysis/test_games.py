"""The analysis asks the game, and does without what a game does not offer."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np
import orjson
import pytest

from slim_rl.analysis import analyze
from slim_rl.analysis.dialogues import collect
from slim_rl.analysis.load import load
from slim_rl.analysis.report import answer
from slim_rl.dialogue.log import read_log
from slim_rl.dialogue.measures import batch_metrics
from slim_rl.dialogue.record import Dialogue, StopReason, Turn
from slim_rl.environment import BaseEnvironment
from slim_rl.measured import Instrument

pytestmark = pytest.mark.usefixtures("unprinted")


class Silent(BaseEnvironment):
    """A game that offers the analysis nothing, and whose partner cannot be imported."""

    partners: ClassVar[dict[str, str]] = {"p": "nowhere.Partner"}


class Partial(Silent):
    """A game that says whether its turns ask, and nothing of what that was worth or about."""

    instrument = f"{__name__}.Part"


class Part(Instrument):
    def annotate(self, dialogue: Dialogue) -> None:
        for turn in dialogue.turns:
            if turn.text.endswith("?"):
                turn.questions, turn.seeking = ["colour"], True


def write(folder: Path, environment: str, steps: Iterable[tuple[str, int, str, float]]) -> Path:
    """Twelve games at each step: (phase, step, what the policy says, reward)."""
    lines = []
    for phase, step, text, reward in steps:
        for number in range(12):
            dialogue = Dialogue(f"d{number}", f"g{number}", 0, number, {"colours": 4}, {"model": "m"}, {"kind": "p"})
            dialogue.turns = [
                Turn(text, 0, "policy", {"kind": "message"}),
                Turn("no", 1, "partner", {"kind": "message"}),
            ]
            dialogue.reward, dialogue.stop_reason = reward + number / 100, StopReason.FINISHED
            dialogue.phase, dialogue.step, dialogue.environment = phase, step, environment
            lines.append(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")
    (folder / "a.jsonl").write_bytes(b"".join(lines))
    return folder


def trained(folder: Path, environment: str, after: str) -> Path:
    """Held-out games before and after training in which the policy says "go" and then `after`; the reward rises."""
    return write(folder, environment, [("eval", 0, "go", 0.2), ("train", 1, "go", 0.5), ("eval", 2, after, 0.8)])


@pytest.mark.parametrize("environment", [f"{__name__}.Silent", "nowhere.Game"])
def test_a_game_that_offers_nothing_is_reported_without(tmp_path: Path, environment: str) -> None:
    summary = analyze([trained(tmp_path, environment, "red?")], tmp_path / "plots")
    asked, paid, sure = summary.results["verdict"][0]["sentences"]
    assert asked == "Questions are not measured: this game does not annotate them."
    assert paid.startswith("Reward rose from 0.255 to 0.855") and "for questions" not in sure
    rows = {row["measure"]: row for row in summary.results["held_out"]}
    assert np.isnan(rows["questions"]["after"]) and "informative_pairs" not in rows
    assert summary.results["references"] == summary.results["frontier"] == {}
    assert not summary.results["partner_faults"] and summary.results["gap"] == []
    page = summary.report.read_text(encoding="utf-8")
    assert "learn to ask:" not in page and page.count("not measured") >= 2
    assert "Partner faults" not in page and "Gap to the ideal asker" not in page
    assert ("not imported" in page) == (environment == "nowhere.Game")
    assert [game.board for game in collect(load([tmp_path / "a.jsonl"]), 1)] == [None]
    before, after = ([d for d in read_log(tmp_path) if d.step == step] for step in (0, 2))
    for dialogues in ([*before, *after], after):
        assert "not measured" in answer(dialogues)[0][0].rows[0].values()
    numbers = batch_metrics(after)
    assert "questions" not in numbers and "question_value" not in numbers and numbers["reward"] > 0.8


@pytest.mark.parametrize(
    ("after", "learned"), [("red?", "It learned to ask: from 0.000 to 1.00"), ("go", "It did not clearly")]
)
def test_a_game_that_annotates_in_part_is_measured_in_part(tmp_path: Path, after: str, learned: str) -> None:
    summary = analyze([trained(tmp_path, f"{__name__}.Partial", after)], tmp_path / "plots")
    assert summary.results["verdict"][0]["sentences"][0].startswith(learned)
    rows = {row["measure"] for row in summary.results["held_out"]}
    assert "questions_any" in rows and rows.isdisjoint({"informative_pairs", "question_value", "pairs_asked", "gain"})


def test_training_of_which_all_failed_is_not_an_evaluation(tmp_path: Path) -> None:
    write(tmp_path, f"{__name__}.Partial", [("train", 0, "go", 0.5)])
    lines = [orjson.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    failed = [{**line, "reward": None, "stop_reason": "partner_failed"} for line in lines]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(map(orjson.dumps, failed)))
    page = analyze([tmp_path], tmp_path / "out").report.read_text()
    assert "No training dialogue has a reward" in page and "these logs have no training" not in page
