"""What the partner's calls have cost a run, kept in the run's folder: spend/HOST-PID-TAG.ndjson, one file for each process.

    the last whole line of a file is the total of its process so far; a run has spent the sum over its files

A line is appended after each call, so that a process that is killed loses what is in flight and no more; nobody writes to another's
file, so that processes on several nodes need no lock. A start of the run reads the files of all earlier ones.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from pathlib import Path
from typing import Any

from slim_rl import jsonl
from slim_rl.files import host_name

FOLDER = "spend"  # in the run's folder
_SUFFIX = ".ndjson"  # JSON lines; a *.jsonl below a run's folder is taken for a dialogue log
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
        self._others: dict[str, tuple[int, float]] = {}  # name -> (size when it was read, US dollars)

    def write(self, total: dict[str, Any]) -> None:
        """Appends this process's total so far. Raises DataError if the disk would not take it."""
        if self._file is None:
            self._file = jsonl.Appender(self.path, "run's spending")
        self._file.append(total)

    def others_usd(self) -> float:
        """US dollars in all files but this process's own, at most `look_seconds` old."""
        now = time.monotonic()
        if now - self._looked >= self.look_seconds:
            self._looked = now
            self._look()
        return math.fsum(usd for _, usd in self._others.values())

    def _look(self) -> None:
        try:
            files = [entry for entry in os.scandir(self.folder / FOLDER) if entry.name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return
        for entry in files:
            try:
                size = entry.stat().st_size
                if entry.name != self.path.name and self._others.get(entry.name, (-1, 0.0))[0] != size:
                    self._others[entry.name] = size, _last_total(Path(entry.path))
            except FileNotFoundError:
                continue


def spent_usd(folder: Path) -> float:
    """US dollars that the run in `folder` has spent so far; 0.0 where nothing is kept."""
    return Ledger(folder).others_usd()


def _last_total(path: Path) -> float:
    """The last whole line's US dollars; 0.0 if there is none."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        lines = file.read().split(b"\n")[:-1]  # what stands after the last newline is torn
    for line in reversed(lines):
        try:
            usd = float(json.loads(line)["cost_usd"])
        except (ValueError, LookupError, TypeError):
            continue
        if usd >= 0 and math.isfinite(usd):
            return usd
    return 0.0
