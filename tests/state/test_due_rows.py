"""Rows in memory in the order in which they are due, whatever happens to them."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.state.due_rows import MOST, DueRows
from adapter.state.memory import SLICE, MemoryStore
from adapter.state.port import ABSENT, Conflict, Delete, Put, Row

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


def test_entries_of_changed_rows_do_not_pile_up() -> None:
    """A row that is put off again and again has one entry."""
    order = DueRows()
    for number in range(5 * MOST):
        order.remove("a", float(number - 1))
        order.add("a", float(number))
    assert order.first(float(6 * MOST), 10) == ["a"]
    assert repr(order) == "<DueRows: 1 entries>"


@pytest.mark.parametrize("seed", range(3))
def test_many_rows_are_in_the_order_in_which_they_are_due(seed: int) -> None:
    """Whatever is added and removed, in blocks that are split and emptied."""
    random = Random(seed)
    order, there = DueRows(), set[tuple[float, str]]()
    for _ in range(5 * MOST):
        entry = float(random.randrange(MOST)), str(random.randrange(9))
        if random.random() < 0.7:
            order.add(entry[1], entry[0])
            there.add(entry)
        else:
            order.remove(entry[1], entry[0])
            there.discard(entry)
    assert order.first(MOST, 9 * MOST) == [key for _, key in sorted(there)]
    for due, key in there:
        order.remove(key, due)
    assert len(order) == 0 and order.first(MOST, 1) == []


async def test_a_large_table_is_put_in_order_while_others_write() -> None:
    """Nobody who asks meanwhile is told less than there is."""
    store = MemoryStore()
    for number in range(3 * SLICE):
        await store.put("t", f"{number:05}", b"", due=1.0)
    asked = [asyncio.ensure_future(store.overdue("t", 1.0, limit=4 * SLICE)) for _ in range(2)]
    await asyncio.sleep(0)
    await store.delete("t", "00000")
    await store.put("t", "00001", b"", due=2.0)
    await store.put("t", "x", b"", due=0.5)
    for rows in await asyncio.gather(*asked):
        assert [row.key for row in rows] == ["x", *(f"{number:05}" for number in range(2, 3 * SLICE))]


async def test_a_table_of_which_nobody_asks_what_is_due_keeps_no_order() -> None:
    """Most tables are never asked."""
    store = MemoryStore()
    await store.put("t", "a", b"", due=1.0)
    assert store._dues == {}
    assert [row.key for row in await store.overdue("t", 1.0)] == ["a"]
