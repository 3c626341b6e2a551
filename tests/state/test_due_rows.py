"""Rows in memory in the order in which they are due, whatever happens to them."""

from __future__ import annotations

import contextlib
import heapq

from hypothesis import given
from hypothesis import strategies as st

from adapter.state.due_rows import SLACK, DueRows
from adapter.state.memory import MemoryStore
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
    """A row that is put off again and again has few entries."""
    rows: dict[str, Row] = {}
    order = DueRows(rows)
    for number in range(5 * SLACK):
        rows["a"] = Row("a", b"", number + 1, float(number))
        order.add(rows["a"])
    assert order.first(float(6 * SLACK), 10) == [rows["a"]]
    entries = int(repr(order).split()[1])
    assert entries <= 2 + SLACK


async def test_a_table_of_which_nobody_asks_what_is_due_keeps_no_order() -> None:
    """Most tables are never asked."""
    store = MemoryStore()
    await store.put("t", "a", b"", due=1.0)
    assert store._dues == {}
    assert [row.key for row in await store.overdue("t", 1.0)] == ["a"]
