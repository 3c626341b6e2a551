"""Rows of many partitions in one order."""

from __future__ import annotations

import asyncio
import random
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from adapter.state.port import Row
from adapter.state.redis.pages import LARGEST, PartitionRows, first_rows, page_size


@given(st.lists(st.lists(st.integers(0, 999), unique=True), min_size=1, max_size=8), st.integers(0, 60))
def test_the_first_rows_of_all_partitions(partitions: list[list[int]], limit: int) -> None:
    """However rows are spread, the first ones come in order, and no page is read twice."""
    every = [[f"{n:03}-{place}" for n in sorted(numbers)] for place, numbers in enumerate(partitions)]
    gone = {key for keys in every for key in keys if hash(key) % 5 == 0}
    read: list[str] = []

    async def fetch(rows: PartitionRows, most: int) -> tuple[list[bytes], list[Row]]:
        names = every[rows.partition][rows.entries : rows.entries + most]
        read.extend(names)
        return [name.encode() for name in names], [
            Row(name, b"", 1, None) for name in names if name not in gone
        ]

    found = asyncio.run(first_rows(fetch, range(len(every)), limit, attrgetter("key")))
    there = sorted(key for keys in every for key in keys if key not in gone)
    assert [row.key for row in found] == there[:limit]
    assert len(read) == len(set(read))


def test_a_page_of_many_partitions_reads_few_rows() -> None:
    """Of 64 partitions with rows spread at random, the first 500 rows take less than twice as many reads."""
    spread = random.Random(1)
    every: list[list[str]] = [[] for _ in range(64)]
    for n in range(100_000):
        every[spread.randrange(64)].append(f"{n:06}")
    read = 0

    async def fetch(rows: PartitionRows, most: int) -> tuple[list[bytes], list[Row]]:
        nonlocal read
        names = every[rows.partition][rows.entries : rows.entries + most]
        read += len(names)
        return [name.encode() for name in names], [Row(name, b"", 1, None) for name in names]

    found = asyncio.run(first_rows(fetch, range(64), 500, attrgetter("key")))
    assert [row.key for row in found] == [f"{n:06}" for n in range(500)]
    assert read < 1000


def test_a_page_is_bounded() -> None:
    """However many rows are wanted, a server reads no more at once than it should."""
    assert [page_size(limit, 1) for limit in (1, 500, 10**6)] == [1, 500, LARGEST]
    assert page_size(1, 64) == 1
