"""A sqlite file that several processes share.

    a transaction is in the file whole or not at all, whenever its process is killed
    one process at a time changes the file; another one waits, `BUSY_SECONDS` at most

On a file system without locks a folder beside the file is the lock, which a process killed in a transaction leaves behind.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BUSY_SECONDS = 5.0  # what is done in a transaction takes a thousandth of that
NO_LOCKS = (sqlite3.SQLITE_IOERR_RDLOCK, sqlite3.SQLITE_IOERR_LOCK)  # on a file system that has none
SIGNATURE = b"SQLite format 3\0"


class Store:
    """Every method raises OSError, with sqlite's words for `strerror`.

    Args:
        path: the file; made, with its folder, when something is written. None: in memory.
        tables: the SQL that makes the tables where they are missing.
        local: for processes of one machine alone: a crash of the whole machine loses the last transactions at most. Otherwise
            those of several may share it through a network file system, and such a crash may damage it.
    """

    def __init__(self, path: Path | None, tables: str, local: bool) -> None:
        self.path, self.tables, self.local = path, tables, local
        self._db: sqlite3.Connection | None = None
        self._lock = threading.RLock()  # event loops may run in threads

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other one runs beside; within another one of this object, a part of it."""
        with self._lock, _in_words(self.path):
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            db = self._open()
            if db.in_transaction:
                yield db
                return
            if self.local:
                with contextlib.suppress(sqlite3.OperationalError):  # others are at work: they have done it, or will
                    db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            with db:
                yield db

    def rows(self, query: str, *values: Any) -> list[Any]:
        """What a SELECT finds; nothing where there is no file."""
        with self._lock, _in_words(self.path):
            if self.path is not None and not self.path.exists():
                return []
            return self._open().execute(query, values).fetchall()

    def close(self) -> None:
        if self._db is not None:
            self._finalizer()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self.path is not None and not self.path.exists():
            self.close()  # it was removed: what is written now goes into a new one
        if self._db is None:
            try:
                self._db = self._connected("")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode not in NO_LOCKS:
                    raise
                self._db = self._connected("?vfs=unix-dotfile")
            self._finalizer = weakref.finalize(self, _close, self._db)
        return self._db

    def _connected(self, options: str) -> sqlite3.Connection:
        where = "file::memory:" if self.path is None else f"{self.path.absolute().as_uri()}{options}"
        db = sqlite3.connect(where, BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
        try:
            db.execute(f"PRAGMA synchronous = {'NORMAL' if self.local else 'OFF'}")
            db.execute(self.tables)
        except sqlite3.Error:
            db.close()
            raise
        return db


def _close(db: sqlite3.Connection) -> None:
    """Leaves one file, which can be copied, and read where nothing can be written, unless others have it open."""
    with contextlib.closing(db), contextlib.suppress(sqlite3.Error):
        db.execute("PRAGMA busy_timeout = 0")
        db.execute("PRAGMA journal_mode = DELETE")


@contextlib.contextmanager
def _in_words(path: Path | None) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        why = "another process keeps it locked" if busy else str(error)
        raise OSError(errno.EAGAIN if busy else errno.EIO, why, str(path)) from error
