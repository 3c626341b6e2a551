"""Transactions of the SQLite store: many operations in each, and the outcome of every one of them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

from adapter.errors import StoreUnavailable
from adapter.state.sql import TooLong

Run: TypeAlias = Callable[[sqlite3.Connection], Any]
"""A method of the store that lacks only the connection to run on."""

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
    """The failure of the catalogue for an error of sqlite3 or the operating system; its message holds no path."""
    code = getattr(error, "sqlite_errorcode", None)
    # The low byte is the kind of the failure, the rest says which variety.
    return StoreUnavailable(None if code is None else _SENTENCES.get(code & 0xFF))


@dataclass(slots=True)
class StoreOperation:
    """One call of a store's method under way. ``run`` may be called twice.

    ``brief`` is the form of it that may be called on the event loop; None: there is none. ``log`` is about how many
    bytes it adds to the write-ahead log, 0 if it only reads. What writes is ``whole`` where one statement does it,
    which is a transaction by itself.
    """

    settled: asyncio.Future[Any]
    run: Run
    brief: Run | None = None
    log: int = 0
    whole: bool = False


LOG, _BRIEF = attrgetter("log"), attrgetter("brief")


def outcomes(connection: sqlite3.Connection, batch: Sequence[StoreOperation]) -> list[Any]:
    """Return what each operation of the batch returned or raised; what it wrote is durable.

    In one transaction; where that fails, each operation in one of its own, so that it fails alone.
    """
    try:
        return _in_one_transaction(connection, batch, [operation.run for operation in batch])
    except sqlite3.Error as error:
        # The lock is not got sooner by asking once for each operation, and each would wait as long as all.
        if len(batch) == 1 or error.sqlite_errorcode & 0xFF in _BUSY:
            return [unavailable(error) for _ in batch]
    # One of them does not fit the disk, say. Alone, it fails alone.
    return [outcome for operation in batch for outcome in outcomes(connection, [operation])]


def brief_outcomes(connection: sqlite3.Connection, batch: Sequence[StoreOperation]) -> list[Any] | None:
    """Return the same of operations in their brief forms. None: nothing was done, because that is not brief.

    One of them has no brief form, or a long row; another process holds the lock; or something fails, which is then
    looked at in good time.
    """
    runs = [*map(_BRIEF, batch)]
    if None in runs:
        return None
    try:
        return _in_one_transaction(connection, batch, runs)
    except (sqlite3.Error, TooLong):
        return None


def _in_one_transaction(
    connection: sqlite3.Connection, batch: Sequence[StoreOperation], runs: Sequence[Run]
) -> list[Any]:
    # Of a single statement SQLite makes a transaction, and takes the lock just so.
    alone = len(batch) == 1 and batch[0].whole
    begins = not alone and any(map(LOG, batch))
    if begins:
        connection.execute("BEGIN IMMEDIATE")
    done: list[Any] = []
    try:
        for run in runs:
            try:
                done.append(run(connection))
            except (sqlite3.Error, TooLong):
                raise
            except (
                Exception
            ) as error:  # Conflict, or a caller's argument that no row can hold: its own affair
                done.append(error)
        if begins:
            connection.execute("COMMIT")
    except (sqlite3.Error, TooLong):
        # SQLite has rolled back by itself after some failures, after others it has not.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return done
