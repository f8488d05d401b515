"""Atomic files and folders.

Invariants:
    An unfinished file has a temporary name next to its final one: .NAME.HOST.PID.tmp
    Only leftovers of ended processes of this host are removed, by the next write to the same place or by `sweep`.
"""

import codecs
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from slim_rl.errors import DataError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path that replaces `path` when the block succeeds, and is removed otherwise.

    It makes the folder if needed. The block writes a file, or makes a folder.

    Raises:
        DataError: `path` is a device or a pipe, which cannot be replaced.
    """
    of_process = path.is_symlink() and path.readlink().is_relative_to("/proc")  # as /dev/stdout, whatever that is now
    if of_process or (path.exists() and not path.is_file() and not path.is_dir()):
        raise DataError(f"{path} is a device or a pipe, not a file that can be replaced; name a file.")
    temporary = path.absolute().parent / f".{path.name}.{host_name()}.{os.getpid()}.tmp"
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path)
    remove(temporary)  # a container's processes have the same numbers at every start
    try:
        yield temporary
        former = temporary.with_suffix(f".{os.getpid()}.tmp")
        if temporary.is_dir() and path.exists():  # it is removed when the new one is in its place
            path.replace(former)
        temporary.replace(path)
        remove(former)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # a full disk names no file; users do not know the temporary one
            error.filename = str(path)
        raise
    finally:
        remove(temporary)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yields an empty temporary folder that replaces `path` when the block succeeds, as `replacing` does for files."""
    with replacing(path.resolve()) as temporary:
        temporary.mkdir()
        yield temporary


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes `content`, a string as UTF-8, to `path` (see `replacing`)."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def remove(path: Path) -> None:
    """Removes a file, a link, or a folder with all that is in it; nothing if it is missing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises DataError if the file cannot be read or holds anything else."""
    try:
        value = orjson.loads(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON ({error}). Restore it from a copy.") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} must be a JSON object, but is {type(value).__name__}. Restore it from a copy.")
    return value


def sweep(path: Path) -> None:
    """Removes what ended processes of this host left next to `path` while they wrote it."""
    for leftover in path.parent.glob(f".{path.name}.{host_name()}.*.tmp"):
        number = leftover.name.split(".")[-2]
        if number.isdecimal() and not alive(int(number)):
            remove(leftover)


def alive(pid: int) -> bool:
    """Returns True if this host has a process of this number, of any user."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


@contextmanager
def disk_errors(what: str, path: Path, hint: str = "make room, or name another folder") -> Iterator[None]:
    """Turns a disk's errors while `what` is written to `path` into a DataError.

    torch and safetensors report a full disk by exceptions of their own, recognised by name so that this module imports neither.
    """
    try:
        yield
    except Exception as error:
        of_torch = isinstance(error, RuntimeError) and re.search("PytorchStreamWriter|inline_container", str(error))
        if not (isinstance(error, OSError) or type(error).__name__ == "SafetensorError" or of_torch):
            raise
        reason = getattr(error, "strerror", None) or str(error).strip().split("\n")[0]
        raise DataError(f"Cannot write the {what} {path}: {reason}; {hint}.") from error


def host_name() -> str:
    """Returns this machine's name for the names of temporary files."""
    return re.sub(r"[^\w-]", "-", platform.node()) or "localhost"
