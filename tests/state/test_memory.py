"""Rows in memory, as far as no other store has it: what they cost the garbage collector."""

from __future__ import annotations

import gc

from adapter.state.memory import MemoryStore
from adapter.state.port import Delete, Put, Row


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


def _tuples() -> int:
    """The tuples and rows that a collection looks at."""
    gc.collect()
    return sum(isinstance(each, tuple | Row) for each in gc.get_objects())
