"""SQLite, which needs no driver: threads do the waiting, SQLite says what reads and what writes.

Connections that only read (``query_only``) run beside each other and beside the one that writes, which is what
a write-ahead log is good for; without one they take turns. Nobody parses SQL to know where a statement
belongs: it is tried on a reader, which refuses to write before anything has happened, and then goes to the writer.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from adapter.hosted.connectors.plain import plain
from adapter.hosted.connectors.pool import DriverPool
from adapter.hosted.connectors.port import ConnectorFailed, ConnectorOptions, QueryFailed, Rows, within
from adapter.rules.statements.statements import Bound, Kind

MODES = ("ro", "rw", "rwc")
JOURNALS = ("delete", "truncate", "persist", "memory", "wal", "off")

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_BUSY_PAUSE = 0.02
"""Seconds between two tries for a lock. SQLite's own wait would not hear of a cancellation."""

_STEPS = 1_000
"""SQLite's instructions between two looks at whether the statement was cancelled."""

_LONGEST_PATTERN = 1_000
"""Bytes of a pattern of LIKE and GLOB. One comparison takes as long as pattern and text are multiplied, and is a single
instruction: with SQLite's own limit of 50,000 nobody could stop it for minutes."""

_KNOWN_WRITES = 1_000
"""Texts remembered as writing; statements are few, so more of them means that they are not templates."""

_REASONS = {
    sqlite3.SQLITE_CANTOPEN: "the database file does not exist or cannot be opened (mode: rwc creates it)",
    sqlite3.SQLITE_PERM: "the database file may not be opened",
    sqlite3.SQLITE_READONLY: "the database file is read-only",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_BUSY: "the database file is locked by another process",
}


