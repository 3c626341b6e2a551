"""Several replicas in one process: rows in memory that they share, and a store for each of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from operator import methodcaller

from adapter.errors import StoreUnavailable
from adapter.state.port import Change, Row, StoreListener
from adapter.state.sqlite import MemoryStore
from tests.waiting import until

Hook = Callable[[str, str], Awaitable[None]]
"""Called with the table and the key of a row before it is read or written; it may wait, or raise StoreUnavailable."""


class SharedMemory:
    """Rows that replicas share. ``echoes``: a replica also hears of its own writes, as some stores have it."""

    def __init__(self, *, echoes: bool = False) -> None:
        self.rows = MemoryStore()
        self.echoes = echoes
        self.replicas: list[ReplicaStore] = []

    def replica(self) -> ReplicaStore:
        """A store for one more replica."""
        view = ReplicaStore(self)
        self.replicas.append(view)
        return view


class ReplicaStore:
    """A Store that one replica uses, and that tells it of the others' writes in a later turn of the loop.

    ``down``: it cannot be reached. ``deaf``: no word of others arrives; ``unsure`` is what it is told then from time to
    time. ``swallows`` is the number of writes that are done although they seem to fail. ``calls`` counts the calls of
    each method.
    """

    shared = True

    def __init__(self, memory: SharedMemory) -> None:
        self.listeners: list[StoreListener] = []
        self.down = False
        self.deaf = False
        self.swallows = 0
        self.calls: Counter[str] = Counter()
        self.before: Hook | None = None
        self._under_way = 0
        self._memory = memory

    def __repr__(self) -> str:
        return f"<ReplicaStore: {self._memory.rows!r}{', down' if self.down else ''}>"

    async def open(self) -> None:
        if self not in self._memory.replicas:
            self._memory.replicas.append(self)

    async def close(self) -> None:
        await until(lambda: not self._under_way)
        if self in self._memory.replicas:
            self._memory.replicas.remove(self)

    def unsure(self) -> None:
        """Tell the listeners that words may have been missed."""
        for listener in list(self.listeners):
            listener.rows_unknown()

    # --- rows -------------------------------------------------------------------------------------------------

    async def get(self, table: str, key: str) -> Row | None:
        await self._begin("get", table, key)
        return await self._memory.rows.get(table, key)

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        await self._begin("put", table, key)
        row = await self._memory.rows.put(table, key, value, expected=expected, due=due)
        self._written((table, key))
        return row

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        for change in changes:
            await self._begin("commit", change.table, change.key)
        rows = await self._memory.rows.commit(changes)
        self._written(*((change.table, change.key) for change in changes))
        return rows

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        await self._begin("delete", table, key)
        there = await self._memory.rows.delete(table, key, expected=expected)
        if there:
            self._written((table, key))
        return there

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        await self._begin("touch", table, "")
        await self._memory.rows.touch(table, dues)

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        await self._begin("scan", table, group or "")
        return await self._memory.rows.scan(table, group=group, after=after, limit=limit)

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        await self._begin("overdue", table, "")
        return await self._memory.rows.overdue(table, now, limit=limit)

    async def count(self, table: str, *, group: str | None = None) -> int:
        await self._begin("count", table, group or "")
        return await self._memory.rows.count(table, group=group)

    async def spend(self, table: str, key: str, most: int, window: float) -> float:
        await self._begin("spend", table, key)
        return await self._memory.rows.spend(table, key, most, window)

    def announce(self, topic: str, body: bytes) -> None:
        assert len(body) <= 64 << 10
        if not self.down:
            self._tell_others(methodcaller("announced", topic, body))

    # --- words ------------------------------------------------------------------------------------------------

    async def _begin(self, method: str, table: str, key: str) -> None:
        self.calls[method] += 1
        self._under_way += 1
        try:
            # A round trip takes a turn of the loop, so that others may write in between.
            await asyncio.sleep(0)
            if self.before is not None:
                await self.before(table, key)
        finally:
            self._under_way -= 1
        if self.down:
            raise StoreUnavailable("The shared store cannot be reached.")

    def _written(self, *rows: tuple[str, str]) -> None:
        for table, key in rows:
            self._tell_others(methodcaller("row_changed", table, key))
        if self.swallows:
            self.swallows -= 1
            raise StoreUnavailable("The connection broke before the answer.")

    def _tell_others(self, tell: Callable[[StoreListener], None]) -> None:
        loop = asyncio.get_running_loop()
        for replica in self._memory.replicas:
            if not replica.deaf and (replica is not self or self._memory.echoes):
                for listener in replica.listeners:
                    loop.call_soon(tell, listener)
