"""Locks on files that the processes of a machine share.

    a lock is the kernel's: it ends with the process that holds it, however that ends

A file system without locks is used without them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import time
from collections.abc import Iterator
from typing import IO, Any

LOCK_SECONDS = 5.0  # what is done under a lock takes a thousandth of that


@contextlib.contextmanager
def locked(file: IO[Any], how: int) -> Iterator[None]:
    """A lock on a file, released at the end. A file system without locks is used without them; OSError where another process does
    not give its lock back in time.
    """
    give_up = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file.fileno(), how | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise OSError(errno.EAGAIN, "another process keeps it locked") from None
            time.sleep(0.001)
        except OSError:
            break
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(file.fileno(), fcntl.LOCK_UN)


def is_held(file: IO[Any]) -> bool:
    """Whether a process holds a lock on the file that keeps all others out."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(file.fileno(), fcntl.LOCK_UN)
    return False
