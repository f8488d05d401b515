"""The partner's own faults stand beside the reward, so that a run is not credited with its partner's slips."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from slim_rl.analysis import Summary, analyze
from slim_rl.analysis.load import load
from slim_rl.dialogue.record import Dialogue
from slim_rl.games.matching.questions import annotate
from tests.analysis import synthetic

FALSE = "stated a false value"
TABLE = "Partner faults (intended ones included)"


def slip(dialogue: Dialogue) -> None:
    """Its first reply now answers the question with a value that the board does not hold."""
    asked, told = dialogue.turns[:2]
    asked.text = "[message] What is Ava Li on BLEU?"
    told.text = "[message] Ava Li on BLEU: 1234."
    annotate(dialogue)


def report(folder: Path, change: Callable[[Dialogue], Any]) -> Summary:
    (folder / "logs").mkdir()
    with (folder / "logs" / "log.jsonl").open("wb") as file:
        for dialogue in synthetic.make_runs(arms=("shy",), seeds=1, steps=6, n=3, eval_games=30):
            change(dialogue)
            file.write(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")
    return analyze([folder / "logs"], folder / "plots", max_dialogues=0)


@pytest.mark.usefixtures("unprinted")
def test_partner_faults_are_reported_and_subtracted_from_reward(tmp_path: Path) -> None:
    slipped: list[Dialogue] = []
    after: list[Dialogue] = []

    def change(dialogue: Dialogue) -> None:
        dialogue.partner["accept_fraction"] = 0  # it may accept any plan
        if (dialogue.phase, dialogue.step) == ("eval", 6) and not dialogue.failed:
            after.append(dialogue)
            if dialogue.turns[1:] and dialogue.turns[1].text.startswith("[message]") and len(slipped) < 5:
                slip(dialogue)
                dialogue.reward = 1.0
                slipped.append(dialogue)

    summary = report(tmp_path, change)
    rows = {(row["phase"], row["step"]): row for row in json.loads(summary.summary.read_text())["partner_faults"]}
    assert set(rows) == {("train", None), ("eval", 0), ("eval", 6)}
    assert [rows[key]["faults"][FALSE]["faults"] for key in (("train", None), ("eval", 0), ("eval", 6))] == [0, 0, 5]
    row = rows["eval", 6]
    clean = [d.reward for d in after if d not in slipped]
    assert row["clean_reward"]["value"] == pytest.approx(sum(clean) / len(clean))
    assert row["reward"]["value"] == pytest.approx((sum(clean) + 5) / len(after))
    page = re.sub(r"\s+", " ", summary.report.read_text(encoding="utf-8"))
    cases = row["faults"][FALSE]["cases"]
    said = f"Partner faults after training: {FALSE}, 5 of {cases} times ({100 * 5 / cases:.1f}%). Reward of dialogues without any: from "
    assert said in page and page.index(said) < page.index("<figure")
    assert f"5 of {cases}</span>" in page[page.index(TABLE) :]


def test_a_partner_without_a_slip_is_a_row_of_zeros(analysed: Summary) -> None:
    rows = analysed.results["partner_faults"]
    assert {(row["arm"], row["phase"], row["step"]) for row in rows if row["phase"] != "train"} == {
        (arm, "eval", step) for arm in ("shy", "mute") for step in (0, 24)
    }
    assert all(row["faults"][FALSE]["faults"] == 0 for row in rows) and any(
        row["faults"][FALSE]["cases"] for row in rows
    )
    assert sum(row["dialogues"] for row in rows) == analysed.results["counts"]["dialogues"]
    assert TABLE in analysed.report.read_text(encoding="utf-8")


def test_a_game_that_audits_nothing_has_no_such_part(tmp_path: Path) -> None:
    summary = report(tmp_path, lambda dialogue: setattr(dialogue, "environment", "nowhere.Game"))
    assert summary.results["verdict"] and summary.results["partner_faults"] == []
    assert "Partner faults" not in summary.report.read_text(encoding="utf-8")


def test_a_dialogue_that_the_audit_cannot_read_still_counts(tmp_path: Path) -> None:
    dialogue = next(d for d in synthetic.make_runs(arms=("shy",), seeds=1, steps=4, n=3) if len(d.turns) > 2)
    dialogue.partner = {"kind": "shy", "answers": "some", "accept_fraction": "half"}
    (tmp_path / "log.jsonl").write_bytes(orjson.dumps(dialogue.to_dict(tokens=False)) + b"\n")
    log = load([tmp_path])
    assert len(log.frame) == 1 and log.files[0].foreign == 0
