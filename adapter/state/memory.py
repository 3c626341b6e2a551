"""The state store that forgets: rows in dictionaries, for tests, demos and deployments that ask for it.

There may be 100,000 rows and more, and a full garbage collection looks at every object that could be part of a cycle.
So a row is kept as a plain tuple of bytes and numbers: the collector lets go of such a tuple when it first meets it,
which it does for no object of a class.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from adapter.rules.access.rate_limit import SlidingWindow
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

SLICE = 5000
"""Rows that are looked at in one turn of the loop, which takes a millisecond."""

KeptRow: TypeAlias = tuple[bytes, int, float | None]
"""The value, the version and the due time of a row, whose key is known by its place."""


@dataclass(slots=True)
class LateRows:
    """Due times and keys of the rows of a table that were due at ``now``: a heap, also of some that changed since."""

    now: float
    heap: list[tuple[float, str]] = field(default_factory=list)
    is_whole: bool = False


class MemoryStore:
    """A Store of one process and one event loop. No method that writes awaits anything, so each is one atomic step."""

    shared = False

    def __init__(self, at_once: int = SLICE) -> None:
        """``at_once`` rows are looked at in one turn of the loop."""
        self._at_once = at_once
        self.listeners: list[StoreListener] = []
        self._tables: defaultdict[str, dict[str, KeptRow]] = defaultdict(dict)
        self._spent: dict[tuple[str, int, float], SlidingWindow] = {}
        # Of tables whose groups were counted once: the number of rows of each group.
        self._sizes: dict[str, Counter[str]] = {}
        # Of tables with more rows due than were asked for: the next page goes on here, and looks at no row twice.
        self._late: dict[str, LateRows] = {}

    def __repr__(self) -> str:
        return f"<MemoryStore: {sum(map(len, self._tables.values()))} rows>"

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
        before = [(change, self._row(change.table, change.key)) for change in changes]
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
        there = key in self._tables[table]
        if there:
            self._delete(Delete(table, key, expected))
        return there

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        rows = self._tables[table]
        for key, due in dues.items():
            if (kept := rows.get(key)) is not None and (kept[2] is None or kept[2] < due):
                rows[key] = kept[0], kept[1], due
                self._note_due(table, key, due)

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        # Strings compare by code point, which is the order of their UTF-8 bytes.
        rows = self._tables[table]
        above = (key for key in rows if key > after and (group is None or group_of(key) == group))
        return [Row(key, *rows[key]) for key in heapq.nsmallest(limit, above)]

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        late = self._late.get(table)
        found = self._first(table, late, now, limit) if late is not None and late.is_whole else []
        if len(found) < limit:
            found = self._first(table, await self._look(table, now), now, limit)
            if len(found) < limit:
                self._late.pop(table, None)
        return found

    async def count(self, table: str, *, group: str | None = None) -> int:
        return len(self._tables[table]) if group is None else self._size(table, group)

    async def spend(self, table: str, key: str, most: int, window: float) -> float:
        rate = table, most, window
        counted = self._spent.get(rate)
        if counted is None:
            counted = self._spent[rate] = SlidingWindow(most, window)
        return counted.admit(key, time.monotonic()) or 0.0

    def announce(self, topic: str, body: bytes) -> None:
        """Nobody else is there to be told."""

    def _row(self, table: str, key: str) -> Row | None:
        kept = self._tables[table].get(key)
        return None if kept is None else Row(key, *kept)

    def _keep(self, table: str, row: Row) -> None:
        self._tables[table][row.key] = row.value, row.version, row.due
        self._note_due(table, row.key, row.due)

    def _drop(self, table: str, key: str) -> bool:
        """Remove a row; False if there was none."""
        return self._tables[table].pop(key, None) is not None

    def _clear(self) -> None:
        """Remove every row."""
        self._tables.clear()
        self._sizes.clear()
        self._late.clear()

    def _put(self, change: Put) -> Row:
        rows = self._tables[change.table]
        before = rows.get(change.key)
        version = ABSENT if before is None else before[1]
        if change.expected not in (None, version):
            raise Conflict(f"expected version {change.expected}, found {version}")
        most = change.most if version == ABSENT else None
        if most is not None and self._size(change.table, group_of(change.key)) >= most:
            raise TableFull(f"{change.table} may have {most} rows of a group")
        row = Row(change.key, change.value, version + 1, change.due)
        self._keep(change.table, row)
        if version == ABSENT and change.table in self._sizes:
            self._sizes[change.table][group_of(change.key)] += 1
        return row

    def _delete(self, change: Delete) -> None:
        rows = self._tables[change.table]
        kept = rows.get(change.key)
        if change.expected is not None and (kept is None or kept[1] != change.expected):
            raise Conflict(f"the row is not at version {change.expected}")
        if self._drop(change.table, change.key) and change.table in self._sizes:
            self._shrink(change)

    def _put_back(self, change: Change, row: Row | None) -> None:
        rows = self._tables[change.table]
        if row is not None:
            if change.key not in rows and change.table in self._sizes:
                self._sizes[change.table][group_of(change.key)] += 1
            self._keep(change.table, row)
        elif self._drop(change.table, change.key) and change.table in self._sizes:
            self._shrink(change)

    # --- due rows ---------------------------------------------------------------------------------------------

    async def _look(self, table: str, now: float) -> LateRows:
        """Look at every row, in many turns: no order is kept, since only the cleanup asks for one."""
        late = self._late[table] = LateRows(now)
        keys = iter(list(self._tables[table]))
        while part := list(islice(keys, self._at_once)):
            rows = self._tables[table]
            for key in part:
                if (kept := rows.get(key)) is not None and (due := kept[2]) is not None and due <= now:
                    heapq.heappush(late.heap, (due, key))
            if len(part) == self._at_once:
                await asyncio.sleep(0)
        late.is_whole = True
        return late

    def _first(self, table: str, late: LateRows, now: float, limit: int) -> list[Row]:
        rows, heap = self._tables[table], late.heap
        entries: list[tuple[float, str]] = []
        while heap and heap[0][0] <= now and len(entries) < limit:
            due, key = entry = heapq.heappop(heap)
            is_new = not entries or entries[-1] != entry
            if is_new and (kept := rows.get(key)) is not None and kept[2] == due:
                entries.append(entry)
        for entry in entries:
            heapq.heappush(heap, entry)
        return [Row(key, *rows[key]) for _, key in entries]

    def _note_due(self, table: str, key: str, due: float | None) -> None:
        if due is not None and (late := self._late.get(table)) is not None and due <= late.now:
            heapq.heappush(late.heap, (due, key))

    # --- groups -----------------------------------------------------------------------------------------------

    def _size(self, table: str, group: str) -> int:
        """The number of rows of a group, which is counted once and followed from then on."""
        sizes = self._sizes.get(table)
        if sizes is None:
            sizes = self._sizes[table] = Counter(map(group_of, self._tables[table]))
        return sizes[group]

    def _shrink(self, change: Change) -> None:
        sizes, group = self._sizes[change.table], group_of(change.key)
        sizes[group] -= 1
        if not sizes[group]:
            del sizes[group]
