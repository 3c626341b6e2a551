"""The keys of a table's rows in memory, in the order in which the rows are due."""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter

MOST = 1000
"""Entries of one block: few enough to move aside for one more, and enough to keep the blocks few."""

_LAST = itemgetter(-1)


class DueRows:
    """Finds what is due without a look at every row. Has one entry for each row with a due time, and no other.

    The entries are in sorted blocks, so no change takes long: a heap, in which rows that have changed leave entries
    behind, has to be made anew now and then, and that takes 100 ms for 100,000 rows.
    """

    def __init__(self) -> None:
        self._blocks: list[list[tuple[float, str]]] = []

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __repr__(self) -> str:
        return f"<DueRows: {len(self)} entries>"

    def add(self, key: str, due: float | None) -> None:
        """Note that a row is due then. Idempotent."""
        if due is None:
            return
        blocks, entry = self._blocks, (due, key)
        if not blocks:
            blocks.append([entry])
            return
        index = min(bisect_left(blocks, entry, key=_LAST), len(blocks) - 1)
        block = blocks[index]
        place = bisect_left(block, entry)
        if place == len(block) or block[place] != entry:
            block.insert(place, entry)
        if len(block) > MOST:
            blocks[index : index + 1] = block[: MOST // 2], block[MOST // 2 :]

    def remove(self, key: str, due: float | None) -> None:
        """Note that a row is not due then, or gone. Idempotent."""
        if due is None:
            return
        blocks, entry = self._blocks, (due, key)
        index = bisect_left(blocks, entry, key=_LAST)
        if index == len(blocks):
            return
        block = blocks[index]
        place = bisect_left(block, entry)
        if block[place] == entry:
            del block[place]
        if not block:
            del blocks[index]

    def first(self, now: float, limit: int) -> list[str]:
        """At most ``limit`` rows that are due at ``now``, the longest overdue first; of several those of lower keys."""
        found: list[str] = []
        for block in self._blocks:
            for due, key in block:
                if due > now or len(found) >= limit:
                    return found
                found.append(key)
        return found
