"""Rows in memory, as far as no other store has it: what they cost the garbage collector, and their order in turns."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq

from hypothesis import given
from hypothesis import strategies as st

from adapter.state.memory import SLICE, MemoryStore
from adapter.state.port import ABSENT, PAGE, Conflict, Delete, Put, Row, delete_overdue
from adapter.state.remembered import RememberedRows

KEYS = st.sampled_from(["a", "b", "c", "g/a", "g/b"])
DUES = st.none() | st.integers(0, 5).map(float)
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "touch", "undo", "ask"]), KEYS, DUES), max_size=30
)


def by_search(rows: list[Row], now: float, limit: int) -> list[Row]:
    late = [(row.due, row.key, row) for row in rows if row.due is not None and row.due <= now]
    return [row for *_, row in heapq.nsmallest(limit, late, key=lambda entry: entry[:2])]


@given(STEPS, st.integers(0, 6))
async def test_what_is_due_is_what_a_search_finds(
    steps: list[tuple[str, str, float | None]], limit: int
) -> None:
    """After any changes, also those of a commit that was undone."""
    store = MemoryStore()
    for step, key, due in steps:
        match step:
            case "put":
                await store.put("t", key, b"", due=due)
            case "delete":
                await store.delete("t", key)
            case "touch" if due is not None:
                await store.touch("t", {key: due})
            case "undo":
                with contextlib.suppress(Conflict):
                    await store.commit(
                        [Delete("t", key), Put("t", key, b"", due), Put("t", key, b"", 0.0, ABSENT)]
                    )
            case _:
                await store.overdue("t", 3.0)
        rows = await store.scan("t")
        for now in (0.0, 3.0, 9.0):
            assert await store.overdue("t", now, limit=limit) == by_search(rows, now, limit)


async def test_rows_cost_the_garbage_collector_nothing() -> None:
    """However many there are, in tables that are asked what is due: a full collection looks at none of them."""
    store = MemoryStore()
    await store.overdue("t", 1.0)
    before = _tuples()
    for number in range(1000):
        key = f"{number:04}"
        await store.put("t", key, b"%d" % number, due=float(number))
        await store.touch("t", {key: number + 0.5})
    await store.commit([Delete("t", "0000"), Put("t", "0000", b"again", 3.0)])
    assert _tuples() - before < 100
    assert len(await store.overdue("t", 2000.0, limit=2000)) == 1000


async def test_a_large_table_is_searched_while_others_write() -> None:
    """What is deleted or put off meanwhile is not told; what comes then is."""
    store = MemoryStore()
    for number in range(3 * SLICE):
        await store.put("t", f"{number:05}", b"", due=1.0)
    asked = asyncio.ensure_future(store.overdue("t", 1.0, limit=4 * SLICE))
    await asyncio.sleep(0)
    await store.delete("t", "00000")
    await store.put("t", "00001", b"", due=2.0)
    await store.put("t", "x", b"", due=0.5)
    assert not asked.done()
    late = ["x", *(f"{number:05}" for number in range(2, 3 * SLICE))]
    assert [row.key for row in await asked] == late
    assert [row.key for row in await store.overdue("t", 1.0, limit=4 * SLICE)] == late


async def test_many_pages_of_due_rows_cost_one_look_at_each_row() -> None:
    """However many rows are due, the next page goes on where the last one ended."""
    store, count, turns = MemoryStore(at_once=1), 8 * PAGE, 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    for number in range(count):
        await store.put("t", f"{number:05}", b"", due=float(number))
    counting = asyncio.create_task(count_turns())
    await delete_overdue(store, "t", float(count))
    counting.cancel()
    assert await store.count("t") == 0
    assert count <= turns < 1.5 * count


async def test_rows_may_all_go_while_they_are_searched() -> None:
    """As where a lost store is back: none of them is told, and what comes afterwards is found the next time."""
    rows = RememberedRows()
    for number in range(SLICE + 1):
        await rows.put("t", f"{number:05}", b"", due=1.0)
    looking = asyncio.create_task(rows.overdue("t", 2.0))
    await asyncio.sleep(0)
    rows.lose_all()
    await rows.put("t", "new", b"", due=1.0)
    assert await looking == []
    await rows.put("t", "newer", b"", due=1.5)
    assert [row.key for row in await rows.overdue("t", 2.0)] == ["new", "newer"]


def _tuples() -> int:
    """The tuples and rows that a collection looks at."""
    gc.collect()
    return sum(isinstance(each, tuple | Row) for each in gc.get_objects())
