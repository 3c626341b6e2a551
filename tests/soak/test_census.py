"""The rows that last are counted by table, in SQLite as in Redis."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.state.port import Store
from adapter.state.redis.address import RedisAddress, RedisServer
from adapter.state.redis.dialer import Dialer
from adapter.state.redis.layout import Layout
from adapter.state.redis.store import RedisStore
from adapter.state.sqlite import SqliteStore
from adapter.state.watched import WatchedStore
from tests.e2e.replicas import redis_argv
from tests.faults.nodes import Node
from tests.ports import free_port
from tests.soak.census import SPENT, keys_of_redis, rows_of_sqlite


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[Node]:
    port = free_port()
    argv = redis_argv(port, tmp_path)
    node = Node("redis", port, tmp_path / "redis.log", lambda: argv)
    await node.start()
    yield node
    await node.stop()


async def _use(store: Store) -> None:
    """Write rows that last, rows that end by themselves, and the one that shows if the store can be written."""
    watched = WatchedStore(store)
    await watched.open()
    assert await watched.failure() is None
    now = time.time()
    for session in ("a", "b"):
        await watched.put("pins", f"upstream/{session}", b"1")
        await watched.put("nonces", session, b"1", due=now + SPENT / 2)
    await watched.put("sessions", "a", b"1", due=now + 2 * SPENT)
    await watched.close()


async def test_rows_of_sqlite_are_counted_by_table(tmp_path: Path) -> None:
    """Not counted is what ends by itself, nor the row of a look at the store itself."""
    await _use(SqliteStore(tmp_path / "state.sqlite3"))
    assert rows_of_sqlite(tmp_path / "state.sqlite3") == {"pins": 2, "sessions": 1}


async def test_rows_of_redis_are_counted_by_table(redis: Node) -> None:
    """As those of SQLite, over all partitions; beside them there is the key with the number of the format."""
    address = RedisAddress((RedisServer("127.0.0.1", redis.port),))
    await _use(RedisStore(Dialer(address, 5.0), Layout("mcp:adapter", 7)))
    assert await keys_of_redis(redis.port) == {"format": 1, "pins": 2, "sessions": 1}
