"""The thread that opens the SQLite file, and does what may take its time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from adapter.errors import StoreUnavailable
from adapter.state import sql
from adapter.state.lock_file import make_private
from adapter.state.sql import StoreOperation, outcomes, unavailable

LOCK_TIMEOUT = 5.0
"""Seconds to wait for another process that writes."""

MERGED = 4 << 20
"""Bytes of log after which it is moved into the file: SQLite's own default, a thousand pages.

What an operation adds can only be guessed: it depends on the row that goes, or is replaced. So the size of the log is
looked up.
"""


class StoreBatch(NamedTuple):
    """Operations for the thread. ``merges``: the log is moved into the file first.

    The write behind that begins the log anew and syncs it, so the thread does that too.
    """

    operations: list[StoreOperation]
    merges: bool


class SqliteThread(threading.Thread):
    """The thread that opens the connection and does what is not brief, until it gets None; then it closes."""

    connection: sqlite3.Connection
    log: str
    """The path of the write-ahead log."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Callable[[], sqlite3.Connection],
        settle: Callable[[SqliteThread, list[StoreOperation], list[Any]], None],
    ) -> None:
        # A daemon, because a store that nobody closed must not keep the process from ending: what was
        # promised is on disk already.
        super().__init__(name="state-sqlite", daemon=True)
        self.loop = loop
        self.batches: SimpleQueue[StoreBatch | None] = SimpleQueue()
        self.connected: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()
        self._connect = connect
        self._settle = settle

    def run(self) -> None:
        failure: StoreUnavailable | None = None
        try:
            self.connection = self._connect()
            # The path as SQLite has found it, by links and by the directory of now.
            self.log = f"{self.connection.execute('PRAGMA database_list').fetchone()[2]}-wal"
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            failure = error if isinstance(error, StoreUnavailable) else unavailable(error)
            self._tell(_finish, self.connected, failure)
            return
        self._tell(_finish, self.connected, None)
        while (batch := self.batches.get()) is not None:
            self._tell(self._settle, self, batch.operations, self._outcomes(batch))
        try:
            self.connection.close()
        except sqlite3.Error as error:
            failure = unavailable(error)
        self._tell(_finish, self.finished, failure)

    def _outcomes(self, batch: StoreBatch) -> list[Any]:
        """Do a batch with the patience that the loop does not have."""
        _wait_for_locks(self.connection, LOCK_TIMEOUT)
        if batch.merges:
            # What cannot be moved now is moved later, and is as durable in the log.
            with contextlib.suppress(sqlite3.Error):
                self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        done = outcomes(self.connection, batch.operations)
        _wait_for_locks(self.connection, 0.0)
        return done

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        # A loop that has gone away without closing the store has nobody left to tell.
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(callback, *arguments)


def _finish(future: asyncio.Future[None], failure: Exception | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)


def _wait_for_locks(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}").fetchall()


def connect(path: Path, *, wal: bool) -> sqlite3.Connection:
    make_private(path.parent)
    # SQLite would make the file with the process's umask; its log files take after it. Only a new one is opened
    # here: closing a descriptor drops every POSIX lock this process has on its file.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # Two threads use it, one at a time.
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        sql.prepare(connection, wal=wal, patience=LOCK_TIMEOUT)
        if wal:
            # It would be moved into the file, and the disk synced, in the middle of any commit.
            connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
            # A log that begins anew keeps its size but for this, and then its size would not tell what is in it.
            connection.execute(f"PRAGMA journal_size_limit = {MERGED}").fetchall()
        _wait_for_locks(connection, 0.0)
    except BaseException:
        connection.close()
        raise
    return connection
