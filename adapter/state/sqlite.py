"""The state store in one SQLite file: one connection, and as few transactions as the work allows.

Operations that one turn of the event loop asks for go together: one transaction, however many they are. That is what
makes a durable write cheap when there are many of them.

A brief batch is done on the loop itself. With a write-ahead log a commit only hands some pages to the system, which
takes 20 microseconds; a hop to a thread and back takes 100. The thread does what may take its time: long rows, scans,
waiting for the lock of another process, what fails, and moving the log into the file, which syncs the disk. The two
never use the connection at the same time: while the thread has a batch, all others wait.

Several processes may share the file: each transaction that writes takes SQLite's write lock first and waits
for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from adapter.errors import StoreUnavailable
from adapter.state import sql
from adapter.state.port import Change, Put, Row, StoreListener, group_of_all
from adapter.state.sql import LOG, Run, StoreOperation, brief_outcomes, outcomes, unavailable

LOCK_TIMEOUT = 5.0
"""Seconds to wait for another process that writes."""

MOST = 64
"""Operations of one transaction."""

BRIEF = 512 << 10
"""Bytes that a batch on the loop may add to the log, which takes less than a millisecond."""

LONGEST = 64 << 10
"""Bytes of a value that is read, replaced or removed on the loop."""

MERGED = 4 << 20
"""Bytes of log after which it is moved into the file: SQLite's own default, a thousand pages.

