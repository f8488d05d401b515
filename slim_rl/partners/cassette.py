"""A cassette: every exchange with an endpoint, as JSONL, addressed by what was asked.

    one key <=> one answer, for as long as the cassette lives

so that with a cassette a reply depends on the request and the dialogue's seed alone, and a dialogue can be had again offline.
The key is the SHA-256 of the canonical JSON of the request body and the seed. A line holds no header and no key to any service.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any, Literal

from slim_rl.errors import ConfigError

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
        mode: ``auto`` answers from the file where it can, ``replay`` only from it (it must exist), ``record`` not at all: it asks
            everything once more, and the new answer stands in place of the old one.

    Raises:
        ConfigError: the file cannot be read, or there is none to replay.
    """

    def __init__(self, path: Path, mode: Mode = "auto") -> None:
        self.path, self.mode = path, mode
        self._answers: dict[str, dict[str, Any]] = {}
        self._torn_tail = False
        if path.exists():
            self._read()
        elif mode == "replay":
            raise ConfigError(
                f"The cassette {path} does not exist; give the path of a recorded one, or record it first."
            )
        if mode == "record":
            self._answers = {}

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer kept under `key`, or None."""
        return self._answers.get(key)

    def keep(self, key: str, request: dict[str, Any], seed: int, answer: dict[str, Any]) -> dict[str, Any]:
        """Keeps an answer and returns the one that stands: of two calls that asked the same at once, the first's."""
        if key in self._answers:
            return self._answers[key]
        self._answers[key] = answer
        line = json.dumps({"key": key, "seed": seed, "request": request, "answer": answer}, ensure_ascii=True) + "\n"
        if self._torn_tail:  # an interrupted writer left half a line: keep it from swallowing this one
            line, self._torn_tail = "\n" + line, False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)
        return answer

    def _read(self) -> None:
        try:
            lines = self.path.read_bytes().split(b"\n")
        except OSError as error:
            raise ConfigError(f"Cannot read the cassette {self.path}: {error.strerror}.") from error
        self._torn_tail = bool(lines[-1])
        unreadable = 0
        for line in filter(None, lines):
            try:
                entry = json.loads(line)
                self._answers[entry["key"]] = entry["answer"]
            except (ValueError, KeyError, TypeError):
                unreadable += 1
        if unreadable:
            log.warning(
                "The cassette %s has %d torn line(s); what they held counts as not recorded.", self.path, unreadable
            )
