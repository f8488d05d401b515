"""Locks of folders, by filelock: one process at a time works in a folder; others get an error.

The kernel releases a lock when its process ends.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from slim_rl.errors import SlimError, SlimWarning
from slim_rl.files import disk_errors, write_atomically

_OWNER, _HOLDER = "owner ", "process "  # starts of the lines of a marker


@contextmanager
def held(
    marker: Path, where: str, use: tuple[str, str], owner: str = "", check: Callable[[], object] = bool
) -> Iterator[None]:
    """Locks the folder of `marker`, and writes the owner and this process to the marker.

    Args:
        where: noun phrase for the folder, for messages.
        use: subject of the message (such as "The run 'a'"), and what to do instead of waiting.
        owner: name of the owner for the marker; empty: the name that the marker has.
        check: function called under the lock, before anything is written.

    Raises:
        SlimError: another process holds the lock, or it cannot be written.
    """
    lock = _lock_of(marker)
    with disk_errors(where, marker.parent):
        marker.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    with _locked(marker, use):
        check()
        with disk_errors(where, marker.parent):
            named = f"{_OWNER}{owner or owner_of(marker)}\n".replace(f"{_OWNER}\n", "")
            write_atomically(marker, f"{named}{_HOLDER}{os.getpid()} on {platform.node()}\n")
        yield


def check_free(marker: Path, use: tuple[str, str]) -> None:
    """Raises SlimError if another process holds the lock of the marker's folder; changes nothing."""
    if _lock_of(marker).exists():
        with _locked(marker, use):
            pass


def owner_of(marker: Path) -> str:
    """Returns the owner's name in a marker; empty without one."""
    return _line(marker, _OWNER).removeprefix(_OWNER)


@contextmanager
def _locked(marker: Path, use: tuple[str, str]) -> Iterator[None]:
    what, otherwise = use
    lock = FileLock(_lock_of(marker), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        holder = _line(marker, _HOLDER) or "another process"
        raise SlimError(f"{what} is in use by {holder}; wait until that ends, or {otherwise}.") from error
    except (OSError, NotImplementedError) as error:  # some network file systems have no locks
        warnings.warn(
            f"{lock.lock_file} cannot be locked ({error}): start only one process per folder.",
            SlimWarning,
            stacklevel=4,
        )
    try:
        yield
    finally:
        lock.release()


def _lock_of(marker: Path) -> Path:
    return marker.with_name(f"{marker.name}.lock")


def _line(marker: Path, start: str) -> str:
    """Returns the line of a marker with this start; empty without one."""
    try:
        lines = marker.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(start)), "")
