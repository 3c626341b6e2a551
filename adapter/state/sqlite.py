"""The state store in one SQLite file: one thread, one connection, and as few transactions as the work allows.

Operations that arrive while the thread is busy wait on the event loop's side and then go over together: one
hop to the thread, one transaction, one hop back, however many they are. That is what makes a durable write
cheap when there are many of them. Everything but ``_Worker`` runs on the event loop and needs no lock.

Several processes may share the file: each transaction that writes takes SQLite's write lock first and waits
for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from adapter.errors import StoreUnavailable
from adapter.state import sql
from adapter.state.port import Row

T = TypeVar("T")

LOCK_TIMEOUT = 5.0
"""Seconds to wait for another process that writes."""

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SENTENCES = {
    sqlite3.SQLITE_BUSY: "The state file is locked by another process; try again.",
    sqlite3.SQLITE_LOCKED: "The state file is locked by another process; try again.",
    sqlite3.SQLITE_CANTOPEN: "The state file cannot be opened: check its directory and its permissions.",
    sqlite3.SQLITE_PERM: "The state file cannot be opened: check its permissions.",
    sqlite3.SQLITE_READONLY: "The state file is read-only: check the permissions of the file and its directory.",
    sqlite3.SQLITE_FULL: "The disk of the state file is full.",
    sqlite3.SQLITE_IOERR: "The disk of the state file is full, or it cannot be read or written.",
    sqlite3.SQLITE_CORRUPT: "The state file is damaged: move it away and start again, or restore it.",
    sqlite3.SQLITE_NOTADB: "The state file is not a database: move it away and start again, or restore it.",
}


def unavailable(error: Exception) -> StoreUnavailable:
    """The failure of the catalogue for one of sqlite3 or the operating system; its sentence holds no path."""
    code = getattr(error, "sqlite_errorcode", None)
    # The low byte is the kind of the failure, the rest says which variety.
    return StoreUnavailable(None if code is None else _SENTENCES.get(code & 0xFF))


@dataclass(slots=True)
class _Operation:
    """One call of a store's method under way. ``run`` is called in the worker's thread, perhaps twice. What writes is
    ``whole`` where one statement does it, which is a transaction by itself.
    """

    run: Callable[[sqlite3.Connection], Any]
    writes: bool
    whole: bool
    settled: asyncio.Future[Any]


class SqliteStore:
    """A Store that survives its process: what ``put`` has returned is still there after a kill -9.

    ``wal=False`` uses a rollback journal instead of a write-ahead log, for file systems without shared
    memory. A directory that is missing is made for the owner only, and so is the file. All methods belong to
    the event loop that called ``open``.
    """

    def __init__(self, path: Path, *, wal: bool = True) -> None:
        self._path = path
        self._wal = wal
        self._worker: _Worker | None = None
        self._waiting: list[_Operation] = []
        self._busy = False

    def __repr__(self) -> str:
        state = "closed" if self._worker is None else f"{len(self._waiting)} operations waiting"
        return f"<SqliteStore: {state}>"

    async def open(self) -> None:
        """Also raises StoreUnavailable for a file of a newer version, or of another program."""
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
        last = self._submit(lambda _: None, writes=False)
        worker, self._worker = self._worker, None
        await last
        worker.batches.put(None)
        await worker.finished

    async def get(self, table: str, key: str) -> Row | None:
        return await self._submit(partial(sql.get, table, key), writes=False)

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        return await self._submit(partial(sql.put, table, key, value, expected, due), writes=True, whole=True)

    async def put_all(
        self,
        table: str,
        rows: Sequence[tuple[str, bytes, float | None]],
        *,
        instead_of: Sequence[str] = (),
    ) -> None:
        if rows or instead_of:
            whole = len(rows) == 1 and not instead_of
            write = partial(sql.put_all, table, tuple(rows), tuple(instead_of))
            await self._submit(write, writes=True, whole=whole)

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        return await self._submit(partial(sql.delete, table, key, expected), writes=True)

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        if dues:
            await self._submit(partial(sql.touch, table, dict(dues)), writes=True)

    async def scan(self, table: str, *, after: str = "", limit: int = 500) -> list[Row]:
        return await self._submit(partial(sql.scan, table, after, limit), writes=False)

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        return await self._submit(partial(sql.overdue, table, now, limit), writes=False)

    async def count(self, table: str) -> int:
        return await self._submit(partial(sql.count, table), writes=False)

    def _submit(
        self, run: Callable[[sqlite3.Connection], T], *, writes: bool, whole: bool = False
    ) -> asyncio.Future[T]:
        if self._worker is None:
            raise StoreUnavailable("The state store is not open.")
        loop = self._worker.loop
        settled: asyncio.Future[T] = loop.create_future()
        self._waiting.append(_Operation(run, writes, whole, settled))
        if not self._busy:
            self._busy = True
            # Not at once: whatever else this turn of the loop asks for goes along.
            loop.call_soon(self._hand_over, self._worker)
        return settled

    def _hand_over(self, worker: _Worker) -> None:
        batch, self._waiting = self._waiting, []
        worker.batches.put(batch)

    def _settle(self, worker: _Worker, batch: list[_Operation], outcomes: list[Any]) -> None:
        for operation, outcome in zip(batch, outcomes, strict=True):
            if operation.settled.done():
                continue  # its caller was cancelled and does not want to know
            if isinstance(outcome, Exception):
                operation.settled.set_exception(outcome)
            else:
                operation.settled.set_result(outcome)
        if self._waiting:
            self._hand_over(worker)
        else:
            self._busy = False


class _Worker(threading.Thread):
    """The thread that owns the connection. It takes batches until it gets None, then closes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Callable[[], sqlite3.Connection],
        settle: Callable[[_Worker, list[_Operation], list[Any]], None],
    ) -> None:
        # A daemon, because a store that nobody closed must not keep the process from ending: what was
        # promised is on disk already.
        super().__init__(name="state-sqlite", daemon=True)
        self.loop = loop
        self.batches: SimpleQueue[list[_Operation] | None] = SimpleQueue()
        self.connected: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()
        self._connect = connect
        self._settle = settle

    def run(self) -> None:
        failure: StoreUnavailable | None = None
        try:
            connection = self._connect()
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            failure = error if isinstance(error, StoreUnavailable) else unavailable(error)
            self._tell(_finish, self.connected, failure)
            return
        self._tell(_finish, self.connected, None)
        while (batch := self.batches.get()) is not None:
            self._tell(self._settle, self, batch, _outcomes(connection, batch))
        try:
            connection.close()
        except sqlite3.Error as error:
            failure = unavailable(error)
        self._tell(_finish, self.finished, failure)

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


