"""The state store's port: rows in named tables, with versions, so that two writers cannot both win.

Behind it is what works with any store: reading and deleting page by page, and telling listeners.

Several processes may share a store. What one of them keeps of it in memory is a cache; a StoreListener tells when
it is old.

Rows that are known beside the store: whether what a read brings is right, or was overtaken by a change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

ABSENT = 0
"""The version of a row that does not exist: ``put(…, expected=ABSENT)`` creates or refuses."""


STORE_ONLY: ContextVar[bool] = ContextVar("store only", default=False)
"""Whether this task gets StoreUnavailable where others get what a process remembers of a store that fails.

For work to which a row that is not known looks as if it were gone, such as deleting files without a record.
"""


@contextlib.contextmanager
def store_only() -> Iterator[None]:
    """Ask the store itself within the block; see STORE_ONLY."""
    token = STORE_ONLY.set(True)
    try:
        yield
    finally:
        STORE_ONLY.reset(token)


@dataclass(frozen=True, slots=True)
class Row:
    """``version`` counts up from 1 with every write; ``due`` is Unix time in seconds, or None: never due."""

    key: str
    value: bytes
    version: int
    due: float | None


def group_of(key: str) -> str:
    """The group of a row: its key up to the first slash, or the whole key.

    Rows of one group lie together wherever a store divides its rows, also those of different tables.
    """
    return key.partition("/")[0]


class Put(NamedTuple):
    """A row to write. ``expected`` as for ``Store.put``; ``due`` is Unix time in seconds.

    ``most``: the row is only created while its table then has at most so many rows of its group; for rows that are to
    be created, with ``expected=ABSENT``.
    """

    table: str
    key: str
    value: bytes
    due: float | None = None
    expected: int | None = None
    most: int | None = None


class Delete(NamedTuple):
    """A row to delete. Without ``expected`` an absent row is passed over, with it that is a conflict."""

    table: str
    key: str
    expected: int | None = None


Change: TypeAlias = Put | Delete


def group_of_all(changes: Iterable[Change]) -> str:
    """The group that all these changes concern. Raises ValueError for changes of several groups, or for none."""
    groups = {group_of(change.key) for change in changes}
    if len(groups) != 1:
        raise ValueError(f"a commit changes rows of one group, not of {len(groups)}")
    return groups.pop()


class Conflict(Exception):
    """The row was not at the expected version, because another writer was first. Read it again and decide anew."""


class TableFull(Conflict):
    """The group has as many rows in the table as it may have."""


class StoreListener(Protocol):
    """Hears what other processes do to the store, on the event loop that opened it. It must return at once.

    Whoever inherits from it writes the methods of what it wants to hear.
    """

    def row_changed(self, table: str, key: str) -> None:  # noqa: ARG002 (heirs read it)
        """Another process has written or deleted this row. The word may come late, or for a change that was made
        here."""
        return

    def rows_unknown(self) -> None:
        """Changes may have been missed: any row that was read before may be old.

        While the word of others does not arrive at all, this is called at least every
        ``state_persistence.cache_seconds``.
        """
        return

    def announced(self, topic: str, body: bytes) -> None:  # noqa: ARG002 (heirs read it)
        """Another process has announced something."""
        return


class Store(Protocol):
    """Rows in named tables. Every method raises StoreUnavailable if the store fails, and else only what it names.

    A write that failed may have been done all the same. ``listeners`` are told of what other processes do. ``shared``:
    other processes may use the same rows; where it is False nobody else does, and no work is done for others.
    """

    listeners: list[StoreListener]

    @property
    def shared(self) -> bool: ...

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Finish every write under way, then let go of the store."""

    async def get(self, table: str, key: str) -> Row | None: ...

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        """Write a row and return it; durable against a killed process when this returns.

        ``expected`` is the version the row must have (ABSENT: must not exist), None writes in any case.
        Raises Conflict.
        """

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        """Make changes of one group in the order given, in one step: everything or nothing, durable when this returns.

        Each sees what those before it have left. Returns the rows written, in that order. Raises Conflict, TableFull,
        and ValueError for rows of several groups; no changes are no error.
        """

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        """True if the row was there. Raises Conflict if it was there at another version than ``expected``."""

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        """Move ``due`` of many rows forward at once, without changing value or version.

        Rows that are due later stay as they are, and absent ones are passed over. Listeners are not told.
        """

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        """Rows with a key above ``after``, in order of key (bytes of UTF-8); of one group, or of all."""

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        """Rows with ``due <= now``, the longest overdue first."""

    async def count(self, table: str, *, group: str | None = None) -> int:
        """The number of rows of one group, or of all."""

    async def spend(self, table: str, key: str, most: int, window: float) -> float:
        """Count one use of ``key``, unless ``most`` were counted in the last ``window`` seconds, by the store's clock.

        Reading and counting are one step, and one request. Returns 0.0 if it was counted, else the seconds until one
        will be. What is counted is no row: it ends with its window, and no listener is told.
        """

    def announce(self, topic: str, body: bytes) -> None:
        """Tell the listeners of all other processes, soon and without a promise: nothing is known of who hears it.

        ``body`` has at most 64 KiB.
        """


