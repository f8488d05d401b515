"""Cassette: every exchange with an endpoint, in a sqlite file, addressed by the request.

    one key <=> one answer, for as long as the cassette lives, however many processes record on it

With a cassette a reply depends on the request and the dialogue's seed alone, and a dialogue can be repeated offline.
The key is the SHA-256 of the canonical JSON of the request body and the seed. A row holds no header and no key to any service.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any, Literal

from slim_rl.errors import ConfigError, DataError
from slim_rl.jsonl import whole_characters
from slim_rl.partners.store import Store

Mode = Literal["auto", "record", "replay"]

# request and answer are JSON; recorded: seconds since 1970
COLUMNS = {"key": "TEXT PRIMARY KEY", "seed": "INTEGER", "request": "TEXT", "answer": "TEXT", "recorded": "REAL"}


def request_key(request: dict[str, Any], seed: int) -> str:
    """Returns the address of a request: hex SHA-256."""
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
        trouble: sentence that says why nothing more can be written to the file; None while it can.

    Raises:
        ConfigError: the file is no cassette or cannot be read, or mode is ``replay`` and it does not exist.
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
        self._store = Store(path, "answers", COLUMNS, local=True)
        try:
            len(self)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read as a cassette, and was not changed: {error.strerror}. Name another file in "
                "partner.openai.cassette; it need not exist."
            ) from error

    def __len__(self) -> int:
        return sum(number for (number,) in self._store.rows("SELECT count(*) FROM answers"))

    def get(self, key: str) -> dict[str, Any] | None:
        """Returns the answer kept under `key`, by this process or another, or None. Raises DataError if the file cannot be read."""
        try:
            found = self._store.rows("SELECT answer FROM answers WHERE key = ? AND recorded >= ?", key, self._since)
        except OSError as error:
            raise DataError(
                f"Cannot read the cassette {self.path}: {error.strerror}; make it readable and resume."
            ) from error
        return _answer(found[0][0]) if found else None

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
                    if self.get(key) is None:
                        row = (key, seed, json.dumps(request), json.dumps(answer), time.time())
                        db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
        except OSError as error:
            self.trouble = (
                f"Cannot append to the cassette {self.path}: {error.strerror or error}; make it writable again and resume "
                "the run."
            )
            raise DataError(self.trouble) from error
        self._unwritten.clear()
        self.trouble = None


def _answer(row: Any) -> dict[str, Any] | None:
    """Returns the answer of a row; None for a row whose answer is not one, which counts as not recorded."""
    try:
        answer = json.loads(row)
        names = [answer.get(name) for name in ("finish_reason", "model", "thought", "refusal")]
        known = all(isinstance(name, str | None) for name in [*names, *(answer.get("refused") or ())])
        return answer | {"text": whole_characters(answer["text"])} if known else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
