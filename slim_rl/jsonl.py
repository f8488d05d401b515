"""JSON lines: reading, atomic writing (`write`) and appending (`Appender`).

Invariants:
    A line that ends in a newline is complete; only the last line of a file that is appended to can be incomplete.
    The bytes are UTF-8 for any text: half a surrogate pair, which UTF-8 cannot hold, is written as U+FFFD.
    Lines end in \\n and in nothing else, for any characters in a message.
    Errors of `read` name file and line.
"""

import codecs
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, Literal, Self

import orjson

from slim_rl.errors import DataError, SlimWarning
from slim_rl.files import replacing


def encode(data: Any) -> bytes:
    """Returns one line of JSON without its newline, valid UTF-8 for any text."""
    try:
        return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # half a surrogate pair, or a key that is a number; anything else fails again
        return orjson.dumps(json.loads(whole_characters(json.dumps(data, ensure_ascii=False))))  # NaN becomes null


@dataclass(frozen=True, slots=True)
class Line:
    """Line of a file.

    Attributes:
        number: number among the lines that are read, from 1.
        offset: start in bytes.
        end: start of the next line in bytes.
        data: its JSON value; None if it is not JSON.
        error: place at which it stops being JSON, as the end of a sentence; None if it is JSON.
        torn: whether it is an incomplete last line.
    """

    number: int
    offset: int
    end: int
    data: Any
    error: str | None = None
    torn: bool = False


def without_bom(content: bytes) -> bytes:
    """Returns a file's first bytes without the byte order mark that some editors write before UTF-8."""
    return content.removeprefix(codecs.BOM_UTF8)


def scan(path: Path, offset: int = 0, loads: Callable[[bytes], Any] = orjson.loads) -> Iterator[Line]:
    """Yields the lines of a file from `offset` on, without empty ones. Raises OSError if the file cannot be read.

    Args:
        loads: function that returns the value of a line, or raises ValueError.
    """
    with path.open("rb") as stream:
        stream.seek(offset)
        for number, line in enumerate(stream, 1):
            start, offset = offset, offset + len(line)
            if start == 0:
                line = without_bom(line)
                start = offset - len(line)
            if not line.strip():
                continue
            try:
                yield Line(number, start, offset, loads(line))
            except (ValueError, RecursionError) as error:
                where = f" at character {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
                yield Line(number, start, offset, None, where, torn=not line.endswith(b"\n"))


def read(
    path: str | Path,
    what: str = "file",
    hint: str = "give the path of a *.jsonl file",
    torn: Literal["refuse", "warn", "skip"] = "refuse",
    loads: Callable[[bytes], Any] = orjson.loads,
) -> Iterator[tuple[int, Any]]:
    """Yields numbers and data of the lines.

    Args:
        what: noun for the file in messages.
        hint: fix for a file that cannot be read, in messages.
        torn: treatment of an incomplete last line: an error, or left out with or without a warning.
        loads: as of `scan`.

    Raises:
        DataError: the file cannot be read, or a line (named by file and number) is not JSON.
    """
    path = Path(path)
    try:
        for line in scan(path, loads=loads):
            if line.torn and torn != "refuse":
                if torn == "warn":
                    warnings.warn(
                        f"{path}, line {line.number}: left out, since it is incomplete.", SlimWarning, stacklevel=3
                    )
            elif line.error is not None:
                raise _not_json(path, line)
            else:
                yield line.number, line.data
    except OSError as error:
        raise DataError(f"Cannot read the {what} {path}: {error.strerror}; {hint}.") from error


def _not_json(path: Path, line: Line) -> DataError:
    if kind := _kind(path, line):
        return DataError(f"{path} is {kind}, not JSON Lines (one JSON object per line, in UTF-8); convert it.")
    return DataError(f"{path}, line {line.number}: not valid JSON{line.error}; correct the line, or restore the file.")


_KINDS = {
    rb"PAR1": "a Parquet file",
    rb"ARROW1": "a Feather file",
    rb"\x1f\x8b": "a gzip archive",
    rb"PK\x03\x04": "a zip archive or spreadsheet",
    rb"\xff\xfe|\xfe\xff|.?\x00": "text in UTF-16, or no text",
    rb"(?s)[^{].*[\x00-\x08]": "a binary file",
    rb"\s*\[": "one JSON array",
    rb"\s*\{\s*\n": "one JSON object of several lines",
    rb"[^\s{][^\n]*[,;\t]": "a table with separators",
    rb"\s*[^\s{]": "text of another form",
}


def _kind(path: Path, line: Line) -> str:
    """Returns the kind of a file with a line that is not JSON; empty if the line alone is faulty."""
    other = "text in another encoding than UTF-8"
    with path.open("rb") as stream:
        head = stream.read(1000)
        stream.seek(line.offset)
        with suppress(UnicodeDecodeError):
            stream.readline().decode()
            other = ""
    return next((kind for form, kind in _KINDS.items() if re.match(form, without_bom(head))), other)


def write(path: str | Path, rows: Iterable[Any]) -> int:
    """Writes a file atomically; returns its number of lines. Raises DataError if it cannot be written."""
    number = 0
    try:
        with replacing(Path(path)) as temporary, temporary.open("wb") as file:
            for row in rows:
                file.write(encode(row) + b"\n")
                number += 1
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}; choose another output.") from error
    except TypeError as error:
        raise DataError(f"Cannot write {path}: {error}; give dicts, lists, texts and numbers alone.") from error
    return number


def keep_lines(path: Path, wanted: Callable[[Any], bool]) -> None:
    """Rewrites a file atomically with its wanted lines, byte for byte, and without an incomplete last line.

    Raises:
        DataError: a line before the last is not JSON.
    """
    with replacing(path) as temporary, path.open("rb") as old, temporary.open("wb") as new:
        for line in scan(path):
            if line.error is not None and not line.torn:
                raise _not_json(path, line)
            if not line.torn and wanted(line.data):
                old.seek(line.offset)
                new.write(old.readline())


class Appender:
    """Open file for appending complete lines, by one process at a time. Opening it repairs the last line (`repair_last_line`).

    Args:
        what: noun for the file in messages.

    Raises:
        DataError: the file cannot be written.
    """

    def __init__(self, path: str | Path, what: str = "file") -> None:
        self.path, self.what = Path(path), what
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            repair_last_line(self.path)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise DataError(f"Cannot write the {what} {self.path}: {error.strerror}.") from error

    def append(self, data: Any) -> None:
        """Writes one line in one call, so that a crash can only cut the last line.

        Raises:
            DataError: the line cannot be written; the file is then unchanged.
        """
        line = encode(data) + b"\n"
        end = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(0, "the disk is full")
        except OSError as error:
            os.ftruncate(self._file, end)
            raise DataError(
                f"Cannot append to the {self.what} {self.path}: {error.strerror}; make room and resume."
            ) from error

    def close(self) -> None:
        """Closes the file; again without effect."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def repair_last_line(path: Path) -> None:
    """Removes an incomplete last line; a complete one without a newline gets it."""
    size = path.stat().st_size if path.exists() else 0
    if not size:
        return
    with path.open("r+b") as stream:
        with mmap(stream.fileno(), 0) as content:
            end = content.rfind(b"\n") + 1
        last = next(scan(path, end), None)
        if last is not None and last.torn:
            warnings.warn(f"{path}: its incomplete last line is removed.", SlimWarning, stacklevel=4)
            stream.truncate(end)
        elif last is not None:
            stream.seek(size)
            stream.write(b"\n")


def whole_characters(text: str) -> str:
    """Returns `text` without half surrogate pairs: neighbouring halves are joined, others become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