def tell_all(listeners: Iterable[StoreListener], tell: Callable[[StoreListener], None]) -> None:
    """Tell each of the listeners, also where one of them fails: one fault must not make all of them deaf.

    The failure goes to the exception handler of the event loop.
    """
    for listener in list(listeners):
        try:
            tell(listener)
        except Exception as error:
            context = {"message": "a listener of the state store failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


PAGE = 500
"""Rows that are asked for at once."""


async def every_row(store: Store, table: str, group: str | None = None) -> AsyncIterator[Row]:
    """The rows of a table, of one group or of all, in order of key. Raises StoreUnavailable.

    A row that is written or deleted meanwhile may be among them or not.
    """
    after = ""
    while True:
        rows = await store.scan(table, group=group, after=after, limit=PAGE)
        for row in rows:
            yield row
        # No store gives fewer rows than it was asked for while it has more.
        if len(rows) < PAGE:
            return
        after = rows[-1].key


async def delete_overdue(store: Store, table: str, now: float) -> None:
    """Delete the rows that are due at ``now`` (Unix seconds), but for those that change meanwhile.

    Raises StoreUnavailable when the deletions under way have ended.
    """
    while True:
        rows = await store.overdue(table, now, limit=PAGE)
        ended = await asyncio.gather(*(_delete(store, table, row) for row in rows), return_exceptions=True)
        for failure in ended:
            if failure is not None:
                raise failure
        # A row that changed is left for the next time, so that no writer can keep this one busy.
        if len(rows) < PAGE:
            return


async def _delete(store: Store, table: str, row: Row) -> None:
    with contextlib.suppress(Conflict):
        await store.delete(table, row.key, expected=row.version)


STALE = -1
"""The epoch of what has to be read again before it is used."""


class RowRead:
    """A read of a row. What it brings is right in its ``epoch``; STALE: it may be old already."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class RowReads:
    """The reads of rows that are under way. ``epoch`` counts the times that any row may have changed: what is known is
    fresh while its own epoch is that one.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._under_way: dict[str, list[RowRead]] = {}

    @contextmanager
    def reading(self, key: str) -> Iterator[RowRead]:
        """Read the row of that key within the block."""
        read = RowRead(self.epoch)
        reads = self._under_way.setdefault(key, [])
        reads.append(read)
        try:
            yield read
        finally:
            reads.remove(read)
            if not reads:
                del self._under_way[key]

    def changed(self, key: str) -> None:
        """Somebody wrote the row: reads of it that are under way may bring what was there before."""
        for read in self._under_way.get(key, ()):
            read.epoch = STALE
