"""The state store that forgets: rows in dictionaries, for tests, demos and deployments that ask for it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from adapter.state.port import ABSENT, Conflict, Row


class MemoryStore:
    """A Store of one process and one event loop. No method awaits anything, so each is one atomic step."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Row]] = {}

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
        rows = self._rows(table)
        before = rows.get(key)
        version = ABSENT if before is None else before.version
        if expected not in (None, version):
            raise Conflict(f"expected version {expected}, found {version}")
        row = rows[key] = Row(key, value, version + 1, due)
        return row

    async def put_all(
        self,
        table: str,
        rows: Sequence[tuple[str, bytes, float | None]],
        *,
        instead_of: Sequence[str] = (),
    ) -> None:
        new = {key: Row(key, value, ABSENT + 1, due) for key, value, due in rows}
        there = self._rows(table)
        if len(new) < len(rows) or any(key in there and key not in instead_of for key in new):
            raise Conflict("one of the rows exists already")
        for key in instead_of:
            there.pop(key, None)
        there.update(new)

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        rows = self._rows(table)
        row = rows.get(key)
        if row is None:
            return False
        if expected not in (None, row.version):
            raise Conflict(f"expected version {expected}, found {row.version}")
        del rows[key]
        return True

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        rows = self._rows(table)
        for key, due in dues.items():
            if (row := rows.get(key)) is not None:
                rows[key] = replace(row, due=due)

    async def scan(self, table: str, *, after: str = "", limit: int = 500) -> list[Row]:
        # Strings compare by code point, which is the order of their UTF-8 bytes.
        above = (row for key, row in self._rows(table).items() if key > after)
        return heapq.nsmallest(limit, above, key=lambda row: row.key)

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        late = (
            (row.due, row.key, row)
            for row in self._rows(table).values()
            if row.due is not None and row.due <= now
        )
        return [row for *_, row in heapq.nsmallest(limit, late, key=lambda entry: entry[:2])]

    async def count(self, table: str, *, holding: bytes = b"") -> int:
        return sum(holding in row.value for row in self._rows(table).values())

    def _rows(self, table: str) -> dict[str, Row]:
        return self._tables.setdefault(table, {})
