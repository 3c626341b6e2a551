"""The state store in one SQLite file: one connection, and as few transactions as the work allows.

Operations that one turn of the event loop asks for go together: one transaction, however many they are. That is what
makes a durable write cheap when there are many of them.

A brief batch is done on the loop itself. With a write-ahead log a commit only hands some pages to the system, which
takes 20 microseconds; a hop to a thread and back takes 100. The thread does what may take its time: long rows, scans,
waiting for the lock of another process, what fails, and moving the log into the file, which syncs the disk. The two
never use the connection at the same time: while the thread has a batch, all others wait.

Several processes may share the file: each transaction that writes takes SQLite's write lock first and waits
for it. What one keeps of it in memory needs ``shared``, which tells what others do.

The state store that forgets, for tests, demos and deployments that ask for it: SQLite without a file.

There may be 100,000 rows and more. They are none of Python's objects, so the garbage collector passes over them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar

from adapter.errors import StoreUnavailable
from adapter.state import sql
from adapter.state.lock_file import make_private
from adapter.state.port import Change, Put, Row, StoreListener, group_of_all
from adapter.state.sql import LOG, Run, StoreOperation, brief_outcomes, outcomes, unavailable
from adapter.state.sqlite_others import OtherProcesses

LOCK_TIMEOUT = 5.0
"""Seconds to wait for another process that writes."""

MERGED = 4 << 20
"""Bytes of log after which it is moved into the file: SQLite's own default, a thousand pages.

What an operation adds can only be guessed: it depends on the row that goes, or is replaced. So the size of the log is
looked up.
"""

MOST = 64
"""Operations of one transaction."""

BRIEF = 512 << 10
"""Bytes that a batch on the loop may add to the log, which takes less than a millisecond."""

LONGEST = 64 << 10
"""Bytes of a value that is read, replaced or removed on the loop."""

ROW = 8 << 10
"""Bytes of log for a row beside its value: the page that holds it, and the page of its due time."""

MEASURED = 128 << 10
"""Bytes that batches may add to the log until its size is looked up again."""

SLOW = 0.05
"""Seconds of a batch on the loop that show a slow disk."""

RESTS = 100
"""The thread does everything for so many times as long as a slow batch took: the loop loses a hundredth of its time."""


P = ParamSpec("P")
T = TypeVar("T")


class DaemonThread(Executor):
    """An executor of one thread that does not keep the process from ending, as those of a ThreadPoolExecutor do.

    A store that nobody closed may wait for a lock or a disk; what was promised is on the disk already.
    """

    def __init__(self, name: str) -> None:
        self._works: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        Thread(target=_labour, args=(self._works,), name=name, daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See Executor."""
        future = Future[T]()
        self._works.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - Executor's
        """Let the thread end when it has done everything. Nobody waits for that."""
        self._works.put(None)

    def __del__(self) -> None:
        self.shutdown()