What an operation adds can only be guessed: it depends on the row that goes, or is replaced. So the size of the log is
looked up.
"""

ROW = 8 << 10
"""Bytes of log for a row beside its value: the page that holds it, and the page of its due time."""

SLOW = 0.05
"""Seconds of a batch on the loop that show a slow disk."""

RESTS = 100
"""The thread does everything for so many times as long as a slow batch took: the loop loses a hundredth of its time."""


class SqliteStore:
    """A Store that survives its process: what ``put`` has returned is still there after a kill -9.

    ``wal=False`` uses a rollback journal instead of a write-ahead log, for file systems without shared memory; the
    thread does everything then, because each commit syncs the disk. A directory that is missing is made for the owner
    only, and so is the file. All methods belong to the event loop that called ``open``. ``now`` is a clock that never
    goes back, in seconds.
    """

    shared = False

    def __init__(self, path: Path, *, wal: bool = True, now: Callable[[], float] = time.monotonic) -> None:
        self.listeners: list[StoreListener] = []
        self._path = path
        self._wal = wal
        self._now = now
        self._worker: _Worker | None = None
        self._waiting: list[StoreOperation] = []
        self._busy = False
        self._slow_until = float("-inf")

    def __repr__(self) -> str:
        state = "closed" if self._worker is None else f"{len(self._waiting)} operations waiting"
        return f"<SqliteStore: {state}>"

    async def open(self) -> None:
        """Open the file. Also raises StoreUnavailable for a file of a newer version, or of another program."""
        if self._worker is not None:
            return
        connect = partial(_connect, self._path, wal=self._wal)
        worker = _Worker(asyncio.get_running_loop(), connect, self._settle)
        worker.start()
        try:
            await worker.connected
        except BaseException:
            worker.batches.put(None)  # a caller that was cancelled leaves no thread behind
            raise
        self._worker = worker

    async def close(self) -> None:
        if self._worker is None:
            return
        # An operation that does nothing comes out when everything before it has.
        last = self._submit(lambda _: None)
        worker, self._worker = self._worker, None
        await last
        worker.batches.put(None)
        await worker.finished

    async def get(self, table: str, key: str) -> Row | None:
        brief = partial(sql.get, table, key, LONGEST)
        found: Row | None = await self._submit(partial(sql.get, table, key, sys.maxsize), brief)
        return found

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        brief = partial(sql.put, table, key, value, expected, due, LONGEST)
        write = partial(sql.put, table, key, value, expected, due, sys.maxsize)
        row: Row = await self._submit(write, brief, log=ROW + len(value), whole=True)
        return row

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        if not changes:
            return []
        group_of_all(changes)
        if len(changes) == 1 and isinstance(only := changes[0], Put) and only.most is None:
            return [await self.put(only.table, only.key, only.value, expected=only.expected, due=only.due)]
        write = partial(sql.commit, tuple(changes))
        log = ROW * len(changes) + sum(len(change.value) for change in changes if isinstance(change, Put))
        rows: list[Row] = await self._submit(write, write, log=log)
        return rows

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        brief = partial(sql.delete, table, key, expected, LONGEST)
        write = partial(sql.delete, table, key, expected, sys.maxsize)
        gone: bool = await self._submit(write, brief, log=ROW, whole=expected is None)
        return gone

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        if dues:
            write = partial(sql.touch, table, dict(dues))
            await self._submit(write, write, log=ROW * len(dues))

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        rows: list[Row] = await self._submit(partial(sql.scan, table, group, after, limit))
        return rows

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        rows: list[Row] = await self._submit(partial(sql.overdue, table, now, limit))
        return rows

    async def count(self, table: str, *, group: str | None = None, holding: bytes = b"") -> int:
        rows: int = await self._submit(partial(sql.count, table, group, holding))
        return rows

    def announce(self, topic: str, body: bytes) -> None:
        """Nobody else is told: one process uses the file."""

    # --- batches ----------------------------------------------------------------------------------------------

    def _submit(
        self, run: Run, brief: Run | None = None, *, log: int = 0, whole: bool = False
    ) -> asyncio.Future[Any]:
        if self._worker is None:
            raise StoreUnavailable("The state store is not open.")
        loop = self._worker.loop
        settled: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(StoreOperation(settled, run, brief, log, whole))
        if not self._busy:
            self._busy = True
            # Not at once: whatever else this turn of the loop asks for goes along.
            loop.call_soon(self._go_on, self._worker)
        return settled

    def _go_on(self, worker: _Worker) -> None:
        """Do the next batch here, if it is brief; else the thread does it."""
        batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        log = sum(map(LOG, batch))
        merges = False
        if log and self._wal:
            try:
                merges = os.stat(worker.log).st_size > MERGED  # noqa: PTH116 - a Path takes longer, and each write asks
            except OSError:  # there is no log
                merges = False
        done = None if merges else self._done_here(worker, batch, log)
        if done is None:
            worker.batches.put(_Batch(batch, merges))
        else:
            self._settle(worker, batch, done)

    def _done_here(self, worker: _Worker, batch: list[StoreOperation], log: int) -> list[Any] | None:
        """Return the outcomes of a batch that is brief, None for any other."""
        began = self._now()
        if not self._wal or log > BRIEF or began < self._slow_until:
            return None
        done = brief_outcomes(worker.connection, batch)
        ended = self._now()
        if ended - began > SLOW:
            self._slow_until = ended + RESTS * (ended - began)
        return done

    def _settle(self, worker: _Worker, batch: list[StoreOperation], done: list[Any]) -> None:
        for operation, outcome in zip(batch, done, strict=True):
            settled = operation.settled
            if settled.done():
                continue  # its caller was cancelled and does not want to know
            if isinstance(outcome, Exception):
                settled.set_exception(outcome)
            else:
                settled.set_result(outcome)
        if self._waiting:
            # Others have a turn between two batches.
            worker.loop.call_soon(self._go_on, worker)
        else:
            self._busy = False


class _Batch(NamedTuple):
    """Operations for the thread. ``merges``: the log is moved into the file first.

    The write behind that begins the log anew and syncs it, so the thread does that too.
    """

    operations: list[StoreOperation]
    merges: bool


class _Worker(threading.Thread):
    """The thread that opens the connection and does what is not brief, until it gets None; then it closes."""

    connection: sqlite3.Connection
    log: str
    """The path of the write-ahead log."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Callable[[], sqlite3.Connection],
        settle: Callable[[_Worker, list[StoreOperation], list[Any]], None],
    ) -> None:
        # A daemon, because a store that nobody closed must not keep the process from ending: what was
        # promised is on disk already.
        super().__init__(name="state-sqlite", daemon=True)
        self.loop = loop
        self.batches: SimpleQueue[_Batch | None] = SimpleQueue()
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

    def _outcomes(self, batch: _Batch) -> list[Any]:
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


def _connect(path: Path, *, wal: bool) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
