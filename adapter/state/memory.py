"""The state store that forgets, for tests, demos and deployments that ask for it: SQLite without a file.

There may be 100,000 rows and more. They are none of Python's objects, so the garbage collector passes over them.
"""

from __future__ import annotations

import sqlite3
import sys
import time
import weakref
from collections.abc import Sequence

from adapter.state import sql
from adapter.state.port import Change, Delete, Put, Row, StoreListener, group_of_all


class MemoryStore:
    """A Store of one process and one event loop. No method awaits anything, so each is one atomic step."""

    shared = False

    def __init__(self) -> None:
        self.listeners: list[StoreListener] = []
        # Tests may fill it in one thread and use it in another.
        self._rows = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        sql.make_schema(self._rows)
        weakref.finalize(self, self._rows.close)

    def __repr__(self) -> str:
        (count,) = self._rows.execute("SELECT count(*) FROM rows").fetchone()
        return f"<MemoryStore: {count} rows>"

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Keep the rows: they are there when this object is opened again."""

    async def get(self, table: str, key: str) -> Row | None:
        return self._row(table, key)

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        return self._put(Put(table, key, value, due, expected))

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        if not changes:
            return []
        group_of_all(changes)
        rows = []
        with sql.savepoint(self._rows):
            for change in changes:
                if isinstance(change, Put):
                    rows.append(self._put(change))
                else:
                    self._delete(change)
        return rows

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        there = self._row(table, key) is not None
        if there:
            self._delete(Delete(table, key, expected))
        return there

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        sql.touch(table, dues, self._rows)

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        return sql.scan(table, group, after, limit, self._rows)

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        return sql.overdue(table, now, limit, self._rows)

    async def count(self, table: str, *, group: str | None = None) -> int:
        return sql.count(table, group, self._rows)

    async def spend(self, table: str, key: str, most: int, window: float) -> float:
        return sql.spend(table, key, most, window, time.time(), self._rows)

    def announce(self, topic: str, body: bytes) -> None:
        """Nobody else is there to be told."""

    def _row(self, table: str, key: str) -> Row | None:
        return sql.get(table, key, sys.maxsize, self._rows)

    def _put(self, change: Put) -> Row:
        return sql.put_one(change, self._rows)

    def _delete(self, change: Delete) -> None:
        sql.delete_one(change, self._rows)
