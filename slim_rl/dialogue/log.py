"""The dialogue log: one JSON line a dialogue, annotated, appended whole. A line that ends in a newline was written entirely.

One process writes a file. A line goes out in a single append, so a crash can tear the last line only; opening the log again cuts
a torn line off. A run that resumes at step k plays the steps from k on again: open the log with `from_step=k`, and their earlier
lines go first. Where that is not possible the reader does it: of two lines of one dialogue the later one counts.

The bytes are UTF-8 whatever was said: half a surrogate pair, which UTF-8 cannot hold, is written as U+FFFD.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from slim_rl.dialogue.record import FORMAT, Dialogue
from slim_rl.errors import DataError
from slim_rl.files import replacing
from slim_rl.games.matching.questions.annotate import annotate


class DialogueLog:
    """An open log file. Use it in a `with` statement, or `close` it.

    Args:
        path: the file; it and its folders are made if missing.
        from_step: drop the lines of training steps from this one on (a run resumes there). Lines of other phases stay.
        tokens: write token ids, masks and logprobs too.

    Raises:
        DataError: the file cannot be written, or `from_step` is given and a line before its last cannot be read.
    """

    def __init__(self, path: str | Path, from_step: int | None = None, tokens: bool = False) -> None:
        self.path = Path(path)
        self.tokens = tokens
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _cut_torn(self.path)
            if from_step is not None and self.path.exists():
                _drop(self.path, lambda line: line.get("phase") == "train" and (line.get("step") or 0) >= from_step)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise DataError(f"Cannot write the dialogue log {self.path}: {error.strerror}.") from error

    def append(self, dialogue: Dialogue) -> None:
        """Annotates the dialogue and writes its line.

        Raises:
            DataError: the disk would not take the line; nothing of it is left in the file.
        """
        annotate(dialogue)
        line = encode(dialogue.to_dict(tokens=self.tokens)) + b"\n"
        end = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(0, "the disk is full")
        except OSError as error:
            os.ftruncate(self._file, end)
            raise DataError(
                f"Cannot append to the dialogue log {self.path}: {error.strerror}; make room and resume."
            ) from error

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> DialogueLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def encode(data: dict[str, Any]) -> bytes:
    """One line of JSON, without its newline: valid UTF-8 for any text."""
    try:
        return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # half a surrogate pair, most likely; anything else fails again
        return orjson.dumps(_mended(data), option=orjson.OPT_SERIALIZE_NUMPY)


def read_log(path: str | Path) -> Iterator[Dialogue]:
    """The dialogues of a log file, or of every *.jsonl in a folder and below, in order; of repeated ones the last.

    Dialogues are one if run, arm, phase, step and id are. A torn last line is left out, with a warning.

    Raises:
        DataError: there is no such path, a folder has no *.jsonl, or a line (named by file and number) is not a dialogue's.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"There is no dialogue log {path}; give a *.jsonl file or the folder that holds it.")
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"There is no *.jsonl in {path}; give the folder that a run wrote its dialogue log to.")
    last: dict[tuple[Any, ...], tuple[int, int]] = {}
    for number, file in enumerate(files):
        for at, data in _lines(file):
            last[_key(data)] = (number, at)
    for number, file in enumerate(files):
        for at, data in _lines(file, warn=False):
            if last[_key(data)] == (number, at):
                try:
                    yield Dialogue.from_dict(data)
                except (AttributeError, TypeError, ValueError) as error:
                    raise DataError(f"{file}, line {at}: not a dialogue's line ({error}).") from error


def _key(data: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(data.get(name) for name in ("run", "arm", "phase", "step", "id"))


def _lines(file: Path, warn: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a log with their numbers, from 1."""
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                data = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                if not line.endswith(b"\n"):
                    if warn:
                        warnings.warn(
                            f"{file}, line {number}: left out, torn while it was being written.", stacklevel=3
                        )
                    return
                raise DataError(
                    f"{file}, line {number}: not JSON ({error}); remove the line, or restore the file."
                ) from error
            if not isinstance(data, dict) or not {"id", "turns", "game_id"} <= data.keys():
                raise DataError(
                    f"{file}, line {number}: not a dialogue's line; keep other *.jsonl files out of the log folder."
                )
            if data.get("format", FORMAT) > FORMAT:
                raise DataError(
                    f"{file}, line {number}: of format {data['format']}, newer than {FORMAT}; update slim_rl."
                )
            yield number, data


def _cut_torn(path: Path) -> None:
    """Takes a last line without its newline off the file."""
    if not path.exists() or not path.stat().st_size:
        return
    with path.open("r+b") as stream:
        size = end = stream.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - 65536)
            stream.seek(start)
            newline = stream.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            warnings.warn(f"{path}: its last line, torn while it was being written, is taken off.", stacklevel=4)
            stream.truncate(end)


def _drop(path: Path, unwanted: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrites a log without the unwanted lines; a crash leaves the old file or the new one."""
    with replacing(path) as temporary, path.open("rb") as old, temporary.open("wb") as new:
        for number, line in enumerate(old, 1):
            try:
                if line.strip() and unwanted(orjson.loads(line)):
                    continue
            except orjson.JSONDecodeError as error:
                raise DataError(
                    f"{path}, line {number}: not JSON ({error}); remove the line, or restore the file."
                ) from error
            new.write(line)


def _mended(data: Any) -> Any:
    """The data with every half surrogate pair replaced, and whole ones joined."""
    if isinstance(data, str):
        return data.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(data, dict):
        return {_mended(key): _mended(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_mended(item) for item in data]
    return data