class SqliteConnector:
    """A database in one file, or in memory.

    The connection string is a path (relative ones are under ``base``), ``sqlite:///path``, a ``file:`` URI or
    ``:memory:``. Options: ``mode`` (ro, rw, or rwc, which creates the file; rw unless the URI says otherwise),
    ``journal_mode``, ``pool_size`` readers.
    """

    kind: Kind = "sqlite"

    def __init__(
        self, name: str, connection_string: str, options: Mapping[str, Any], *, base: Path | None = None
    ) -> None:
        chosen = ConnectorOptions(self.kind, name, options)
        self.name = name
        self._readers_wanted = chosen.pool_size(default=4)
        self._uri = _uri(connection_string, chosen.one_of("mode", MODES), base or Path())
        self._journal = chosen.one_of("journal_mode", JOURNALS)
        chosen.done()
        self._threads: ThreadPoolExecutor | None = None
        self._readers: DriverPool[sqlite3.Connection] | None = None
        self._writer: DriverPool[sqlite3.Connection] | None = None
        self._writing: set[str] = set()

    @property
    def uri(self) -> str:
        """The ``file:`` URI of the database."""
        return self._uri

    async def open(self) -> None:
        in_memory = ":memory:" in self._uri
        readers = (
            0 if in_memory else self._readers_wanted
        )  # each connection to memory would be a database of its own
        self._threads = ThreadPoolExecutor(readers + 1, thread_name_prefix=f"sqlite-{self.name}")
        self._writer = self._pool(1, self._uri, query_only=False)
        self._readers = self._pool(readers, self._uri, query_only=True) if readers else None
        try:
            async with self._writer.lease() as connection:
                await self._in_thread(partial(_ping, connection, self._journal))
        except sqlite3.Error as error:
            await self.close()
            raise ConnectorFailed(f"connector '{self.name}' (sqlite): {why_not_opened(error)}") from error

    async def close(self) -> None:
        if self._threads is None:
            return
        for pool in (self._readers, self._writer):
            if pool is not None:
                await pool.close()
        threads, self._threads = self._threads, None
        await asyncio.to_thread(threads.shutdown)

    async def run(self, bound: Bound, *, timeout: float, max_rows: int) -> Rows:
        if self._threads is None or self._writer is None:
            raise QueryFailed("the connector is closed")
        async with within(timeout):
            if self._readers is not None and bound.text not in self._writing:
                async with self._readers.lease() as connection:
                    try:
                        return await self._execute(connection, bound, max_rows)
                    except _Writes:
                        self._remember(bound.text)
            async with self._writer.lease() as connection:
                try:
                    return await self._execute(connection, bound, max_rows)
                except _Writes as refused:
                    raise QueryFailed(str(refused)) from refused

    async def _execute(self, connection: sqlite3.Connection, bound: Bound, max_rows: int) -> Rows:
        execution = _Execution(connection, bound.text, tuple(bound.values), max_rows)
        ending = asyncio.ensure_future(self._in_thread(execution))
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            execution.stop()
            await _settled(ending)  # the connection is not free before its thread has let go of it
            raise

    async def _in_thread(self, work: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _pool(self, size: int, uri: str, *, query_only: bool) -> DriverPool[sqlite3.Connection]:
        async def connect() -> sqlite3.Connection:
            connection: sqlite3.Connection = await self._in_thread(partial(_connect, uri, query_only))
            return connection

        async def drop(connection: sqlite3.Connection) -> None:
            await self._in_thread(connection.close)

        return DriverPool(size, connect=connect, usable=lambda _: True, drop=drop)

    def _remember(self, text: str) -> None:
        if len(self._writing) >= _KNOWN_WRITES:
            self._writing.clear()
        self._writing.add(text)


class _Writes(Exception):
    """The connection may not write, and the statement would; nothing has happened."""


class _Execution:
    """One statement on one connection, called in a thread; ``stop`` may be called from any other."""

    def __init__(
        self, connection: sqlite3.Connection, text: str, values: Sequence[Any], max_rows: int
    ) -> None:
        self._connection = connection
        self._text = text
        self._values = values
        self._max_rows = max_rows
        self._stopped = threading.Event()

    def stop(self) -> None:
        # The flag is for a statement that has not begun, which an interruption would not reach.
        self._stopped.set()
        self._connection.interrupt()

    def __call__(self) -> Rows:
        self._connection.set_progress_handler(self._stopped.is_set, _STEPS)
        try:
            while True:
                try:
                    return self._once()
                except sqlite3.OperationalError as error:
                    code = error.sqlite_errorcode & 0xFF if hasattr(error, "sqlite_errorcode") else None
                    if code == sqlite3.SQLITE_READONLY:
                        raise _Writes(str(error)) from error
                    # A statement on its own that found the lock taken has left nothing behind.
                    if code not in _BUSY or self._stopped.wait(_BUSY_PAUSE):
                        raise
        except (sqlite3.Error, sqlite3.Warning, OverflowError, ValueError) as error:
            raise QueryFailed(_failure(error)) from error
        finally:
            if self._connection.in_transaction:
                self._connection.rollback()
            self._connection.set_progress_handler(None, 0)

    def _once(self) -> Rows:
        cursor = self._connection.cursor()
        try:
            cursor.execute(self._text, self._values)
            if cursor.description is None:
                return Rows.written(cursor.rowcount)
            columns = [column[0] for column in cursor.description]
            found = cursor.fetchmany(self._max_rows + 1)
            rows = [dict(zip(columns, map(plain, row), strict=True)) for row in found[: self._max_rows]]
            return Rows(rows, truncated=len(found) > self._max_rows)
        finally:
            cursor.close()


def why_not_opened(error: sqlite3.Error) -> str:
    """Why a database cannot be used, in words that hold nothing of how it was configured."""
    code = getattr(error, "sqlite_errorcode", None)
    return _REASONS.get(code & 0xFF if code else 0, "the database file cannot be used")


def _failure(error: Exception) -> str:
    sentence = str(error)
    if sentence.endswith("pattern too complex"):
        return f"{sentence}: the limit is {_LONGEST_PATTERN} bytes"
    return sentence


def _connect(uri: str, query_only: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LONGEST_PATTERN)
    # Whatever is in a text column is read: SQLite itself takes any bytes for a text.
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    if query_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _ping(connection: sqlite3.Connection, journal: str | None) -> None:
    # Opening a file reads nothing of it yet; this does.
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if journal is not None:
        connection.execute(f"PRAGMA journal_mode = {journal}").fetchone()


async def _settled(ending: asyncio.Future[Any]) -> None:
    """Wait for ``ending`` whatever becomes of it, also when the waiting task is cancelled again."""
    cancelled_again = False
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError:
            cancelled_again = True
    if not ending.cancelled():
        ending.exception()
    if cancelled_again:
        raise asyncio.CancelledError


def _uri(connection_string: str, mode: str | None, base: Path) -> str:
    """The ``file:`` URI for SQLite: absolute, and with a mode, so that a misspelt path creates no database."""
    parts = urlsplit(connection_string)
    if parts.scheme in ("sqlite", "sqlite3", "file"):
        path, query = unquote(parts.path), dict(parse_qsl(parts.query))
        if parts.scheme != "file":
            path = path.removeprefix("/")  # sqlite:///relative, sqlite:////absolute
    else:
        path, query = connection_string, {}
    if path in (":memory:", ""):
        return "file::memory:"
    if mode is not None:
        query["mode"] = mode
    query.setdefault("mode", "rw")
    pairs = "&".join(f"{quote(key)}={quote(value)}" for key, value in query.items())
    return f"file:{quote(str((base / path).absolute()))}?{pairs}"
