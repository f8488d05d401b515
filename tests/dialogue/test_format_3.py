"""A log of format 3, which slim_rl 0.1 wrote, and the measures that its writer printed of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slim_rl.analysis.load import load, read_dialogue
from slim_rl.dialogue.log import DialogueLog, read_log
from slim_rl.dialogue.measures import MEASURES, RENAMED, measures
from slim_rl.dialogue.record import FORMAT, Dialogue
from tests.paths import ROOT

FOLDER = ROOT / "tests" / "dialogue" / "format_3"
LINES: list[dict[str, Any]] = [
    json.loads(line) for line in (FOLDER / "train.jsonl").read_text(encoding="utf-8").splitlines()
]
PRINTED: list[dict[str, Any]] = json.loads((FOLDER / "measures.json").read_text(encoding="utf-8"))
COLUMNS = {
    "put": "forced",
    "told": "stated",
    "uncounted": "volunteered",
    "doubted": "named_in_rejection",
    "promise_rank": "question_rank",
}


@pytest.mark.parametrize(("line", "printed"), zip(LINES, PRINTED, strict=True))
def test_measures_of_format_3_are_those_printed_then(line: dict[str, Any], printed: dict[str, Any]) -> None:
    assert line["format"] == 3
    then = {RENAMED.get(name, name): value for name, value in printed.items()}
    now = measures(line)
    assert then == pytest.approx({name: now[name] for name in then}, nan_ok=True)
    assert now.keys() == then.keys()


def test_format_3_covers_every_renamed_measure() -> None:
    assert RENAMED.keys() & PRINTED[0].keys() == RENAMED.keys() - {"value", "value_per_100_words"}
    for old in RENAMED.keys() & PRINTED[0].keys():
        assert any(printed[old] > 0 for printed in PRINTED), old
    assert set(RENAMED.values()) <= MEASURES.keys()


def test_columns_of_format_3_are_read_as_written() -> None:
    for line in LINES:
        dialogue = Dialogue.from_dict(line)
        assert dialogue.annotator_version == line["instrument"]
        for turn, written in zip(dialogue.turns, line["turns"], strict=True):
            for old, new in COLUMNS.items():
                assert json.loads(json.dumps(getattr(turn, new))) == written[old]


def test_settings_of_format_3_have_todays_keys() -> None:
    settings = Dialogue.from_dict(LINES[0]).settings
    assert settings["partner.explain_rejections"] is True
    assert (settings["train.reward"], settings["train.reward_args.price"]) == ("price", 0.02)
    assert not [key for key in settings if "payment" in key or "doubts" in key]


def test_format_3_written_again_is_of_todays_format(tmp_path: Path) -> None:
    read = list(read_log(FOLDER / "train.jsonl"))
    with DialogueLog(tmp_path / "log.jsonl") as log:
        for dialogue in read:
            log.append(dialogue)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {line["format"] for line in lines} == {FORMAT}
    assert not any(COLUMNS.keys() & turn.keys() for line in lines for turn in line["turns"])
    assert list(read_log(tmp_path)) == read


def test_analysis_counts_every_line_of_format_3() -> None:
    log = load([FOLDER])
    assert [(file.lines, file.dialogues, file.foreign) for file in log.files] == [(len(LINES), len(LINES), 0)]
    whole = read_dialogue(log, next(log.frame.itertuples()))
    assert whole["annotator_version"] == LINES[0]["instrument"] and whole["turns"][0]["forced"] is True
