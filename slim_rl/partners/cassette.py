"""Cassette: every exchange with an endpoint, in a sqlite file, addressed by the request.

Invariants:
    One key has one answer for as long as the cassette lives, however many processes record to it.
    A transaction is in the file completely or not at all, whenever its process is killed.
    A file of something else is refused and left unchanged.

With a cassette a reply depends on the request and the dialogue's seed alone, so a dialogue can be repeated offline. The key is the
SHA-256 of the canonical JSON of the request body and the seed. A row holds no header and no API key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Literal

from slim_rl.errors import ConfigError, DataError
from slim_rl.jsonl import whole_characters

Mode = Literal["auto", "record", "replay"]

BUSY_SECONDS = 5.0  # longest wait for another process's transaction, which takes milliseconds
# request and answer are JSON; recorded: seconds since 1970
TABLE = "CREATE TABLE answers (key TEXT PRIMARY KEY, seed INTEGER, request TEXT, answer TEXT, recorded REAL)"


def request_key(request: dict[str, Any], seed: int) -> str:
    """Returns the address of a request: hex SHA-256."""
    data = {"request": request, "seed": seed}
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


class Cassette:
    """Answers by key.

    Args:
        path: the file; created with the first recorded answer.
        mode: `partner.openai.cassette_mode`. ``auto`` answers from the file if it can; ``replay`` only from it (it must exist);
            ``record`` never: everything is asked again, and the new answer replaces the old one.

    Attributes:
        trouble: sentence that says why nothing can be written to the file; None while it can.

    Raises:
        ConfigError: the file is not a readable cassette, or mode is ``replay`` and it does not exist.
    """

    def __init__(self, path: Path, mode: Mode = "auto") -> None:
        self.path = path
        self.trouble: str | None = None
        self._since = time.time() if mode == "record" else 0.0  # older rows do not count
        self._unwritten: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {}
        self._db: sqlite3.Connection | None = None
        self._lock = threading.RLock()  # event loops may run in threads
        if mode == "replay" and not path.exists():
            raise ConfigError(
                f"The cassette {path} does not exist. Give the path of a recorded one, or record it first."
            )
        try:
            self.get("")
        except DataError as error:
            raise ConfigError(
                f"{path} cannot be read as a cassette, and was not changed: {error.__cause__}. Name another file in "
                "partner.openai.cassette; it need not exist."
            ) from error

    def get(self, key: str) -> dict[str, Any] | None:
        """Returns the answer recorded under `key` by any process, or None. Raises DataError if the file cannot be read."""
        if not self.path.exists():
            return None
        try:
            with self._lock:
                query = "SELECT answer FROM answers WHERE key = ? AND recorded >= ?"
                row = self._open().execute(query, (key, self._since)).fetchone()
        except (OSError, sqlite3.Error) as error:
            raise DataError(f"Cannot read the cassette {self.path}: {error}. Make it readable and resume.") from error
        return _answer(row[0]) if row else None

    def keep(self, key: str, request: dict[str, Any], seed: int, answer: dict[str, Any]) -> dict[str, Any]:
        """Records an answer and returns the first one recorded under `key`, by this process or another.

        Raises:
            DataError: the disk refused it. The file is unchanged, and `flush` tries again.
        """
        self._unwritten.setdefault(key, (seed, request, answer))
        self.flush()
        return self.get(key) or answer

    def flush(self) -> None:
        """Writes the answers that the disk refused before. Raises DataError if it still does."""
        if not self._unwritten:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock, self._open() as db:
                db.execute("BEGIN IMMEDIATE")
                for key, (seed, request, answer) in self._unwritten.items():
                    if self.get(key) is None:
                        row = (key, seed, json.dumps(request), json.dumps(answer), time.time())
                        db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
        except (OSError, sqlite3.Error) as error:
            self.trouble = f"Cannot append to the cassette {self.path}: {error}. Make it writable and resume the run."
            raise DataError(self.trouble) from error
        self._unwritten.clear()
        self.trouble = None

    def _open(self) -> sqlite3.Connection:
        """Returns the connection, which may raise OSError or sqlite3.Error when it is made."""
        if self._db is None:
            uri = self.path.absolute().as_uri()
            if self.path.exists() and self.path.stat().st_size:
                # Opened read-only and immutable, a file of something else gets no companion files either.
                shared = self.path.with_name(f"{self.path.name}-wal").exists()
                with contextlib.closing(sqlite3.connect(f"{uri}?mode=ro&immutable={int(not shared)}", uri=True)) as db:
                    tables = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")]
                if tables not in ([], [TABLE]):
                    raise sqlite3.DatabaseError("it holds other tables")
            db = sqlite3.connect(uri, BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
            weakref.finalize(self, _close, db)
            with contextlib.suppress(sqlite3.OperationalError):  # read-only, or another process has set it
                db.execute("PRAGMA journal_mode = WAL")
            # With WAL, a crash of the machine loses the last transactions at most.
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
            self._db = db
        return self._db


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
