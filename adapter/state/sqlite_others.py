"""What other processes do to a SQLite file that they share: changes of any row, and announcements.

Nobody is told by SQLite. Each process asks for ``PRAGMA data_version``, which takes microseconds, and the number
differs once another one has committed. Announcements are rows that this shows as well: each has a number that counts
up in the order of the commits, and whoever has read one reads only later ones.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from adapter.errors import StoreUnavailable
from adapter.state.port import StoreListener, tell_all
from adapter.state.sql import Run, unavailable

LOOK_EVERY = 0.05
"""Seconds between two looks at the file."""

LONGEST_UNSEEN = 1.0
"""Seconds without a look after which anything may have changed."""

TABLE = "announcements"
COUNTER = ""
"""The key of the row whose version is the number of the latest announcement: before every number."""

KEPT = 10.0
"""Seconds that an announcement stays in the file: a process that does not look for longer misses it."""

AT_ONCE = 16
"""Announcements that are read in one turn of the loop."""

LONGEST_BODY = 64 << 10
"""Bytes of an announcement; see Store."""

_AUTHOR = 16
"""Bytes at the beginning of an announcement that tell its store from all others."""

_UNKNOWN = methodcaller("rows_unknown")

Submit = Callable[..., asyncio.Future[Any]]


class OtherProcesses:
    """Tells ``listeners`` of other processes. ``submit`` does a write of the store.

    Between ``begin`` and ``end`` it looks by itself, with the connection that the store uses. While ``busy`` says that
    a thread has it, the look waits for ``missed``.
    """

    def __init__(self, listeners: Sequence[StoreListener], submit: Submit, busy: Callable[[], bool]) -> None:
        self._listeners = listeners
        self._submit = submit
        self._busy = busy
        self._author = secrets.token_bytes(_AUTHOR)
        self._loop: asyncio.AbstractEventLoop
        self._connection: sqlite3.Connection
        self._timer: asyncio.TimerHandle | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._seen_at = 0.0
        self._version = 0
        self._latest = _key(0)
        self.missed = False
        """True while a look is due that a thread's work has held up; ``look`` is to be called then."""

    def begin(self, loop: asyncio.AbstractEventLoop, connection: sqlite3.Connection) -> None:
        """Look from now on. What was announced before is not told. Raises StoreUnavailable."""
        self._loop, self._connection = loop, connection
        try:
            self._version = _data_version(connection)
            self._latest = _key(_number(connection))
        except sqlite3.Error as error:
            raise unavailable(error) from error
        self._seen_at = loop.time()
        self._timer = loop.call_later(LOOK_EVERY, self._due)

    def end(self) -> None:
        """Look no more."""
        for timer in (self._timer, self._tidying):
            if timer is not None:
                timer.cancel()
        self._timer = self._tidying = None

    def _due(self) -> None:
        self._timer = self._loop.call_later(LOOK_EVERY, self._due)
        self.missed = True
        if not self._busy():
            self.look()
        elif self._loop.time() - self._seen_at > LONGEST_UNSEEN:
            self._unknown()

    def look(self) -> None:
        """Look at the file, and tell what is new. The caller sees to it that nobody uses the connection."""
        if self._timer is None:
            return
        self.missed = False
        try:
            version = _data_version(self._connection)
            changed = version != self._version
            announced = _announced(self._latest, self._connection) if changed else []
        except sqlite3.Error:
            # Another process has the file for itself, or the disk fails: nothing is known, and it is tried again.
            self._unknown()
            return
        self._seen_at = self._loop.time()
        if not changed:
            return
        if len(announced) < AT_ONCE:
            self._version = version
        else:
            self._loop.call_soon(self._look_again)
        tell_all(self._listeners, _UNKNOWN)
        for key, value in announced:
            self._latest = key
            self._tell(value)

    def _look_again(self) -> None:
        self.missed = True
        if not self._busy():
            self.look()

    def _unknown(self) -> None:
        self._seen_at = self._loop.time()
        tell_all(self._listeners, _UNKNOWN)

    def _tell(self, value: bytes) -> None:
        author, size = value[:_AUTHOR], value[_AUTHOR]
        if author == self._author:
            return
        begin = _AUTHOR + 1
        topic, body = value[begin : begin + size].decode(), value[begin + size :]
        tell_all(self._listeners, methodcaller("announced", topic, body))

    # --- announcing ---------------------------------------------------------------------------------------------

    def announce(self, topic: str, body: bytes) -> None:
        """See Store. ``topic`` has at most 255 bytes. Raises ValueError for more of either."""
        name = topic.encode()
        if len(name) > 255 or len(body) > LONGEST_BODY:
            raise ValueError("an announcement has a topic of at most 255 bytes and a body of at most 64 KiB")
        value = b"".join((self._author, bytes((len(name),)), name, body))
        self._write(partial(_announce, value, time.time()), len(value))
        if self._tidying is None:
            self._tidying = self._loop.call_later(2 * KEPT, self._tidy)

    def _tidy(self) -> None:
        """Delete old announcements, of whoever they are, unless the next one of this process does that."""
        self._tidying = None
        self._write(partial(_forget, time.time()), 0)

    def _write(self, write: Run, size: int) -> None:
        try:
            # Its failure is nobody's: nothing is promised of an announcement.
            self._submit(write, write, log=(8 << 10) + size).add_done_callback(_heard)
        except StoreUnavailable:
            return


def _heard(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


def _key(number: int) -> str:
    """The key of an announcement; keys are in the order of the numbers."""
    return f"{number:016x}"


def _data_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _number(connection: sqlite3.Connection) -> int:
    found = connection.execute(
        "SELECT version FROM rows WHERE tbl = ? AND key = ?", (TABLE, COUNTER)
    ).fetchone()
    return int(found[0]) if found else 0


def _announced(after: str, connection: sqlite3.Connection) -> list[tuple[str, bytes]]:
    return connection.execute(
        "SELECT key, value FROM rows WHERE tbl = ? AND key > ? ORDER BY key LIMIT ?", (TABLE, after, AT_ONCE)
    ).fetchall()


def _announce(value: bytes, now: float, connection: sqlite3.Connection) -> None:
    """Write an announcement under the next number, which no other process can have taken: the transaction writes."""
    _forget(now, connection)
    connection.execute(
        "INSERT INTO rows (tbl, key, value, version) VALUES (?, ?, x'', 1)"
        " ON CONFLICT (tbl, key) DO UPDATE SET version = version + 1",
        (TABLE, COUNTER),
    )
    connection.execute(
        "INSERT INTO rows (tbl, key, value, version, due) VALUES (?, ?, ?, 1, ?)",
        (TABLE, _key(_number(connection)), value, now + KEPT),
    )


def _forget(now: float, connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM rows WHERE tbl = ? AND due <= ?", (TABLE, now))
