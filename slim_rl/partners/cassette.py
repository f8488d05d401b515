"""A cassette: every exchange with an endpoint, in a sqlite file, addressed by what was asked.

    one key <=> one answer, for as long as the cassette lives, however many processes record on it

so that with a cassette a reply depends on the request and the dialogue's seed alone, and a dialogue can be repeated offline.
The key is the SHA-256 of the canonical JSON of the request body and the seed. A row holds no header and no key to any service.
A cassette of JSON lines, as older versions wrote them, is made a sqlite file of the same name; replayed, it stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from slim_rl.errors import ConfigError, DataError
from slim_rl.files import replacing
from slim_rl.jsonl import whole_characters
from slim_rl.partners.store import SIGNATURE, Store

log = logging.getLogger("slim_rl.partners")

Mode = Literal["auto", "record", "replay"]

TABLE = (
    "CREATE TABLE IF NOT EXISTS answers "
    "(key TEXT PRIMARY KEY, seed INTEGER, request TEXT, answer TEXT, recorded REAL)"  # JSON twice; seconds since 1970
)


def request_key(request: dict[str, Any], seed: int) -> str:
    """The address of a request: hex SHA-256."""
    canonical = json.dumps(
        {"request": request, "seed": seed}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


class Cassette:
    """Answers by key.

    Args:
        path: the file; made when something is recorded.
        mode: `partner.openai.cassette_mode`. ``auto`` answers from the file where it can; ``replay`` only from it (it must exist);
            ``record`` never: everything is asked again, and the new answer replaces the old one.

    Attributes:
        trouble: why nothing more can be written to the file, as a sentence; None while it can.

    Raises:
        ConfigError: the file cannot be read, or mode is ``replay`` and it does not exist.
    """

    def __init__(self, path: Path, mode: Mode = "auto") -> None:
        self.path, self.mode = path, mode
        self.trouble: str | None = None
        self._since = time.time() if mode == "record" else 0.0  # what is older does not count
        self._unwritten: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {}
        if not path.exists() and mode == "replay":
            raise ConfigError(
                f"The cassette {path} does not exist; give the path of a recorded one, or record it first."
            )
        try:
            self._store = Store(path, TABLE, local=True)
            if _is_lines(path):
                self._store = _lines_read(path) if mode == "replay" else _lines_replaced(path)
            len(self)
        except OSError as error:
            raise ConfigError(f"Cannot read the cassette {path}: {error.strerror}.") from error

    def __len__(self) -> int:
        return sum(number for (number,) in self._store.rows("SELECT count(*) FROM answers"))

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer kept under `key`, by this process or another, or None. Raises DataError if the file cannot be read."""
        try:
            found = self._store.rows("SELECT answer FROM answers WHERE key = ? AND recorded >= ?", key, self._since)
        except OSError as error:
            raise DataError(f"Cannot read the cassette {self.path}: {error.strerror}.") from error
        return json.loads(found[0][0]) if found else None

    def keep(self, key: str, request: dict[str, Any], seed: int, answer: dict[str, Any]) -> dict[str, Any]:
        """Keeps an answer and returns the one that stands: of calls that asked the same, in this process or another, the first's.

        Raises:
            DataError: the disk would not take it. Nothing of it is left in the file, and `flush` tries again.
        """
        self._unwritten.setdefault(key, (seed, request, answer))
        self.flush()
        return self.get(key) or answer

    def flush(self) -> None:
        """Writes what the disk did not take before. Raises DataError if it still does not."""
        if not self._unwritten:
            return
        try:
            with self._store.changing() as db:
                for key, (seed, request, answer) in self._unwritten.items():
                    _put(db, key, seed, request, answer, unless_since=self._since)
        except OSError as error:
            self.trouble = (
                f"Cannot append to the cassette {self.path}: {error.strerror or error}; make it writable again and resume "
                "the run."
            )
            raise DataError(self.trouble) from error
        self._unwritten.clear()
        self.trouble = None


def _put(db: sqlite3.Connection, key: str, seed: Any, request: Any, answer: Any, unless_since: float) -> None:
    """Keeps an answer, unless there is one that was recorded since."""
    db.execute(
        "INSERT INTO answers VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
        "seed = excluded.seed, request = excluded.request, answer = excluded.answer, recorded = excluded.recorded "
        "WHERE recorded < ?",
        (key, seed, json.dumps(request), json.dumps(answer), time.time(), unless_since),
    )


# --- JSON lines


def _is_lines(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("rb") as file:
        return file.read(len(SIGNATURE)) not in (SIGNATURE, b"")


def _lines_replaced(path: Path) -> Store:
    """Makes a cassette of JSON lines a sqlite file of the same name. Raises ConfigError if it cannot be written, or is no cassette."""
    try:
        with FileLock(f"{path}.lock"):
            if _is_lines(path):  # another process may have been faster
                _check_lines(path)
                with replacing(path) as temporary:
                    _lines_read(path, temporary).close()
    except OSError as error:
        raise ConfigError(
            f"Cannot make the cassette {path} of JSON lines a sqlite file: {error.strerror}; make its folder writable, or "
            "only replay it (partner.openai.cassette_mode=replay)."
        ) from error
    return Store(path, TABLE, local=True)


def _check_lines(path: Path) -> None:
    """Raises ConfigError unless every line is one of a cassette, but for a last one that may be torn."""
    with path.open("rb") as lines:
        known = [_entry(line) is not None for line in filter(bytes.strip, lines)]
    if not any(known):
        raise ConfigError(
            f"{path} is not a cassette, and was not changed: name another file in partner.openai.cassette; it need not exist."
        )
    if not all(known[:-1]):
        raise ConfigError(
            f"Line {known.index(False) + 1} of {path} is not a recorded answer: remove it if this is a cassette, or "
            "name another file in partner.openai.cassette; it need not exist."
        )


def _lines_read(path: Path, into: Path | None = None) -> Store:
    """The answers of a cassette of JSON lines, in memory or another file. Of several recordings the last one stands."""
    store, unreadable = Store(into, TABLE, local=True), 0
    with path.open("rb") as lines, store.changing() as db:
        for line in filter(bytes.strip, lines):
            entry = _entry(line)
            if entry is None:
                unreadable += 1
            else:
                _put(db, *entry, unless_since=float("inf"))
    if unreadable:
        log.warning("The cassette %s has %d torn line(s); what they held counts as not recorded.", path, unreadable)
    return store


def _entry(line: bytes) -> tuple[str, int, dict[str, Any], dict[str, Any]] | None:
    """Key, seed, request and answer of a line; None for a line that holds none."""
    try:
        entry = json.loads(line)
        key, answer = entry["key"], entry["answer"]
        text = answer["text"]
        names = [answer.get("finish_reason"), answer.get("model"), *answer.get("refused", [])]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if not (isinstance(key, str) and isinstance(text, str) and all(isinstance(name, str | None) for name in names)):
        return None
    return key, entry.get("seed"), entry.get("request"), answer | {"text": whole_characters(text)}
