"""Sqlite file that several processes share.

    a transaction is in the file whole or not at all, whenever its process is killed
    one process at a time changes the file; another one waits, `BUSY_SECONDS` at most
    a file of something else is refused, untouched

On a file system without locks a folder next to the file is the lock, which a process killed in a transaction leaves behind.
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


class Store:
    """One table in one file. Every method raises OSError, with sqlite's words for `strerror`.

    Args:
        path: the file; made, with its folder, when something is written. None: in memory.
        columns: names of the table's columns, and their SQL types.
        local: True for processes of one machine alone: a crash of the whole machine loses the last transactions at most. Otherwise
            those of several may share it through a network file system, and such a crash may damage it.
    """

    def __init__(self, path: Path | None, table: str, columns: dict[str, str], local: bool) -> None:
        self.path, self.table, self.columns, self.local = path, table, columns, local
        self._db: sqlite3.Connection | None = None
        self._finalizer: Any = None
        self._lock = threading.RLock()  # event loops may run in threads

    @contextlib.contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Runs a transaction that excludes all others; within another one of this object, a part of it."""
        with self._lock, self._in_words():
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
        """Returns what a SELECT finds; nothing where there is no file."""
        with self._lock, self._in_words():
            if self.path is not None and not self.path.exists():
                return []
            return self._open().execute(query, values).fetchall()

    def _open(self) -> sqlite3.Connection:
        if self._db is not None and self.path is not None and not self.path.exists():
            self._finalizer()  # it was removed: what is written now goes into a new one
            self._db = None
        if self._db is None:
            try:
                self._db = self._connected("")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode not in NO_LOCKS:
                    raise
                self._db = self._connected("&vfs=unix-dotfile")
            self._finalizer = weakref.finalize(self, _close, self._db)
        return self._db

    def _connected(self, options: str) -> sqlite3.Connection:
        where = "file::memory:?" if self.path is None else f"{self.path.absolute().as_uri()}?"
        if self.path is not None and self.path.exists() and self.path.stat().st_size:
            # A connection that only reads changes nothing, and none to a file that nobody has open makes others next to it.
            shared = self.path.with_name(f"{self.path.name}-wal").exists()
            self._check(f"{where}mode=ro{options}{'' if shared else '&immutable=1'}")
        db = sqlite3.connect(f"{where}{options}", BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
        try:
            db.execute(f"PRAGMA synchronous = {'NORMAL' if self.local else 'OFF'}")
            columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
            db.execute(f"CREATE TABLE IF NOT EXISTS {self.table} ({columns})")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _check(self, where: str) -> None:
        """Raises OSError if the file holds something else."""
        with contextlib.closing(sqlite3.connect(where, BUSY_SECONDS, uri=True)) as db:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            columns = [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (self.table,))]
        if tables and (tables != [self.table] or columns != list(self.columns)):
            raise OSError(errno.EINVAL, f"it holds other tables ({', '.join(tables[:3])})", str(self.path))

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            why = "another process keeps it locked" if busy else str(error)
            raise OSError(errno.EAGAIN if busy else errno.EIO, why, str(self.path)) from error


def _close(db: sqlite3.Connection) -> None:
    """Leaves one file, which can be copied, and read where nothing can be written, unless others have it open."""
    with contextlib.closing(db), contextlib.suppress(sqlite3.Error):
        db.execute("PRAGMA busy_timeout = 0")
        db.execute("PRAGMA journal_mode = DELETE")
