"""A store that goes on in memory while the store behind it fails, and returns to it.

What is kept: the rows that this process used last, as it knew them. A row that another process changed is not served
from the moment when that was heard; one that is not known here counts as absent. What is written meanwhile is written
back where the store still has the version that it rests on, and else it is lost, for the other process was first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import methodcaller
from typing import NamedTuple, TypeAlias, TypeVar

from structlog.typing import FilteringBoundLogger

from adapter.errors import StoreUnavailable
from adapter.state.port import (
    ABSENT,
    STORE_ONLY,
    Change,
    Conflict,
    Delete,
    Put,
    Row,
    Store,
    StoreListener,
    tell_all,
)
from adapter.state.remembered import RememberedRows, RowId

T = TypeVar("T")
Known: TypeAlias = Iterable[tuple[str, str, Row | None]]
"""Rows of tables with their keys, None for one that is not there."""

TABLE = "health"
KEY = "returned"

RETRY = 1.0
"""Seconds between two attempts to return."""

PROBE = 4 << 10
"""Bytes that the store has to take before anything is written back."""


class Outage(NamedTuple):
    """``since`` is a time of the clock that never goes back, ``reason`` a word for health."""

    since: float
    why: str
    reason: str


class FallbackStore(StoreListener):
    """A Store; see above. ``on_return`` is awaited after an outage that began before the store was ever open, or in
    which something was lost: what this process read from it then, such as secrets, is to be read again.

    ``retry`` is in seconds.
    """

    def __init__(
        self,
        store: Store,
        log: FilteringBoundLogger,
        rows: RememberedRows | None = None,
        retry: float = RETRY,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.listeners, self.shared = store.listeners, store.shared
        self.listeners.append(self)
        self.on_return: list[Callable[[], Awaitable[None]]] = []
        self.outage: Outage | None = None
        self.on_step: Callable[[str, str], None] | None = None
        """Is told that it goes on in memory, or has returned, and of when that began; None where nobody counts."""
        self._store = store
        self._log = log
        self._rows = rows or RememberedRows()
        self._retry = retry
        self._now = now
        self._was_open = False
        self._is_unread = False
        # Of each read or write that is under way, the rows that others have changed since it began.
        self._overtaken: dict[int, set[RowId]] = {}
        # What writes that seemed to fail have written, if they were done all the same.
        self._attempted: dict[RowId, set[bytes]] = {}
        self._returning: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "in use" if self.outage is None else f"away: {self.outage.why}"
        return f"<FallbackStore: {self._store!r} {state}, {self._rows!r}>"

    def reason(self) -> str | None:
        """The word for health while the store is away."""
        return None if self.outage is None else self.outage.reason

    # --- words of others --------------------------------------------------------------------------------------

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener. What was known of the row is not served any more."""
        place = RowId(table, key)
        for overtaken in self._overtaken.values():
            overtaken.add(place)
        self._rows.forget(place)

    def store_lost(self) -> None:
        """Serve nothing of what the store had before it lost its data."""
        if self.outage is None:
            self._rows.lose_all()

    # --- the store --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        try:
            await self._store.open()
            self._was_open = True
        except StoreUnavailable as error:
            self._leave(error)

    async def close(self) -> None:
        """Write back what can be, and let go of the store."""
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.wait((self._returning,))
        if self.outage is not None:
            await self._leave_nothing(self.outage)
        if self._was_open:
            with contextlib.suppress(StoreUnavailable):
                await self._store.close()

    async def get(self, table: str, key: str) -> Row | None:
        return await self._done(lambda at: at.get(table, key), lambda row: [(table, key, row)])

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        return await self._done(
            lambda at: at.put(table, key, value, expected=expected, due=due),
            lambda row: [(table, key, row)],
            (Put(table, key, value),),
        )

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        def known(rows: list[Row]) -> Known:
            written = iter(rows)
            return [
                (each.table, each.key, None if isinstance(each, Delete) else next(written))
                for each in changes
            ]

        return await self._done(lambda at: at.commit(changes), known, changes)

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        return await self._done(
            lambda at: at.delete(table, key, expected=expected), lambda _: [(table, key, None)]
        )

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        await self._done(lambda at: at.touch(table, dues))
        await self._rows.touch(table, dues)

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        return await self._done(
            lambda at: at.scan(table, group=group, after=after, limit=limit),
            lambda rows: [(table, row.key, row) for row in rows],
        )

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        return await self._done(lambda at: at.overdue(table, now, limit=limit))

    async def count(self, table: str, *, group: str | None = None) -> int:
        return await self._done(lambda at: at.count(table, group=group))

    async def spend(self, table: str, key: str, most: int, window: float) -> float:
        return await self._done(lambda at: at.spend(table, key, most, window))

    async def _done(
        self,
        ask: Callable[[Store], Awaitable[T]],
        known: Callable[[T], Known] = lambda _: (),
        changes: Sequence[Change] = (),
    ) -> T:
        """What the store answers, or else the rows that are known here; ``known`` are those that its answer shows.

        ``changes`` are those that it may have made although it failed.
        """
        if self.outage is None:
            overtaken = set[RowId]()
            self._overtaken[id(overtaken)] = overtaken
            try:
                answer = await ask(self._store)
            except StoreUnavailable as error:
                self._leave(error, *changes)
            else:
                for table, key, row in known(answer):
                    # The word of a later change may come before what was read.
                    if row is None or (table, key) in overtaken:
                        self._rows.forget(RowId(table, key))
                    else:
                        self._rows.know(table, row)
                return answer
            finally:
                del self._overtaken[id(overtaken)]
        return await ask(self._here())

    def _here(self) -> RememberedRows:
        """The rows that are known here. Raises StoreUnavailable for those who need to know all of them."""
        if self.outage is not None and STORE_ONLY.get():
            raise StoreUnavailable(self.outage.why)
        return self._rows

    def announce(self, topic: str, body: bytes) -> None:
        if self.outage is None:
            self._store.announce(topic, body)

    # --- leaving and returning ---------------------------------------------------------------------------------

    def _leave(self, error: StoreUnavailable, *changes: Change) -> None:
        self._attempt(changes)
        if self.outage is not None:
            return
        where = "by_state_store" if self._was_open else "during_startup"
        self.outage = Outage(self._now(), str(error), f"fallback_memory_activated_{where}")
        self._rows.is_away = True
        if self.on_step is not None:
            self.on_step("fallback_activated", "runtime" if self._was_open else "startup")
        self._log.error(
            "the state store failed; going on in memory",
            why=str(error),
            setting="state_persistence.unavailable_policy",
        )
        # One that has just returned may still be reading again; it goes on.
        if self._returning is None or self._returning.done():
            self._returning = asyncio.get_running_loop().create_task(self._return())

    def _attempt(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Put):
                self._attempted.setdefault(RowId(change.table, change.key), set()).add(change.value)

    async def _return(self) -> None:
        """Try to return until that succeeds."""
        while self.outage is not None:
            await asyncio.sleep(self._retry)
            with contextlib.suppress(StoreUnavailable):
                await self._try_to_return(self.outage)

    async def _try_to_return(self, outage: Outage) -> None:
        first = not self._was_open
        if first:
            await self._store.open()
        await self._store.put(TABLE, KEY, bytes(PROBE))
        # What was written before the store was ever read rests on secrets that nobody else knows.
        lost = self._rows.lose_all() if first else await self._write_back()
        # Nothing was waited for since the last row was written back, so none was written here meanwhile.
        self._was_open = True
        self._rows.is_away = False
        self._attempted.clear()
        self.outage = None
        seconds = round(self._now() - outage.since, 1)
        self._log.warning("the state store is back", after=seconds, lost=dict(lost))
        if self.on_step is not None:
            self.on_step("fallback_ended", "startup" if first else "runtime")
        # Until all was read, also where the store fails again in the middle of that.
        self._is_unread = self._is_unread or first or bool(lost)
        if self._is_unread:
            for read_again in self.on_return:
                await read_again()
            self._is_unread = self.outage is not None
        tell_all(self.listeners, methodcaller("rows_unknown"))

    async def _leave_nothing(self, outage: Outage) -> None:
        try:
            await self._try_to_return(outage)
        except StoreUnavailable:
            lost = self._rows.lose_all()
            self._log.warning("the state store was not back in time", lost=dict(lost))

    async def _write_back(self) -> Counter[str]:
        """Write back what was written here. Return the number of rows that were lost, by table."""
        lost = Counter[str]()
        while self._rows.dues or self._rows.bases:
            while places := self._rows.next_back():
                if not await self._written_back(places):
                    lost.update(place.table for place in places)
            await self._touch_back()
        self._rows.together.clear()
        return lost

    async def _touch_back(self) -> None:
        for table in list(self._rows.dues):
            moved = self._rows.dues.pop(table)
            try:
                await self._store.touch(table, moved)
            except StoreUnavailable:
                self._rows.dues[table] = moved | self._rows.dues.get(table, {})
                raise

    async def _written_back(self, places: Sequence[RowId]) -> bool:
        """Write rows of one group back in one step. False if another process has changed one: then they are lost."""
        rows = [self._rows.row(place) for place in places]
        changes: list[Change] = []
        for place, row in zip(places, rows, strict=True):
            if row is None:
                # What ended here must not go on elsewhere, whatever was done to it there. What also began here, as the
                # use of a one-time link that was taken back, is nobody else's.
                if place not in self._rows.made or place in self._attempted:
                    changes.append(Delete(*place))
            else:
                changes.append(Put(*place, row.value, row.due, await self._base(place)))
        try:
            written = iter(await self._store.commit(changes))
        except Conflict:
            for place in places:
                self._rows.lose(place)
            return False
        except StoreUnavailable:
            self._attempt(changes)
            raise
        for place, row in zip(places, rows, strict=True):
            self._rows.written_back(place, row, ABSENT if row is None else next(written).version)
        return True

    async def _base(self, place: RowId) -> int:
        """The version that the store's row has if nobody else has written it."""
        base = self._rows.bases[place]
        attempted = self._attempted.get(place)
        if attempted is None:
            return base
        row = await self._store.get(*place)
        return row.version if row is not None and row.value in attempted else base
