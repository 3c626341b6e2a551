"""Rows in memory, as far as no other store has it: what they cost the garbage collector, and their order in turns."""

from __future__ import annotations

import asyncio
import gc

from adapter.state.memory import SLICE, MemoryStore
from adapter.state.port import Delete, Put, Row
from adapter.state.remembered import RememberedRows


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


async def test_rows_may_all_go_while_they_are_put_into_order() -> None:
    """As where a lost store is back: what comes afterwards is found, at once and later."""
    rows = RememberedRows()
    for number in range(SLICE + 1):
        await rows.put("t", f"{number:05}", b"", due=1.0)
    looking = asyncio.create_task(rows.overdue("t", 2.0))
    await asyncio.sleep(0)
    rows.lose_all()
    await rows.put("t", "new", b"", due=1.0)
    assert [row.key for row in await looking] == ["new"]
    await rows.put("t", "newer", b"", due=1.5)
    assert [row.key for row in await rows.overdue("t", 2.0)] == ["new", "newer"]


def _tuples() -> int:
    """The tuples and rows that a collection looks at."""
    gc.collect()
    return sum(isinstance(each, tuple | Row) for each in gc.get_objects())
