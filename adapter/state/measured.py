"""A state store whose operations are counted, with the time that each takes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from adapter.errors import StoreUnavailable
from adapter.rules.metrics.catalogue import CLEANUP_REMOVED, STORE_DURATION
from adapter.rules.metrics.port import MetricSink
from adapter.state.port import STORE_ONLY, Change, Conflict, Delete, Row, Store

T = TypeVar("T")


class MeasuredStore:
    """A Store that counts into ``sink``; what the cleanup deletes is counted by table."""

    def __init__(self, store: Store, sink: MetricSink) -> None:
        self.listeners = store.listeners
        self._store = store
        self._sink = sink

    def __repr__(self) -> str:
        return f"<MeasuredStore of {self._store!r}>"

    @property
    def shared(self) -> bool:
        """See Store."""
        return self._store.shared

    async def _timed(self, operation: str, work: Awaitable[T]) -> T:
        began, result = time.perf_counter(), "failed"
        try:
            outcome = await work
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

    def _removed(self, table: str) -> None:
        if STORE_ONLY.get():
            self._sink.count(CLEANUP_REMOVED, table)

    async def open(self) -> None:
        """See Store."""
        await self._timed("open", self._store.open())

    async def close(self) -> None:
        """See Store."""
        await self._store.close()

    async def get(self, table: str, key: str) -> Row | None:
        """See Store."""
        return await self._timed("get", self._store.get(table, key))

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        """See Store."""
        return await self._timed("put", self._store.put(table, key, value, expected=expected, due=due))

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        """See Store."""
        rows = await self._timed("commit", self._store.commit(changes))
        for change in changes:
            if isinstance(change, Delete):
                self._removed(change.table)
        return rows

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        """See Store."""
        was_there = await self._timed("delete", self._store.delete(table, key, expected=expected))
        if was_there:
            self._removed(table)
        return was_there

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        """See Store."""
        await self._timed("touch", self._store.touch(table, dues))

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        """See Store."""
        return await self._timed("scan", self._store.scan(table, group=group, after=after, limit=limit))

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        """See Store."""
        return await self._timed("overdue", self._store.overdue(table, now, limit=limit))

    async def count(self, table: str, *, group: str | None = None) -> int:
        """See Store."""
        return await self._timed("count", self._store.count(table, group=group))

    async def spend(self, table: str, key: str, most: int, window: float) -> float:
        """See Store."""
        return await self._timed("spend", self._store.spend(table, key, most, window))

    def announce(self, topic: str, body: bytes) -> None:
        """See Store."""
        self._store.announce(topic, body)
