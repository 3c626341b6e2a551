"""Stores that watch another one: if it can be written (from a full disk everything can still be read), and how long its
operations take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

from adapter.errors import StoreUnavailable
from adapter.rules.metrics.catalogue import CLEANUP_REMOVED, STORE_DURATION
from adapter.rules.metrics.metric import MetricSink
from adapter.state.port import STORE_ONLY, Change, Conflict, Delete, Put, Row, Store

P = ParamSpec("P")
T = TypeVar("T")

TABLE = "health"
KEY = "written"

FRESH = 2.0
"""Seconds for which a write that succeeded tells of the store."""

AGAIN = 0.25
"""Seconds after which a store that failed is tried again, where somebody asks."""

SMALLEST, LARGEST = 4 << 10, 1 << 20
"""Bytes of the row that is written to find out: as many as the last write that failed had, within these."""


class WatchedStore:
    """A Store that notes the outcome of every write. ``now`` is a clock that never goes back, in seconds.

    ``outage`` gives a word for health while ``store`` stands in for one that fails, else None.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float] = time.monotonic,
        outage: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.outage = outage
        self.listeners, self.shared = store.listeners, store.shared
        self.open, self.close, self.announce = store.open, store.close, store.announce
        self.get, self.scan, self.overdue = store.get, store.scan, store.overdue
        self.count, self.spend = store.count, store.spend
        self._store = store
        self._now = now
        self._failure: StoreUnavailable | None = None
        self._known_until = float("-inf")
        self._size = SMALLEST
        self._trying: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<WatchedStore {self._store!r}: {self._failure or 'can be written'}>"

    async def failure(self) -> StoreUnavailable | None:
        """The failure of the store if it cannot be written now, else None.

        Without a recent write it is found out by a small one, which all callers share.
        """
        if self._now() >= self._known_until:
            if self._trying is None:
                self._trying = asyncio.ensure_future(self._try())
            await asyncio.shield(self._trying)
        return self._failure

    async def _try(self) -> None:
        try:
            # The failure is noted; nobody asked for this row.
            await self._noted(self._store.put(TABLE, KEY, bytes(self._size)), self._size)
        except StoreUnavailable:
            pass
        finally:
            self._trying = None

    async def _noted(self, write: Awaitable[T], size: int = 0) -> T:
        """The outcome of a write of ``size`` bytes. A successful write of none proves nothing: deleting an absent row
        writes nothing.
        """
        try:
            written = await write
        except StoreUnavailable as error:
            self._failure = error
            self._size = max(self._size, min(size, LARGEST))
            self._known_until = self._now() + AGAIN
            raise
        if size and (self._failure is None or size >= self._size):
            self._failure, self._size = None, SMALLEST
            self._known_until = self._now() + FRESH
        return written

    # --- the store --------------------------------------------------------------------------------------------

    def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Coroutine[Any, Any, Row]:
        return self._noted(self._store.put(table, key, value, expected=expected, due=due), len(value))

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        size = sum(len(change.value) for change in changes if isinstance(change, Put))
        return await self._noted(self._store.commit(changes), size)

    def delete(self, table: str, key: str, *, expected: int | None = None) -> Coroutine[Any, Any, bool]:
        return self._noted(self._store.delete(table, key, expected=expected))

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        await self._noted(self._store.touch(table, dues))


class MeasuredStore:
    """A Store that counts into ``sink``; what the cleanup deletes is counted by table."""

    def __init__(self, store: Store, sink: MetricSink) -> None:
        self.listeners, self.shared = store.listeners, store.shared
        self._store = store
        self._sink = sink
        self.close, self.announce = store.close, store.announce
        self.open = self._timed("open", store.open)
        self.get = self._timed("get", store.get)
        self.put = self._timed("put", store.put)
        self.touch = self._timed("touch", store.touch)
        self.scan = self._timed("scan", store.scan)
        self.overdue = self._timed("overdue", store.overdue)
        self.count = self._timed("count", store.count)
        self.spend = self._timed("spend", store.spend)
        self._commit = self._timed("commit", store.commit)
        self._delete = self._timed("delete", store.delete)

    def __repr__(self) -> str:
        return f"<MeasuredStore of {self._store!r}>"

    def _timed(
        self, operation: str, method: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            began, result = time.perf_counter(), "failed"
            try:
                outcome = await method(*args, **kwargs)
                result = "ok"
                return outcome
            except Conflict:
                result = "conflict"
                raise
            except StoreUnavailable:
                result = "unavailable"
                raise
            finally:
                self._sink.observe(STORE_DURATION, time.perf_counter() - began, operation, result)

        return timed

    def _removed(self, table: str) -> None:
        if STORE_ONLY.get():
            self._sink.count(CLEANUP_REMOVED, table)

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        """See Store."""
        rows = await self._commit(changes)
        for change in changes:
            if isinstance(change, Delete):
                self._removed(change.table)
        return rows

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        """See Store."""
        was_there = await self._delete(table, key, expected=expected)
        if was_there:
            self._removed(table)
        return was_there
