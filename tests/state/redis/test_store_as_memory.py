"""Any sequence of operations does to Redis what it does to memory."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapter.state.port import Change, Conflict, Delete, Put, Store, TableFull
from adapter.state.redis.layout import Layout
from adapter.state.redis.store import RedisStore
from adapter.state.sqlite import MemoryStore
from tests.hosted.databases import Server
from tests.state.redis import servers

TABLES = st.sampled_from(["t", "u"])
KEYS = st.sampled_from(["", "g", "g/", "g/1", "g/2", "g!", "h/1"])
VALUES = st.binary(max_size=4)
DUES = st.none() | st.integers(0, 5).map(float)
EXPECTED = st.none() | st.integers(0, 3)

PUTS = st.builds(Put, TABLES, KEYS, VALUES, DUES, EXPECTED)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    PUTS,
    st.builds(Put, TABLES, KEYS, VALUES, DUES, st.just(0), st.integers(0, 3)),
    st.builds(Delete, TABLES, KEYS, EXPECTED),
)
OPERATIONS = st.one_of(
    st.tuples(st.just("get"), TABLES, KEYS),
    st.tuples(st.just("put"), PUTS),
    st.tuples(st.just("commit"), st.lists(CHANGES, max_size=5)),
    st.tuples(st.just("delete"), TABLES, KEYS, EXPECTED),
    st.tuples(st.just("touch"), TABLES, st.dictionaries(KEYS, st.integers(0, 5).map(float))),
    st.tuples(st.just("scan"), TABLES, st.none() | KEYS, KEYS, st.integers(0, 5)),
    st.tuples(st.just("overdue"), TABLES, st.integers(-1, 5).map(float), st.integers(0, 5)),
    st.tuples(st.just("count"), TABLES, st.none() | KEYS),
)


async def outcome(store: Store, operation: Sequence[Any]) -> object:
    """What the operation returned, or the kind of failure."""
    try:
        match operation:
            case ["get", table, key]:
                return await store.get(table, key)
            case ["put", put]:
                return await store.put(put.table, put.key, put.value, expected=put.expected, due=put.due)
            case ["commit", changes]:
                return await store.commit(changes)
            case ["delete", table, key, expected]:
                return await store.delete(table, key, expected=expected)
            case ["touch", table, dues]:
                await store.touch(table, dues)
                return None
            case ["scan", table, group, after, limit]:
                return await store.scan(table, group=group, after=after, limit=limit)
            case ["overdue", table, now, limit]:
                return await store.overdue(table, now, limit=limit)
            case ["count", table, group]:
                return await store.count(table, group=group)
            case _:
                raise AssertionError(operation)
    except (TableFull, Conflict, ValueError) as error:
        return type(error)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(OPERATIONS, max_size=30))
def test_redis_does_what_memory_does(redis_single: list[Server], operations: list[Sequence[Any]]) -> None:
    """Rows, versions, due times, orders, counts and refusals are the same after each step."""

    async def compare() -> None:
        memory = MemoryStore()
        redis = RedisStore(servers.dialer(redis_single), Layout(f"test:{secrets.token_hex(8)}", 3))
        await redis.open()
        try:
            for operation in operations:
                assert await outcome(redis, operation) == await outcome(memory, operation), operation
            for table in ("t", "u"):
                assert await redis.scan(table) == await memory.scan(table)
                assert await redis.overdue(table, 9.0) == await memory.overdue(table, 9.0)
        finally:
            await redis.close()

    asyncio.run(compare())
