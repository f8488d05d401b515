"""Sentences, one a line of `sentences.jsonl`, and what the reader must make of each.

A line has its `text`, the messages `before` it, and what it is to be: the pairs `asked` and those of them that the guide counts (`pairs`), as
"first name/short title", the `labels`, whether it is `general` or `suggests`, and the values that it `states`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slim_rl.games.matching.reading.reader import read
from slim_rl.games.matching.roster import Pair, Roster

ROSTER = Roster.default()
ROWS = [json.loads(line) for line in Path(__file__).with_name("sentences.jsonl").open(encoding="utf-8")]


def named(pair: Pair) -> str:
    return f"{ROSTER.first_names[pair[0]]}/{ROSTER.short_papers[pair[1]]}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["text"])
def test_sentence_is_read_as_its_line_says(row: dict[str, Any]) -> None:
    found = read(row["text"], ROSTER, row.get("before", []))
    made = {
        "asked": [named(pair) for pair in found.asked],
        "pairs": [named(pair) for pair in found.asked if pair not in found.suggested],
        "labels": sorted(found.labels),
        "general": found.general,
        "suggests": found.suggests,
        "states": {named(pair): value for pair, value in found.statements},
    }
    expected = {name: row[name] for name in made if name in row}
    assert {name: made[name] for name in expected} == expected
