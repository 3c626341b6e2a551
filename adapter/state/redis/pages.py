"""Rows of many partitions in one order, reading no more of each than the order needs."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from adapter.state.port import Row

LARGEST = 500
"""Rows of one page: a server does nothing else while it reads them."""


@dataclass(slots=True)
class PartitionRows:
    """The rows of a partition as far as they have been read: so many entries of its index, the last of them ``last``.

    An entry whose row is not there counts, and has no row.
    """

    partition: int
    rows: list[Row] = field(default_factory=list)
    entries: int = 0
    last: bytes | None = None
    more: bool = True


Fetch = Callable[[PartitionRows, int], Awaitable[tuple[list[bytes], list[Row]]]]
"""Read so many more entries of a partition: their keys, and the rows that are there."""


def page_size(limit: int, partitions: int) -> int:
    """Rows to read of each partition at once, when ``limit`` are wanted of all."""
    share = limit / partitions
    # Rows are spread at random: few partitions have more of the first ones than this.
    return max(1, min(limit, LARGEST, math.ceil(share + 2 * math.sqrt(share))))


async def first_rows(
    fetch: Fetch, partitions: Sequence[int], limit: int, order: Callable[[Row], Any]
) -> list[Row]:
    """The first ``limit`` rows of all partitions by ``order``, which is also the order of each partition."""
    if limit <= 0:
        return []
    size = page_size(limit, len(partitions))
    every = [PartitionRows(number) for number in partitions]
    hungry = every
    while True:
        await asyncio.gather(*(_read_on(fetch, each, size) for each in hungry))
        found = heapq.nsmallest(limit, chain.from_iterable(each.rows for each in every), key=order)
        bound = order(found[-1]) if len(found) == limit else None
        # Others have nothing left, or nothing that comes before the last row found.
        hungry = [
            each
            for each in every
            if each.more and (bound is None or not each.rows or order(each.rows[-1]) < bound)
        ]
        if not hungry:
            return found
        # Rows of one group lie together: then one partition has most of them, and would be asked very often.
        size = min(2 * size, LARGEST)


async def _read_on(fetch: Fetch, read: PartitionRows, size: int) -> None:
    names, rows = await fetch(read, size)
    read.rows += rows
    read.entries += len(names)
    read.last = names[-1] if names else read.last
    read.more = len(names) == size
