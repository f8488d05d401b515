"""What the partner's calls have cost a run, kept in the run's folder: spend/HOST-PID-TAG.ndjson, one file for each process.

    the last whole line of a file is the total of its process so far, and what that has set aside for calls in flight
    a run has spent the sum over its files

A line is appended before and after each call, so that a process that is killed loses what is in flight and no more; nobody writes to
another's file. Whoever sets money aside holds the run's lock, so that no two processes take the same. A process locks its own file
while it lives: what it has set aside counts no longer than that. A start of the run reads the files of all earlier ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slim_rl import jsonl
from slim_rl.files import host_name
from slim_rl.partners.locks import is_held, locked

FOLDER = "spend"  # in the run's folder
_SUFFIX = ".ndjson"  # JSON lines; a *.jsonl below a run's folder is taken for a dialogue log
_LOCK = "lock"
_LOOK_SECONDS = 1.0
_TAIL = 4096  # bytes; a line has some 200


class Ledger:
    """The spending of one process, and a view of the others'.

    Args:
        folder: the run's.
        look_seconds: how often the others' files are looked at.
    """

    def __init__(self, folder: Path, look_seconds: float = _LOOK_SECONDS) -> None:
        self.folder, self.look_seconds = folder, look_seconds
        # The tag: containers give every start the same host name and process id.
        self.path = folder / FOLDER / f"{host_name()}-{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}"
        self._file: jsonl.Appender | None = None
        self._looked = -math.inf
        self._others: dict[str, _Seen] = {}

    def write(self, total: dict[str, Any]) -> None:
        """Appends this process's total so far. Raises DataError if the disk would not take it."""
        if self._file is None:
            self._file = jsonl.Appender(self.path, "run's spending")
            with contextlib.suppress(OSError):  # no locks here
                fcntl.flock(self._file, fcntl.LOCK_EX)  # for as long as we live
        self._file.append(total)

    def others_usd(self) -> float:
        """US dollars spent in all files but this process's own, at most `look_seconds` old."""
        now = time.monotonic()
        if now - self._looked >= self.look_seconds:
            self._looked = now
            self._look()
        return math.fsum(seen.usd for seen in self._others.values())

    @contextlib.contextmanager
    def alone(self) -> Iterator[tuple[float, float]]:
        """Lets no other process of the run into its own such block meanwhile. Yields the US dollars that all others have spent, and
        those that they have set aside for calls in flight. Raises OSError.
        """
        lock = self.folder / FOLDER / _LOCK
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("ab") as file, locked(file, fcntl.LOCK_EX):
            self._looked = time.monotonic()
            self._look()
            others = self._others.values()
            yield math.fsum(seen.usd for seen in others), math.fsum(seen.reserved_usd for seen in others)

    def _look(self) -> None:
        try:
            files = [entry for entry in os.scandir(self.folder / FOLDER) if entry.name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return
        for entry in files:
            seen = self._others.get(entry.name, _Seen())
            with contextlib.suppress(FileNotFoundError):
                if entry.name != self.path.name and (seen.reserved_usd or entry.stat().st_size != seen.size):
                    self._others[entry.name] = _read(Path(entry.path))


@dataclass(frozen=True, slots=True)
class _Seen:
    """A process's file as it was read: its size, and the US dollars spent and set aside."""

    size: int = -1
    usd: float = 0.0
    reserved_usd: float = 0.0


def spent_usd(folder: Path) -> float:
    """US dollars that the run in `folder` has spent so far; 0.0 where nothing is kept."""
    return Ledger(folder).others_usd()


def _read(path: Path) -> _Seen:
    """The last whole line; nothing if there is none. What a process that has ended had set aside is not set aside any more."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        for line in reversed(file.read().split(b"\n")[:-1]):  # what stands after the last newline is torn
            try:
                total = json.loads(line)
                usd, reserved = float(total["cost_usd"]), float(total.get("reserved_usd", 0.0))
            except (ValueError, LookupError, TypeError, AttributeError):
                continue
            if 0 <= usd < math.inf and 0 <= reserved < math.inf:
                return _Seen(size, usd, reserved if reserved and is_held(file) else 0.0)
    return _Seen(size)
