"""The store's methods as SQL over one connection, each a function that ends with the connection to run on."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

from adapter.errors import StoreUnavailable
from adapter.state.port import ABSENT, Change, Conflict, Delete, Put, Row, TableFull, group_of

SCHEMA_VERSION = 1
"""Kept in the file as PRAGMA user_version; 0 is what SQLite gives a file that nobody has written yet."""

PAGES_KIB = 256
"""KiB of pages that SQLite keeps; it would keep two mebibytes."""

_SCHEMA = (
    "CREATE TABLE rows (tbl TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,"
    " due REAL, PRIMARY KEY (tbl, key)) WITHOUT ROWID",
    "CREATE INDEX rows_due ON rows (tbl, due) WHERE due IS NOT NULL",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def prepare(connection: sqlite3.Connection, *, wal: bool, patience: float) -> None:
    """Set up the connection, and the schema where there is none. StoreUnavailable for a foreign file.

    Waits ``patience`` seconds for others that are opening the file at the same time.
    """
    _set_journal(connection, "WAL" if wal else "DELETE", patience)
    # With a log, NORMAL loses nothing when the process dies, only the latest writes when the power does; it
    # spares a sync of the disk per transaction. A rollback journal needs its syncs.
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if wal else 'FULL'}")
    # The pages are in the system's memory as well, and reading one from there costs less than can be measured.
    connection.execute(f"PRAGMA cache_size = -{PAGES_KIB}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        _check_schema(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _set_journal(connection: sqlite3.Connection, mode: str, patience: float) -> None:
    # Changing the mode takes the file for itself and, where two do it at once, fails without the wait that the
    # connection's timeout gives to everything else.
    deadline = time.monotonic() + patience
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {mode}")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _check_schema(connection: sqlite3.Connection) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == SCHEMA_VERSION:
        return
    if found > SCHEMA_VERSION:
        raise StoreUnavailable(
            f"The state file was written by a newer version of the adapter (schema {found}, this one reads"
            f" {SCHEMA_VERSION}): upgrade, or configure another file."
        )
    if connection.execute("SELECT 1 FROM sqlite_master").fetchall():
        raise StoreUnavailable("The state file is a database of another program: configure another file.")
    make_schema(connection)


def make_schema(connection: sqlite3.Connection) -> None:
    """Make the table of an empty database."""
    for statement in _SCHEMA:
        connection.execute(statement)


class TooLong(Exception):
    """A row holds more than its reader has time for."""


def get(table: str, key: str, longest: int, connection: sqlite3.Connection) -> Row | None:
    """Raises TooLong for a value of more than ``longest`` bytes, of which SQLite then reads none."""
    found = connection.execute(
        "SELECT CASE WHEN length(value) <= ? THEN value END, version, due FROM rows WHERE tbl = ? AND key = ?",
        (longest, table, key),
    ).fetchall()
    if found and found[0][0] is None:
        raise TooLong()
    return Row(key, *found[0]) if found else None


def put(
    table: str,
    key: str,
    value: bytes,
    expected: int | None,
    due: float | None,
    longest: int,
    connection: sqlite3.Connection,
) -> Row:
    """Raises TooLong where a value of more than ``longest`` bytes is there, which SQLite might write zeros over."""
    if expected is None:
        written = connection.execute(
            "INSERT INTO rows (tbl, key, value, version, due) VALUES (?, ?, ?, 1, ?)"
            " ON CONFLICT (tbl, key) DO UPDATE SET value = excluded.value, version = version + 1,"
            " due = excluded.due WHERE length(rows.value) <= ? RETURNING version",
            (table, key, value, due, longest),
        ).fetchall()
        if not written:
            raise TooLong()
        return Row(key, value, written[0][0], due)
    if expected == ABSENT:
        cursor = connection.execute(
            "INSERT INTO rows (tbl, key, value, version, due) VALUES (?, ?, ?, 1, ?)"
            " ON CONFLICT (tbl, key) DO NOTHING",
            (table, key, value, due),
        )
    else:
        cursor = connection.execute(
            "UPDATE rows SET value = ?, version = version + 1, due = ?"
            " WHERE tbl = ? AND key = ? AND version = ? AND length(value) <= ?",
            (value, due, table, key, expected, longest),
        )
    if cursor.rowcount == 0:
        get(table, key, longest, connection)
        raise Conflict(f"the row is not at version {expected}")
    return Row(key, value, expected + 1, due)


@contextlib.contextmanager
def savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Undo what the block has written if it raises, and nothing else: others share the transaction."""
    connection.execute("SAVEPOINT changes")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite may have undone all of it by itself
            connection.execute("ROLLBACK TO changes")
        raise
    finally:
        if connection.in_transaction:
            connection.execute("RELEASE changes")


def commit(changes: Sequence[Change], connection: sqlite3.Connection) -> list[Row]:
    rows = []
    with savepoint(connection):
        for change in changes:
            if isinstance(change, Put):
                rows.append(put_one(change, connection))
            else:
                delete_one(change, connection)
    return rows


