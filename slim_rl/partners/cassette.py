"""A cassette: every exchange with an endpoint, as JSONL, addressed by what was asked.

    one key <=> one answer, for as long as the cassette lives, however many processes record on it

so that with a cassette a reply depends on the request and the dialogue's seed alone, and a dialogue can be repeated offline.
The key is the SHA-256 of the canonical JSON of the request body and the seed. A line holds no header and no key to any service.
Whoever appends holds a lock on the file, and first reads what others have appended.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any, BinaryIO, Literal

from slim_rl.errors import ConfigError, DataError
from slim_rl.jsonl import whole_characters
from slim_rl.partners.locks import locked

log = logging.getLogger("slim_rl.partners")

Mode = Literal["auto", "record", "replay"]


def request_key(request: dict[str, Any], seed: int) -> str:
    """The address of a request: hex SHA-256."""
    canonical = json.dumps(
        {"request": request, "seed": seed}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


class Cassette:
    """Answers by key, in memory; new ones are appended to `path` as whole lines.

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
        self._answers: dict[str, dict[str, Any]] = {}
        self._unwritten: dict[str, tuple[bytes, dict[str, Any]]] = {}
        self._read_to = 0  # bytes
        if not path.exists() and mode == "replay":
            raise ConfigError(
                f"The cassette {path} does not exist; give the path of a recorded one, or record it first."
            )
        try:
            self._look()
        except OSError as error:
            raise ConfigError(f"Cannot read the cassette {path}: {error.strerror}.") from error
        if mode == "record":
            self._answers = {}

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer kept under `key`, by this process or another, or None. Raises DataError if the file cannot be read."""
        if key not in self._answers:
            try:
                self._look()
            except OSError as error:
                raise DataError(f"Cannot read the cassette {self.path}: {error.strerror}.") from error
        return self._answers.get(key)

    def keep(self, key: str, request: dict[str, Any], seed: int, answer: dict[str, Any]) -> dict[str, Any]:
        """Keeps an answer and returns the one that stands: of calls that asked the same, in this process or another, the first's.

        Raises:
            DataError: the disk would not take it. Nothing of it is left in the file, and `flush` tries again.
        """
        if key not in self._answers:
            entry = {"key": key, "seed": seed, "request": request, "answer": answer}
            self._unwritten[key] = (json.dumps(entry, ensure_ascii=True).encode() + b"\n", answer)
            self.flush()
        return self._answers[key]

    def flush(self) -> None:
        """Writes what the disk did not take before. Raises DataError if it still does not."""
        if not self._unwritten:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b", buffering=0) as file, locked(file, fcntl.LOCK_EX):
                self._read(file)
                for key, (line, answer) in list(self._unwritten.items()):
                    if key not in self._answers:
                        self._read_to = _append(file, line)
                        self._answers[key] = answer
                    del self._unwritten[key]
        except OSError as error:
            self.trouble = (
                f"Cannot append to the cassette {self.path}: {error.strerror or error}; make it writable again and resume "
                "the run."
            )
            raise DataError(self.trouble) from error
        self.trouble = None

    def _look(self) -> None:
        """Reads what others have appended."""
        with contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_size != self._read_to:
                with self.path.open("rb") as file, locked(file, fcntl.LOCK_SH):
                    self._read(file)

    def _read(self, file: BinaryIO) -> None:
        """Reads on from where reading ended. The file is locked, so that half a line is a dead writer's."""
        size = os.fstat(file.fileno()).st_size
        first = self._read_to == 0
        start = self._read_to if self._read_to <= size else 0  # a shorter file is another one
        unreadable = 0
        with open(file.fileno(), "rb", closefd=False) as lines:
            lines.seek(start)
            for line in lines:
                if not line.strip():
                    continue
                entry = _entry(line)
                if entry is None:
                    unreadable += 1
                elif first:
                    self._answers[entry[0]] = entry[1]  # of several recordings the last one stands
                else:
                    self._answers.setdefault(*entry)
        self._read_to = size
        if unreadable:
            log.warning(
                "The cassette %s has %d torn line(s); what they held counts as not recorded.", self.path, unreadable
            )


def _entry(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """Key and answer of a line; None for a line that holds none."""
    try:
        entry = json.loads(line)
        key, answer = entry["key"], entry["answer"]
        text = answer["text"]
        names = [answer.get("finish_reason"), answer.get("model"), *answer.get("refused", [])]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    if not (isinstance(key, str) and isinstance(text, str) and all(isinstance(name, str | None) for name in names)):
        return None
    return key, answer | {"text": whole_characters(text)}


def _append(file: BinaryIO, line: bytes) -> int:
    """Appends a line to a locked file and returns its new size. On a failure nothing of the line is left."""
    number, end = file.fileno(), os.fstat(file.fileno()).st_size
    # An interrupted writer may have left half a line: it must not swallow this one.
    rest = line if not end or os.pread(number, 1, end - 1) == b"\n" else b"\n" + line
    try:
        while rest:
            rest = rest[os.write(number, rest) :]
    except OSError:
        os.ftruncate(number, end)
        raise
    return os.fstat(number).st_size
