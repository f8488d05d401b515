"""Cassette: every exchange with an endpoint, in a sqlite file, addressed by the request.

Invariants:
    One key has one answer for as long as the cassette lives, however many processes record to it.
    A file of something else is refused and left unchanged.

With a cassette a reply depends on the request and the dialogue's seed alone, so a dialogue can be repeated offline. The key is the
SHA-256 of the canonical JSON of the request body and the seed. A row holds no header and no API key.
"""

import contextlib
import hashlib
import json
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from slim_rl.errors import ConfigError, DataError
from slim_rl.jsonl import whole_characters

BUSY_SECONDS = 5.0  # longest wait for another process's transaction, which takes milliseconds
# request and answer are JSON; recorded: seconds since 1970
TABLE = "answers (key TEXT PRIMARY KEY, seed INTEGER, request TEXT, answer TEXT, recorded REAL)"


def request_key(request: dict[str, Any], seed: int) -> str:
    """Returns the address of a request: hex SHA-256."""
    data = {"request": request, "seed": seed}
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


class Cassette:
    """Answers by key.

    Args:
        path: the file; made if needed.
        replays: `partner.openai.cassette_mode` is replay: the file must exist.

    Attributes:
        trouble: sentence that says why an answer could not be written; None if the last one was.

    Raises:
        ConfigError: the file is not a cassette, or does not exist although it is replayed.
    """

    def __init__(self, path: Path, replays: bool = False) -> None:
        self.path = path
        self.trouble: str | None = None
        self._lock = threading.RLock()  # event loops may run in threads
        if replays and not path.exists():
            raise ConfigError(f"The cassette {path} does not exist. Name a recorded one, or record it first.")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _check(path)
            self._db = sqlite3.connect(path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, _close, self._db)
            with contextlib.suppress(sqlite3.OperationalError):  # read-only, or another process has set it
                self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
            self.get("")
        except (OSError, sqlite3.Error, DataError) as error:
            raise ConfigError(
                f"{path} cannot be read as a cassette, and was not changed: {error}. Set openai.cassette to another file; it need not exist."
            ) from error

    def get(self, key: str) -> dict[str, Any] | None:
        """Returns the answer recorded under `key` by any process, or None. Raises DataError if the file cannot be read."""
        try:
            with self._lock:
                row = self._db.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise DataError(f"Cannot read the cassette {self.path}: {error}. Make it readable and resume.") from error
        return _answer(row[0]) if row else None

    def keep(self, key: str, request: dict[str, Any], seed: int, answer: dict[str, Any]) -> dict[str, Any]:
        """Records an answer and returns the first one recorded under `key`, by this process or another.

        If the disk refuses it, the answer is returned all the same, and `trouble` says why: the run should stop.
        """
        row = (key, seed, json.dumps(request), json.dumps(answer), time.time())
        try:
            with self._lock, self._db:
                self._db.execute("BEGIN IMMEDIATE")
                if (first := self.get(key)) is None:
                    self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
        except (sqlite3.Error, DataError) as error:
            self.trouble = f"Cannot append to the cassette {self.path}: {error}. Make it writable and resume the run."
            return answer
        self.trouble = None
        return first or answer


def _check(path: Path) -> None:
    """Raises sqlite3.Error if a file is not a cassette. Opened read-only and immutable, it gets no companion files either."""
    if not path.exists() or not path.stat().st_size:
        return
    immutable = int(not path.with_name(f"{path.name}-wal").exists())
    with contextlib.closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable={immutable}", uri=True)
    ) as db:
        tables = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")]
    if tables not in ([], [f"CREATE TABLE {TABLE}"]):
        raise sqlite3.DatabaseError("it holds other tables")


def _close(db: sqlite3.Connection) -> None:
    """Leaves a single file, readable on read-only media, unless another process has it open."""
    with contextlib.closing(db), contextlib.suppress(sqlite3.Error):
        db.execute("PRAGMA busy_timeout = 0")
        db.execute("PRAGMA journal_mode = DELETE")


def _answer(row: Any) -> dict[str, Any] | None:
    """Returns the answer of a row; None for a row without a valid answer, which counts as not recorded."""
    try:
        answer = json.loads(row)
        names = [answer.get(name) for name in ("finish_reason", "model", "thought", "refusal")]
        known = all(isinstance(name, str | None) for name in [*names, *(answer.get("refused") or ())])
        return answer | {"text": whole_characters(answer["text"])} if known else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
