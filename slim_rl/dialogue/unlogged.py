"""Dialogues that have ended, or were called off, and stand in no step's log yet, on disk at once: a crash between the two loses none.

    *unlogged.lines, beside the log    one JSON line a dialogue, without tokens, in the order in which they ended

What a step has logged is taken out again. What stays was in no step: dialogues of a rollout that was interrupted (a run that resumes
plays them again, by the same ids), and of groups that were dropped. The analysis does not read the file; `slim_rl.dialogue.log.read_log`
does.
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Collection
from pathlib import Path

from slim_rl import jsonl
from slim_rl.dialogue.record import Dialogue


class Unlogged(jsonl.Appender):
    """The open file. It may be used from several threads of one process.

    Raises:
        DataError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._lines: dict[
            str, str
        ] = {}  # a dialogue's id -> the key of its last line; a game that is played again has an earlier one
        super().__init__(path, "file of unlogged dialogues")

    def append(self, dialogue: Dialogue) -> None:
        """Writes the dialogue's line, annotated or not. Raises DataError if the disk would not take it."""
        with self._lock:
            self._lines[dialogue.id] = uuid.uuid4().hex
            super().append({**dialogue.to_dict(tokens=False), "line": self._lines[dialogue.id]})

    def logged(self, ids: Collection[str]) -> None:
        """Takes out what was last appended of these ids: their step's log has it. What another try at them came to stays."""
        with self._lock:
            self.close()
            lines = {self._lines.pop(name) for name in ids if name in self._lines}
            jsonl.keep_lines(self.path, lambda line: line.get("line") not in lines)
            super().__init__(self.path, self.what)


@functools.cache
def unlogged_in(folder: Path) -> Unlogged:
    """The process's one file in a run's log folder, whatever event loops it has."""
    return Unlogged(folder / "unlogged.lines")
