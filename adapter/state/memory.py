"""The state store that forgets: rows in dictionaries, for tests, demos and deployments that ask for it."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from adapter.rules.access.rate_limit import SlidingWindow
from adapter.state.due_rows import DueRows
from adapter.state.port import (
    ABSENT,
    Change,
    Conflict,
    Delete,
    Put,
    Row,
    StoreListener,
    TableFull,
    group_of,
    group_of_all,
)


class MemoryStore:
    """A Store of one process and one event loop. No method awaits anything, so each is one atomic step."""

    shared = False

    def __init__(self) -> None:
        self.listeners: list[StoreListener] = []
        self._tables: dict[str, dict[str, Row]] = {}
        self._spent: dict[tuple[str, int, float], SlidingWindow] = {}
        # Of tables whose groups were counted once: the number of rows of each group.
        self._sizes: dict[str, Counter[str]] = {}
        # Of tables of which it was asked once what is due.
        self._dues: dict[str, DueRows] = {}

    def __repr__(self) -> str:
        return f"<MemoryStore: {sum(map(len, self._tables.values()))} rows>"

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Keep the rows: they are there when this object is opened again."""

    async def get(self, table: str, key: str) -> Row | None:
        return self._rows(table).get(key)

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        return self._put(Put(table, key, value, due, expected))

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        if not changes:
            return []
        group_of_all(changes)
        before = [(change, self._rows(change.table).get(change.key)) for change in changes]
        rows = []
        try:
            for change in changes:
                if isinstance(change, Delete):
                    self._delete(change)
                else:
                    rows.append(self._put(change))
        except Conflict:
            for change, row in reversed(before):
                self._put_back(change, row)
            raise
        return rows

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        there = key in self._rows(table)
        if there:
            self._delete(Delete(table, key, expected))
        return there

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        rows, order = self._rows(table), self._dues.get(table)
        for key, due in dues.items():
            if (row := rows.get(key)) is not None and (row.due is None or row.due < due):
                rows[key] = row = replace(row, due=due)
                if order is not None:
                    order.add(row)

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        # Strings compare by code point, which is the order of their UTF-8 bytes.
        above = (
            row
            for key, row in self._rows(table).items()
            if key > after and (group is None or group_of(key) == group)
        )
        return heapq.nsmallest(limit, above, key=lambda row: row.key)

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        rows, order = self._rows(table), self._dues.get(table)
        if order is None or order.rows is not rows:
            order = self._dues[table] = DueRows(rows)
        return order.first(now, limit)

    async def count(self, table: str, *, group: str | None = None) -> int:
        return len(self._rows(table)) if group is None else self._size(table, group)

    async def spend(self, table: str, key: str, most: int, window: float) -> float:
        rate = table, most, window
        counted = self._spent.get(rate)
        if counted is None:
            counted = self._spent[rate] = SlidingWindow(most, window)
        return counted.admit(key, time.monotonic()) or 0.0

    def announce(self, topic: str, body: bytes) -> None:
        """Nobody else is there to be told."""

    def _rows(self, table: str) -> dict[str, Row]:
        return self._tables.setdefault(table, {})

    def _put(self, change: Put) -> Row:
        rows = self._rows(change.table)
        before = rows.get(change.key)
        version = ABSENT if before is None else before.version
        if change.expected not in (None, version):
            raise Conflict(f"expected version {change.expected}, found {version}")
        most = change.most if version == ABSENT else None
        if most is not None and self._size(change.table, group_of(change.key)) >= most:
            raise TableFull(f"{change.table} may have {most} rows of a group")
        row = rows[change.key] = Row(change.key, change.value, version + 1, change.due)
        if (order := self._dues.get(change.table)) is not None:
            order.add(row)
        if version == ABSENT and change.table in self._sizes:
            self._sizes[change.table][group_of(change.key)] += 1
        return row

    def _delete(self, change: Delete) -> None:
        rows = self._rows(change.table)
        row = rows.get(change.key)
        if change.expected is not None and (row is None or row.version != change.expected):
            raise Conflict(f"the row is not at version {change.expected}")
        if rows.pop(change.key, None) is not None and change.table in self._sizes:
            self._shrink(change)

    def _put_back(self, change: Change, row: Row | None) -> None:
        rows = self._rows(change.table)
        if row is not None:
            if change.key not in rows and change.table in self._sizes:
                self._sizes[change.table][group_of(change.key)] += 1
            rows[change.key] = row
            if (order := self._dues.get(change.table)) is not None:
                order.add(row)
        elif rows.pop(change.key, None) is not None and change.table in self._sizes:
            self._shrink(change)

    # --- groups -----------------------------------------------------------------------------------------------

    def _size(self, table: str, group: str) -> int:
        """The number of rows of a group, which is counted once and followed from then on."""
        sizes = self._sizes.get(table)
        if sizes is None:
            sizes = self._sizes[table] = Counter(map(group_of, self._rows(table)))
        return sizes[group]

    def _shrink(self, change: Change) -> None:
        sizes, group = self._sizes[change.table], group_of(change.key)
        sizes[group] -= 1
        if not sizes[group]:
            del sizes[group]
