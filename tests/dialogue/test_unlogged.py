"""Dialogues that are in no step's log: what stays, and what goes."""

from __future__ import annotations

import json
from pathlib import Path

from slim_rl.dialogue.record import Dialogue
from slim_rl.dialogue.unlogged import Unlogged


def test_a_try_that_was_broken_off_stays_where_another_has_its_ids(tmp_path: Path) -> None:
    """As where a run goes on, or a game is played anew with new weights: the partner was paid for both."""
    path = tmp_path / "unlogged.lines"
    dialogues = [
        Dialogue("train/0", "g", 0, 0, {}, {}, {}, failure=words) for words in ("a run that ended", "restarted", "last")
    ]
    before = Unlogged(path)
    before.append(dialogues[0])
    before.close()
    after = Unlogged(path)
    for dialogue in dialogues[1:]:
        after.append(dialogue)
    after.logged({"train/0"})
    kept = [json.loads(line)["failure"] for line in path.read_bytes().splitlines()]
    assert kept == ["a run that ended", "restarted"]