def _connect(path: Path, *, wal: bool) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite would make the file with the process's umask; its log files take after it. Only a new one is opened
    # here: closing a descriptor drops every POSIX lock this process has on its file.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None)
    try:
        sql.prepare(connection, wal=wal, patience=LOCK_TIMEOUT)
    except BaseException:
        connection.close()
        raise
    return connection


def _outcomes(connection: sqlite3.Connection, batch: list[_Operation]) -> list[Any]:
    """Return what each operation of the batch returned or raised; what it wrote is durable."""
    try:
        return _in_one_transaction(connection, batch)
    except sqlite3.Error as error:
        # The lock is not got sooner by asking once for each operation, and each would wait as long as all.
        if len(batch) == 1 or error.sqlite_errorcode & 0xFF in _BUSY:
            return [unavailable(error) for _ in batch]
    # One of them does not fit the disk, say. Alone, it fails alone.
    return [outcome for operation in batch for outcome in _outcomes(connection, [operation])]


def _in_one_transaction(connection: sqlite3.Connection, batch: list[_Operation]) -> list[Any]:
    alone = (
        len(batch) == 1 and batch[0].whole
    )  # SQLite begins and ends one for it, and takes the lock just so
    begins = not alone and any(operation.writes for operation in batch)
    if begins:
        connection.execute("BEGIN IMMEDIATE")
    try:
        outcomes = [_outcome(connection, operation) for operation in batch]
        if begins:
            connection.execute("COMMIT")
    except sqlite3.Error:
        # SQLite has rolled back by itself after some failures, after others it has not.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return outcomes


def _outcome(connection: sqlite3.Connection, operation: _Operation) -> Any:
    try:
        return operation.run(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # Conflict, or a caller's argument that no row can hold: its own affair
        return error
