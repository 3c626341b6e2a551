"""Rows that are known beside the store: whether what a read brings is right, or was overtaken by a change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

STALE = -1
"""The epoch of what has to be read again before it is used."""


class RowRead:
    """A read of a row. What it brings is right in its ``epoch``; STALE: it may be old already."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class RowReads:
    """The reads of rows that are under way. ``epoch`` counts the times that any row may have changed: what is known is
    fresh while its own epoch is that one.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._under_way: dict[str, list[RowRead]] = {}

    @contextmanager
    def reading(self, key: str) -> Iterator[RowRead]:
        """Read the row of that key within the block."""
        read = RowRead(self.epoch)
        reads = self._under_way.setdefault(key, [])
        reads.append(read)
        try:
            yield read
        finally:
            reads.remove(read)
            if not reads:
                del self._under_way[key]

    def changed(self, key: str) -> None:
        """Somebody wrote the row: reads of it that are under way may bring what was there before."""
        for read in self._under_way.get(key, ()):
            read.epoch = STALE
