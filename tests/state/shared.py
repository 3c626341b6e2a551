"""One store in memory for several replicas of one test: each has its own view and hears what the others do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from adapter.errors import StoreUnavailable
from adapter.state.memory import MemoryStore
from adapter.state.port import Change, Row, StoreListener


class SharedMemory:
    """The rows that all views share. Words of one view reach the others at the next turn of the loop."""

    def __init__(self) -> None:
        self.rows = MemoryStore()
        self.views: list[SharedView] = []

    def view(self) -> SharedView:
        """The store of one more replica."""
        view = SharedView(self)
        self.views.append(view)
        return view


class SharedView:
    """A Store that tells the other views what it writes.

    ``hears``: whether words of others arrive; while they do not, ``miss`` says so. ``fails``: each request fails.
    ``requests`` counts them.
    """

    def __init__(self, shared: SharedMemory) -> None:
        self.listeners: list[StoreListener] = []
        self.hears = True
        self.fails = False
        self.requests = 0
        self._shared = shared

    def miss(self) -> None:
        """Tell the listeners that words may have been missed."""
        for listener in list(self.listeners):
            listener.rows_unknown()

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """The rows stay."""

    async def get(self, table: str, key: str) -> Row | None:
        return await self._rows().get(table, key)

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        row = await self._rows().put(table, key, value, expected=expected, due=due)
        self._tell(lambda listener: listener.row_changed(table, key))
        return row

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        rows = await self._rows().commit(changes)
        for change in changes:
            self._tell(lambda listener, change=change: listener.row_changed(change.table, change.key))  # type: ignore[misc]  # mypy infers no type for a default value here
        return rows

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        there = await self._rows().delete(table, key, expected=expected)
        self._tell(lambda listener: listener.row_changed(table, key))
        return there

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        await self._rows().touch(table, dues)

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        return await self._rows().scan(table, group=group, after=after, limit=limit)

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        return await self._rows().overdue(table, now, limit=limit)

    async def count(self, table: str, *, group: str | None = None, holding: bytes = b"") -> int:
        return await self._rows().count(table, group=group, holding=holding)

    def announce(self, topic: str, body: bytes) -> None:
        self._tell(lambda listener: listener.announced(topic, body))

    def _rows(self) -> MemoryStore:
        self.requests += 1
        if self.fails:
            raise StoreUnavailable()
        return self._shared.rows

    def _tell(self, word: Callable[[StoreListener], None]) -> None:
        for view in self._shared.views:
            if view is not self:
                asyncio.get_running_loop().call_soon(view._hear, word)

    def _hear(self, word: Callable[[StoreListener], None]) -> None:
        if self.hears:
            for listener in list(self.listeners):
                word(listener)


async def heard() -> None:
    """Wait until all words that were said before have arrived."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
