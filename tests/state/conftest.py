"""Every kind of store, and the Redis servers that tests share: each starts once, and each test has keys of its own."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapter.state.port import Store
from adapter.state.redis.layout import Layout
from adapter.state.redis.store import RedisStore
from adapter.state.sqlite import MemoryStore, SqliteStore
from tests.hosted.databases import Server
from tests.state.redis import servers
from tests.state.shared import SharedMemory


@pytest.fixture(scope="session")
def redis_single(redis_server: Server) -> list[Server]:
    """One server."""
    return [redis_server]


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[list[Server]]:
    """Three servers that are a cluster."""
    with servers.cluster() as nodes:
        yield nodes


KINDS = [
    "memory",
    "shared memory",
    "sqlite",
    "sqlite, shared",
    "sqlite without a log",
    "redis",
    "redis cluster",
]


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    path = tmp_path / "state" / "adapter.sqlite3"
    store: Store
    match request.param:
        case "memory":
            store = MemoryStore()
        case "shared memory":
            store = SharedMemory().replica()
        case "sqlite":
            store = SqliteStore(path)
        case "sqlite, shared":
            store = SqliteStore(path, shared=True)
        case "sqlite without a log":
            store = SqliteStore(path, wal=False)
        case kind:
            nodes = request.getfixturevalue("redis_single" if kind == "redis" else "redis_cluster")
            store = RedisStore(servers.dialer(nodes), Layout(f"test:{secrets.token_hex(8)}", 7))
    await store.open()
    yield store
    await store.close()
