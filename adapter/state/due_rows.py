"""The rows of a table in memory, in the order in which they are due."""

from __future__ import annotations

import heapq

from adapter.state.port import Row

SLACK = 1000
"""Entries that may be too many, beside as many as there are rows."""


class DueRows:
    """Finds what is due without a look at every row. ``rows`` is the table; ``add`` is told of what is put into it.

    An entry whose row is gone, or due at another time by now, is passed over.
    """

    def __init__(self, rows: dict[str, Row]) -> None:
        self.rows = rows
        self._heap: list[tuple[float, str]] = []
        self._build()

    def __repr__(self) -> str:
        return f"<DueRows: {len(self._heap)} entries for {len(self.rows)} rows>"

    def _build(self) -> None:
        self._heap = [(row.due, row.key) for row in self.rows.values() if row.due is not None]
        heapq.heapify(self._heap)

    def add(self, row: Row) -> None:
        """A row was put into the table."""
        if row.due is not None:
            heapq.heappush(self._heap, (row.due, row.key))
            if len(self._heap) > 2 * len(self.rows) + SLACK:
                self._build()

    def first(self, now: float, limit: int) -> list[Row]:
        """At most ``limit`` rows that are due at ``now``, the longest overdue first; of several those of lower keys."""
        found: dict[str, Row] = {}
        entries: list[tuple[float, str]] = []
        while len(found) < limit and self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            row = self.rows.get(entry[1])
            if row is not None and row.due == entry[0] and row.key not in found:
                found[row.key] = row
                entries.append(entry)
        for entry in entries:
            heapq.heappush(self._heap, entry)
        return list(found.values())
