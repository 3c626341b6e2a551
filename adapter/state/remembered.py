"""The rows of a store that this process knows: what remains of it while the store cannot be reached."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from adapter.state import sql
from adapter.state.port import ABSENT, Change, Put, Row, group_of
from adapter.state.sqlite import MemoryStore

MOST = 100_000
"""Rows that are known of a store that can be reached, those that were read or written last."""

MOST_BYTES = 64 << 20
"""Bytes of their values."""

LOCAL = 1 << 52
"""Versions of rows that were written here lie above this: they are never those of the store."""


class RowId(NamedTuple):
    """The place of a row."""

    table: str
    key: str


class RememberedRows(MemoryStore):
    """The rows that were used last, and those written here while ``is_away``.

    ``bases`` are the rows that were written here, with the version that the store had of each (ABSENT for none, or
    none that is known); ``dues`` are the due times that were moved here, by table.
    """

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        super().__init__()
        self.is_away = False
        self.bases: dict[RowId, int] = {}
        self.dues: dict[str, dict[str, float]] = {}
        self._most = most
        self._most_bytes = most_bytes
        self.together: set[str] = set()
        """Groups of which several rows were written here in one step."""
        self.made: set[RowId] = set()
        """Rows that were created here: what another process has written at such a place is its own."""
        self._lengths = OrderedDict[RowId, int]()
        self._bytes = 0
        self._written = 0

    def __repr__(self) -> str:
        return f"<RememberedRows: {len(self._lengths)} known, {len(self.bases)} written here>"

    # --- knowing ----------------------------------------------------------------------------------------------

    def know(self, table: str, row: Row) -> None:
        """Remember a row as the store has it; those that were not used for longest make room.

        Not one that was written here.
        """
        place = RowId(table, row.key)
        self.forget(place)
        if place in self.bases or len(row.value) > self._most_bytes:
            return
        self._rows.execute(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (table, row.key, row.value, row.version, row.due)
        )
        self._lengths[place] = len(row.value)
        self._bytes += len(row.value)
        while len(self._lengths) > self._most or self._bytes > self._most_bytes:
            self.forget(next(iter(self._lengths)))

    def forget(self, place: RowId) -> None:
        """Know nothing of a row: it is gone, or another process has changed it. What was written here stays."""
        self._bytes -= self._lengths.pop(place, 0)
        if place not in self.bases:
            sql.delete(*place, None, sys.maxsize, self._rows)

    def row(self, place: RowId) -> Row | None:
        """The row as it is known here."""
        return sql.get(*place, sys.maxsize, self._rows)

    # --- writing here -----------------------------------------------------------------------------------------

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        (row,) = await self.commit((Put(table, key, value, due, expected),))
        return row

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        before = {place: self.row(place) for place in map(_place, changes)}
        rows = iter(await super().commit(changes))
        written = []
        for change in changes:
            place = _place(change)
            if isinstance(change, Put):
                if self.is_away and change.expected == ABSENT and place not in self.bases:
                    self.made.add(place)
                self._written += 1
                row = replace(next(rows), version=LOCAL + self._written)
                # A later one of these changes may have deleted it.
                self._rows.execute(
                    "UPDATE rows SET version = ? WHERE tbl = ? AND key = ?", (row.version, *place)
                )
                written.append(row)
            self._note(place, before[place])
        if self.is_away and len(changes) > 1:
            self.together.add(group_of(changes[0].key))
        return written

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        place = RowId(table, key)
        before = self.row(place)
        there = await super().delete(table, key, expected=expected)
        # The store may have it, although it is not known here.
        self._note(place, before)
        return there

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        await super().touch(table, dues)
        if self.is_away:
            moved = self.dues.setdefault(table, {})
            for key, due in dues.items():
                moved[key] = max(due, moved.get(key, due))

    def _note(self, place: RowId, before: Row | None) -> None:
        if self.is_away:
            self.bases.setdefault(place, ABSENT if before is None else before.version)

    # --- writing back -----------------------------------------------------------------------------------------

    def next_back(self) -> list[RowId]:
        """The next rows to write back: one, or all of a group that changed in one step; none if nothing is left."""
        first = next(iter(self.bases), None)
        if first is None:
            return []
        group = group_of(first.key)
        if group not in self.together:
            return [first]
        return [place for place in self.bases if group_of(place.key) == group]

    def written_back(self, place: RowId, was: Row | None, version: int) -> None:
        """Note that the store has ``was`` now, at this version (ABSENT: has none); a later change here is still to be
        written.
        """
        row = self.row(place)
        self.made.discard(place)
        if row != was:
            # To the end: the rows that changed meanwhile must not keep the others waiting.
            del self.bases[place]
            self.bases[place] = version
            return
        del self.bases[place]
        if row is not None:
            self.know(place.table, replace(row, version=version))

    def lose(self, place: RowId) -> None:
        """Forget what was written here."""
        del self.bases[place]
        self.made.discard(place)
        self.forget(place)

    def lose_all(self) -> Counter[str]:
        """Forget everything. Return the number of rows that were written here, by table."""
        lost = Counter(place.table for place in self.bases)
        self.bases.clear()
        self.dues.clear()
        self.made.clear()
        self.together.clear()
        self._lengths.clear()
        self._bytes = 0
        sql.clear(self._rows)
        return lost


def _place(change: Change) -> RowId:
    return RowId(change.table, change.key)
