"""Dialogues that have ended, or were called off, and stand in no step's log yet, on disk at once: a crash between the two loses none.

    *unlogged.lines, beside the log    one JSON line a dialogue, without tokens, in the order in which they ended

What a step has logged is taken out again. What stays was in no step: dialogues of a rollout that was interrupted (a run that resumes
plays them again), those begun anew, and those of groups that were dropped. Dialogues that are played again have the ids of before: so
each line names its attempt, which the lines of a dialogue that went on after it was called off share. The analysis does not read the
file; `slim_rl.dialogue.log.read_log` does.
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
        self._attempts: dict[str, str] = {}  # a dialogue's id -> its last attempt in this process
        super().__init__(path, "file of unlogged dialogues")

    def append(self, dialogue: Dialogue, goes_on: bool = False) -> None:
        """Writes the dialogue's line, annotated or not.

        Args:
            goes_on: it began with the turns of its attempt before.

        Raises:
            DataError: the disk would not take it.
        """
        with self._lock:
            if not goes_on or dialogue.id not in self._attempts:
                self._attempts[dialogue.id] = uuid.uuid4().hex
            super().append(dialogue.to_dict(tokens=False) | {"attempt": self._attempts[dialogue.id]})

    def logged(self, ids: Collection[str]) -> None:
        """Takes out the last attempts at the dialogues of these ids: their step's log has them."""
        with self._lock:
            attempts = {self._attempts.pop(id) for id in ids if id in self._attempts}
            self.close()
            jsonl.keep_lines(self.path, lambda line: line.get("attempt") not in attempts)
            super().__init__(self.path, self.what)


@functools.cache
def unlogged_in(folder: Path) -> Unlogged:
    """The process's one file in a run's log folder, whatever event loops it has."""
    return Unlogged(folder / "unlogged.lines")
