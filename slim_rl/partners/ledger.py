"""What the partner's calls have cost a run, kept in the run's folder: a row for each process, in spend/spend.sqlite.

    a row is the total of its process so far, and what that has set aside for calls in flight
    a run has spent the sum over its rows

A row is written before and after each call, so that a process that is killed loses what is in flight and no more. Whoever sets money
aside does it in one transaction with looking at what the others have, so that no two processes take the same. A process holds its own
lock while it lives: what it has set aside counts no longer than that.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from slim_rl import jsonl
from slim_rl.errors import DataError
from slim_rl.files import host_name
from slim_rl.partners.store import Store

FOLDER = "spend"  # in the run's folder
TABLE = "CREATE TABLE IF NOT EXISTS spending (process TEXT PRIMARY KEY, cost_usd REAL, reserved_usd REAL, total TEXT)"


class Ledger:
    """The spending of one process, and a view of the others'.

    Args:
        folder: the run's.
        look_seconds: how often the others' rows are looked at.
    """

    def __init__(self, folder: Path, look_seconds: float = 1.0) -> None:
        self.folder, self.look_seconds = folder, look_seconds
        self.path = folder / FOLDER / "spend.sqlite"
        # The tag: containers give every start the same host name and process id.
        self.process = f"{host_name()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._store = Store(self.path, TABLE, local=False)
        self._alive: FileLock | None = None
        self._lines_usd: float | None = None
        self._looked, self._others_usd = -math.inf, 0.0

    def write(self, total: dict[str, Any]) -> None:
        """Keeps this process's total so far: `cost_usd`, `reserved_usd` and other counts. Raises DataError if the disk would not
        take it.
        """
        row = (self.process, total["cost_usd"], total.get("reserved_usd", 0.0), json.dumps(total))
        try:
            with self._store.changing() as db:
                if self._alive is None:
                    self._alive = self._lock(self.process)
                    with contextlib.suppress(OSError):  # no locks here
                        self._alive.acquire()  # for as long as we live
                db.execute("INSERT OR REPLACE INTO spending VALUES (?, ?, ?, ?)", row)
        except OSError as error:
            raise DataError(
                f"Cannot append to the run's spending {self.path}: {error.strerror}; make room and resume."
            ) from error

    def others_usd(self) -> float:
        """US dollars spent by all processes but this one, at most `look_seconds` old. Raises OSError."""
        now = time.monotonic()
        if now - self._looked >= self.look_seconds:
            found = self._store.rows("SELECT total(cost_usd) FROM spending WHERE process != ?", self.process)
            self._others_usd, self._looked = self._usd_of_lines() + sum(usd for (usd,) in found), now
        return self._others_usd

    @contextlib.contextmanager
    def alone(self) -> Iterator[tuple[float, float]]:
        """Lets no other process of the run into its own such block meanwhile. Yields the US dollars that all others have spent, and
        those that they have set aside for calls in flight. Raises OSError.
        """
        with self._store.changing() as db:
            rows = db.execute("SELECT process, reserved_usd FROM spending WHERE process != ?", (self.process,))
            aside = sum(usd for process, usd in rows.fetchall() if usd and self._lives(process))
            self._looked = -math.inf
            yield self.others_usd(), aside

    def _lives(self, process: str) -> bool:
        lock = self._lock(process)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return True
        except OSError:  # no locks here
            return False
        lock.release()
        return False

    def _lock(self, process: str) -> FileLock:
        return FileLock(self.path.with_name(f"{process}.lock"))

    def _usd_of_lines(self) -> float:
        """What the files of older versions say, one for each process: the last whole line is its total."""
        if self._lines_usd is None:
            files = self.path.parent.glob("*.ndjson")
            last = [[line.data for line in jsonl.scan(file) if isinstance(line.data, dict)][-1:] for file in files]
            self._lines_usd = sum(float(total.get("cost_usd", 0.0)) for totals in last for total in totals)
        return self._lines_usd


def spent_usd(folder: Path) -> float:
    """US dollars that the run in `folder` has spent so far; 0.0 where nothing is kept."""
    return Ledger(folder).others_usd()