def _labour(works: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (work := works.get()) is not None:
        future, call = work
        if future.set_running_or_notify_cancel():
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        del work, future, call  # what they hold is not to live until the next one comes


class SqlStore(ABC):
    """The methods of a Store as SQL. An heir says where that runs."""

    def __init__(self) -> None:
        self.listeners: list[StoreListener] = []

    @abstractmethod
    def _submit(
        self, run: Run, brief: Run | None = None, *, log: int = 0, whole: bool = False
    ) -> Awaitable[Any]:
        """The outcome of an operation; see StoreOperation."""

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
            # Of this very class: heirs write by ``commit``.
            return [
                await SqlStore.put(
                    self, only.table, only.key, only.value, expected=only.expected, due=only.due
                )
            ]
        write = partial(sql.commit, tuple(changes))
        log = ROW * len(changes) + sum(len(change.value) for change in changes if isinstance(change, Put))
        rows: list[Row] = await self._submit(write, write, log=log)
        return rows

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        brief = partial(sql.delete, table, key, expected, LONGEST)
        write = partial(sql.delete, table, key, expected, sys.maxsize)
        gone: bool = await self._submit(write, brief, log=ROW, whole=True)
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

    async def count(self, table: str, *, group: str | None = None) -> int:
        rows: int = await self._submit(partial(sql.count, table, group))
        return rows

    async def spend(self, table: str, key: str, most: int, window: float) -> float:
        run = partial(sql.spend, table, key, most, window, time.time())
        wait: float = await self._submit(run, run, log=ROW + most * sql.MOMENT)
        return wait


class SqliteStore(SqlStore):
    """A Store that survives its process: what ``put`` has returned is still there after a kill -9.

    ``wal=False`` uses a rollback journal instead of a write-ahead log, for file systems without shared memory; the
    thread does everything then, because each commit syncs the disk. A directory that is missing is made for the owner
    only, and so is the file. All methods belong to the event loop that called ``open``. ``now`` is a clock that never
    goes back, in seconds. ``shared``: other processes use the file too, and listeners are told of what they do.
    """

    def __init__(
        self,
        path: Path,
        *,
        wal: bool = True,
        shared: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.shared = shared
        self._path = path
        self._wal = wal
        self._now = now
        self._is_open = False
        self._loop: asyncio.AbstractEventLoop
        self._thread: DaemonThread
        self._connection: sqlite3.Connection
        self._log = ""
        """The path of the write-ahead log."""
        self._waiting: list[StoreOperation] = []
        self._busy = False
        self._unmeasured = MEASURED
        self._slow_until = float("-inf")
        self._others: OtherProcesses | None = None
        if shared:
            self._others = OtherProcesses(self.listeners, self._submit, lambda: self._busy)

    def __repr__(self) -> str:
        state = f"{len(self._waiting)} operations waiting" if self._is_open else "closed"
        return f"<SqliteStore: {state}>"

    async def open(self) -> None:
        """Open the file. Also raises StoreUnavailable for a file of a newer version, or of another program."""
        if self._is_open:
            return
        self._loop, self._thread = asyncio.get_running_loop(), DaemonThread("state-sqlite")
        connecting = self._thread.submit(connect, self._path, wal=self._wal)
        try:
            self._connection, self._log = await asyncio.wrap_future(connecting)
            if self._others is not None:
                self._others.begin(self._loop, self._connection)
        except BaseException as error:
            # A caller that was cancelled leaves no thread behind, and nothing open.
            connecting.add_done_callback(_close_again)
            self._thread.shutdown(wait=False)
            if isinstance(error, sqlite3.Error | OSError):
                raise unavailable(error) from error
            raise
        self._is_open = True

    async def close(self) -> None:
        if not self._is_open:
            return
        if self._others is not None:
            self._others.end()
        # An operation that does nothing comes out when everything before it has.
        last = self._submit(lambda _: None)
        self._is_open = False
        await last
        try:
            await self._loop.run_in_executor(self._thread, self._connection.close)
        except sqlite3.Error as error:
            raise unavailable(error) from error
        finally:
            self._thread.shutdown(wait=False)

    async def clear(self) -> None:
        """Delete every row of every table."""
        await self._submit(sql.clear, log=MERGED)

    def announce(self, topic: str, body: bytes) -> None:
        """See Store. Where the file is not shared there is nobody else to tell."""
        if self._others is not None and self._is_open:
            self._others.announce(topic, body)

    # --- batches ----------------------------------------------------------------------------------------------

    def _submit(
        self, run: Run, brief: Run | None = None, *, log: int = 0, whole: bool = False
    ) -> asyncio.Future[Any]:
        if not self._is_open:
            raise StoreUnavailable("The state store is not open.")
        settled: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(StoreOperation(settled, run, brief, log, whole))
        if not self._busy:
            self._busy = True
            # Not at once: whatever else this turn of the loop asks for goes along.
            self._loop.call_soon(self._go_on)
        return settled

    def _go_on(self) -> None:
        """Do the next batch here, if it is brief; else the thread does it."""
        batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        log = sum(map(LOG, batch))
        merges = False
        if log and self._wal:
            self._unmeasured += log
            if self._unmeasured > MEASURED:
                self._unmeasured = 0
                with contextlib.suppress(OSError):  # there is no log
                    merges = os.stat(self._log).st_size > MERGED  # noqa: PTH116 - a Path takes longer
        done = None if merges else self._done_here(batch, log)
        if done is None:
            # The write behind a merge begins the log anew and syncs it, so the thread does that too.
            there = self._loop.run_in_executor(self._thread, self._outcomes, batch, merges)
            there.add_done_callback(partial(self._come_back, batch))
        else:
            self._settle(batch, done)

    def _done_here(self, batch: list[StoreOperation], log: int) -> list[Any] | None:
        """Return the outcomes of a batch that is brief, None for any other."""
        began = self._now()
        if not self._wal or log > BRIEF or began < self._slow_until:
            return None
        done = brief_outcomes(self._connection, batch)
        ended = self._now()
        if ended - began > SLOW:
            self._slow_until = ended + RESTS * (ended - began)
        return done

    def _outcomes(self, batch: list[StoreOperation], merges: bool) -> list[Any]:
        """Do a batch in the thread, with the patience that the loop does not have."""
        _wait_for_locks(self._connection, LOCK_TIMEOUT)
        if merges:
            # What cannot be moved now is moved later, and is as durable in the log.
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        done = outcomes(self._connection, batch)
        _wait_for_locks(self._connection, 0.0)
        return done

    def _come_back(self, batch: list[StoreOperation], there: asyncio.Future[list[Any]]) -> None:
        """Settle what the thread was given, also where all of it failed: others wait behind it."""
        error = there.exception()
        self._settle(batch, there.result() if error is None else [_failed(error) for _ in batch])

    def _settle(self, batch: list[StoreOperation], done: list[Any]) -> None:
        for operation, outcome in zip(batch, done, strict=True):
            settled = operation.settled
            if settled.done():
                continue  # its caller was cancelled and does not want to know
            if isinstance(outcome, Exception):
                settled.set_exception(outcome)
            else:
                settled.set_result(outcome)
        if self._others is not None and self._others.missed:
            # Between two batches, so that others are heard also while there is always one.
            self._others.look()
        if self._waiting:
            # Others have a turn between two batches.
            self._loop.call_soon(self._go_on)
        else:
            self._busy = False


def _failed(error: BaseException) -> StoreUnavailable:
    failure = StoreUnavailable()
    failure.__cause__ = error
    return failure


def _wait_for_locks(connection: sqlite3.Connection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}").fetchall()


def connect(path: Path, *, wal: bool) -> tuple[sqlite3.Connection, str]:
    """Open the file, and make it where it is missing. Returns the path of its write-ahead log too."""
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
    # The path as SQLite has found it, by links and by the directory of now.
    return connection, f"{connection.execute('PRAGMA database_list').fetchone()[2]}-wal"


def _close_again(connecting: Future[tuple[sqlite3.Connection, str]]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connection, _ = connecting.result()
        with contextlib.suppress(sqlite3.Error):
            connection.close()


class MemoryStore(SqlStore):
    """A Store of one process and one event loop. No method waits for anything, so each is one atomic step."""

    shared = False

    def __init__(self) -> None:
        super().__init__()
        # Tests may fill it in one thread and use it in another.
        self._rows = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        sql.make_schema(self._rows)
        weakref.finalize(self, self._rows.close)

    def __repr__(self) -> str:
        (count,) = self._rows.execute("SELECT count(*) FROM rows").fetchone()
        return f"<MemoryStore: {count} rows>"

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Keep the rows: they are there when this object is opened again."""

    def announce(self, topic: str, body: bytes) -> None:
        """Nobody else is there to be told."""

    async def _submit(self, run: Run, *_: object, **__: object) -> Any:
        return run(self._rows)