def put_one(change: Put, connection: sqlite3.Connection) -> Row:
    """Write a row. Raises Conflict, TableFull."""
    if (
        change.most is not None
        and change.expected in (None, ABSENT)  # else it is a conflict, and no row is created
        and get(change.table, change.key, sys.maxsize, connection) is None
        and count(change.table, group_of(change.key), connection) >= change.most
    ):
        raise TableFull(f"{change.table} may have {change.most} rows of a group")
    return put(change.table, change.key, change.value, change.expected, change.due, sys.maxsize, connection)


def delete_one(change: Delete, connection: sqlite3.Connection) -> None:
    """Delete a row, which must be there if it is expected at a version. Raises Conflict."""
    gone = delete(change.table, change.key, change.expected, sys.maxsize, connection)
    if change.expected is not None and not gone:
        raise Conflict("the row is not there")


def delete(table: str, key: str, expected: int | None, longest: int, connection: sqlite3.Connection) -> bool:
    """Raises TooLong as ``put``."""
    if expected is None:
        gone = connection.execute(
            "DELETE FROM rows WHERE tbl = ? AND key = ? AND length(value) <= ?", (table, key, longest)
        )
    else:
        gone = connection.execute(
            "DELETE FROM rows WHERE tbl = ? AND key = ? AND version = ? AND length(value) <= ?",
            (table, key, expected, longest),
        )
    if gone.rowcount > 0:
        return True
    if (found := get(table, key, longest, connection)) is None:
        return False
    if expected in (None, found.version):  # another process has written it meanwhile
        return delete(table, key, expected, longest, connection)
    raise Conflict(f"the row is not at version {expected}")


def touch(table: str, dues: dict[str, float], connection: sqlite3.Connection) -> None:
    connection.executemany(
        "UPDATE rows SET due = ?1 WHERE tbl = ?2 AND key = ?3 AND (due IS NULL OR due < ?1)",
        [(due, table, key) for key, due in dues.items()],
    )


_OF_GROUP = "tbl = ? AND key >= ? AND key < ? AND (key = ? OR key >= ?)"


def _bounds(group: str | None) -> tuple[str, str, str, str]:
    """The parameters of ``_OF_GROUP`` behind the table: a key is the group itself, or begins with it and a slash.

    ``0`` is the character behind the slash; between the group and the slash there are keys of other groups.
    """
    if group is None:
        return "", _LAST, "", ""
    if "/" in group:
        return "", "", "", ""  # no row's group has one
    return group, f"{group}0", group, f"{group}/"


_LAST = "\U0010ffff"
"""Behind every key: no key begins with the last of all characters."""

_SCAN = f"SELECT key, value, version, due FROM rows WHERE {_OF_GROUP} AND key > ? ORDER BY key LIMIT ?"  # noqa: S608 - constants
_COUNT = f"SELECT count(*) FROM rows WHERE {_OF_GROUP}"  # noqa: S608 - constants


def scan(table: str, group: str | None, after: str, limit: int, connection: sqlite3.Connection) -> list[Row]:
    found = connection.execute(_SCAN, (table, *_bounds(group), after, limit))
    return [Row(*fields) for fields in found]


def overdue(table: str, now: float, limit: int, connection: sqlite3.Connection) -> list[Row]:
    found = connection.execute(
        "SELECT key, value, version, due FROM rows WHERE tbl = ? AND due <= ? ORDER BY due, key LIMIT ?",
        (table, now, limit),
    )
    return [Row(*fields) for fields in found]


def count(table: str, group: str | None, connection: sqlite3.Connection) -> int:
    (rows,) = connection.execute(_COUNT, (table, *_bounds(group))).fetchone()
    return int(rows)


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


MOMENT = 8
"""Bytes of a moment at which something was counted."""

_SWEPT = 2


def spend(
    table: str, key: str, most: int, window: float, now: float, connection: sqlite3.Connection
) -> float:
    """Returns the seconds until a use can be counted, 0.0 if it was. The moments are the value of a row."""
    found = connection.execute("SELECT value FROM rows WHERE tbl = ? AND key = ?", (table, key)).fetchall()
    moments: array[float] = array("d", found[0][0] if found else b"")
    # A moment that is still to come was written before the clock was put back.
    counted = [moment for moment in moments if moment <= now < moment + window]
    if len(counted) >= most:
        return counted[-most] + window - now
    # Two go for one that comes, so that none pile up.
    connection.execute(
        "DELETE FROM rows WHERE (tbl, key) IN (SELECT tbl, key FROM rows WHERE tbl = ? AND due <= ? LIMIT ?)",
        (table, now, _SWEPT),
    )
    connection.execute(
        "INSERT INTO rows (tbl, key, value, version, due) VALUES (?, ?, ?, 1, ?) ON CONFLICT (tbl, key) DO UPDATE"
        " SET value = excluded.value, version = version + 1, due = excluded.due",
        (table, key, array("d", [*counted, now]).tobytes(), now + window),
    )
    return 0.0


def clear(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM rows")


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
        # An error of the module itself, as for a type that no row can hold, has no code.
        if len(batch) == 1 or getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY:
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
