"""Wordings that were written before the reader, and the least share of them that it reads right.

Rules were tried on `wordings_dev.jsonl`; no wording of `wordings_test.jsonl` was looked at while they were written. A line's `before` holds
earlier messages, the partner's last; `pairs` what the text asks about. Kinds: direct and multi (one question, several pairs), follow and
within (names left out), non (asks for no score), open (asks about a whole reviewer, paper or table).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slim_rl.games.matching.reading.reader import Reading, read
from slim_rl.games.matching.roster import Roster

ROSTER = Roster.default()
ASKING = ("direct", "multi", "follow", "within")
# The shares of questions whose pairs are read exactly and of those that are not counted, of others that get a score, of open ones counted
BOUNDS = {"dev": (0.97, 0.01, 0.02, 0.93), "test": (0.90, 0.065, 0.05, 0.95)}


def wordings(name: str, *kinds: str) -> list[tuple[Reading, set[tuple[int, int]]]]:
    rows = map(json.loads, Path(__file__).with_name(f"wordings_{name}.jsonl").open(encoding="utf-8"))
    return [
        (
            read(row["text"], ROSTER, row["before"]),
            {(ROSTER.reviewers.index(reviewer), ROSTER.short_papers.index(paper)) for reviewer, paper in row["pairs"]},
        )
        for row in rows
        if row["kind"] in kinds
    ]


@pytest.mark.parametrize("name", BOUNDS)
def test_read_held_out_wordings_reaches_its_floors(name: str) -> None:
    right, missed, answered, counted = BOUNDS[name]
    asking, others, general = wordings(name, *ASKING), wordings(name, "non"), wordings(name, "open")
    assert len(asking) >= 148 and len(others) >= 88 and len(general) >= 15
    assert sum(set(found.asked) == pairs for found, pairs in asking) >= right * len(asking)
    assert sum(not found.seeking for found, _ in asking) <= missed * len(asking)
    assert sum(bool(found.asked) for found, _ in others) <= answered * len(others)
    assert not any(found.asked for found, _ in general)
    assert sum(found.seeking for found, _ in general) >= counted * len(general)
