"""Adapters with their state in one Redis, while it answers, restarts, and does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.edge.conftest import Adapter, StartAdapter, StartUpstream
from tests.edge.raw import RawUpstream, call_body, error_of, result
from tests.hosted.databases import URL_PASSWORD, Server

UNAVAILABLE = -32014


@contextlib.asynccontextmanager
async def adapters(start: StartAdapter, up: RawUpstream, redis: Server) -> AsyncIterator[list[Adapter]]:
    """Three adapters with the same settings."""
    url = f"redis://:{URL_PASSWORD}@127.0.0.1:{redis.port}/0"
    state: dict[str, Any] = {"type": "redis", "cache_seconds": 0.5, "redis": {"url": url}}
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(start(up, state_persistence=state)) for _ in range(3)]


async def initialize(adapter: Adapter) -> str:
    async with adapter.client() as client:
        await client.initialize()
        assert client.session is not None
        return client.session


async def request(adapter: Adapter, session: str, method: str = "POST") -> tuple[int, bytes]:
    async with adapter.client() as client:
        client.session = session
        head, text = await client.request(method, call_body() if method == "POST" else b"")
        return head.status, text


async def test_restart_of_redis_loses_no_session(
    upstream: StartUpstream, adapter: StartAdapter, own_redis: Server
) -> None:
    """A kill of Redis costs requests while it is away; then every session is there on every adapter."""
    async with upstream() as up, adapters(adapter, up, own_redis) as running:
        sessions = [await initialize(each) for each in running]
        own_redis.signal(signal.SIGKILL)
        own_redis.restart()
        async with asyncio.timeout(10):
            for each in running:
                for session in sessions:
                    while (answer := await request(each, session)) != (200, result(1)):
                        assert error_of(answer[1])["code"] == UNAVAILABLE
                        await asyncio.sleep(0.05)


@pytest.mark.timed
async def test_frozen_redis_is_told_and_left(
    upstream: StartUpstream, adapter: StartAdapter, own_redis: Server
) -> None:
    """While Redis is frozen a session is refused by the catalogue's error, at once; afterwards all goes on."""
    async with upstream() as up, adapters(adapter, up, own_redis) as (one, two, _):
        session = await initialize(one)
        own_redis.signal(signal.SIGSTOP)
        async with asyncio.timeout(10):
            while (answer := await request(two, session))[0] == 200 and b"error" not in answer[1]:
                await asyncio.sleep(0.05)
        assert error_of(answer[1])["code"] == UNAVAILABLE
        began = asyncio.get_running_loop().time()
        for _ in range(10):
            assert error_of((await request(two, session))[1])["code"] == UNAVAILABLE
        assert asyncio.get_running_loop().time() - began < 1
        own_redis.signal(signal.SIGCONT)
        async with asyncio.timeout(10):
            while await request(two, session) != (200, result(1)):
                await asyncio.sleep(0.05)
