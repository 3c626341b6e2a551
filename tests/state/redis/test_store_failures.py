"""A Redis that stops, hangs or restarts: waits are bounded, nothing is told twice, and all goes on by itself."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator

import pytest

from adapter.errors import StoreUnavailable
from adapter.state.port import ABSENT, Conflict
from adapter.state.redis.layout import Layout
from adapter.state.redis.nodes import RedisTimes
from adapter.state.redis.store import RedisStore
from tests.hosted.databases import Server
from tests.state.redis import servers
from tests.state.redis.listening import Ear

TIMES = RedisTimes(timeout=1.0, cache=0.5, ping=0.5)


@pytest.fixture
async def store(own_redis: Server) -> AsyncIterator[RedisStore]:
    store = store_on(own_redis)
    await store.open()
    yield store
    await store.close()


def store_on(server: Server, base: str = "test") -> RedisStore:
    return RedisStore(servers.dialer([server], timeout=1.0), Layout(base, 4), TIMES)


async def until_written(store: RedisStore) -> None:
    """Wait until the store takes a write again."""
    async with asyncio.timeout(10):
        while True:
            try:
                await store.put("sessions", secrets.token_hex(8), b"")
                return
            except StoreUnavailable:
                await asyncio.sleep(0.01)


@pytest.mark.timed
async def test_a_stopped_server_costs_one_wait(own_redis: Server, store: RedisStore) -> None:
    """Who was asking when the server froze waits as long as an answer may take; all later callers fail at once."""
    await until_written(store)
    own_redis.signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="does not answer within"):
        await store.put("sessions", "a", b"1", expected=ABSENT)
    assert time.monotonic() - began < 10 * TIMES.timeout
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(StoreUnavailable):
            await store.get("sessions", "a")
    assert time.monotonic() - began < 20 * TIMES.timeout
    own_redis.signal(signal.SIGCONT)
    await until_written(store)
    # It had the command all the same, and does it when it runs again: a write that failed may be done.
    with pytest.raises(Conflict):
        await store.put("sessions", "a", b"2", expected=ABSENT)


async def test_a_write_in_doubt_is_told(own_redis: Server, store: RedisStore) -> None:
    """A write that failed, or whose caller left, may be done later: the replica hears of it as of any other's."""
    ear = Ear()
    store.listeners.append(ear)
    await ear.until_hearing(store_on(own_redis))
    await store.put("sessions", "a", b"1")
    assert ("sessions", "a") not in ear.rows
    own_redis.signal(signal.SIGSTOP)
    leaving = asyncio.ensure_future(store.put("sessions", "left", b""))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(StoreUnavailable, match="does not answer within"):
        await store.put("sessions", "a", b"2")
    assert [*ear.rows[-2:]] == [("sessions", "left"), ("sessions", "a")]
    own_redis.signal(signal.SIGCONT)
    await ear.until_hearing(store_on(own_redis))
    assert [row.value for row in await store.scan("sessions") if row.key == "a"] in ([b"1"], [b"2"])


@pytest.mark.timed
async def test_silence_is_noticed_without_a_call(own_redis: Server, store: RedisStore) -> None:
    """A server that freezes is noticed by the subscription, and rows count as unknown from then on."""
    ear = Ear()
    store.listeners.append(ear)
    await ear.until_hearing(store_on(own_redis))
    unknown = ear.unknown
    own_redis.signal(signal.SIGSTOP)
    began = time.monotonic()
    async with asyncio.timeout(20):
        while ear.unknown < unknown + 3:
            await ear.changed()
    assert time.monotonic() - began < 40 * TIMES.cache
    own_redis.signal(signal.SIGCONT)
    await ear.until_hearing(store_on(own_redis))


async def test_a_cut_connection_is_opened_again(own_redis: Server, store: RedisStore) -> None:
    """A connection that the server closes is replaced before anybody needs it; what is asked meanwhile waits."""
    await store.put("sessions", "a", b"1")
    for _ in range(3):
        servers.command(own_redis, "CLIENT", "KILL", "TYPE", "normal")
        servers.command(own_redis, "CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.sleep(0.05)
        row = await store.get("sessions", "a")
        assert row is not None
        assert (
            await store.put("sessions", "a", row.value + b"+", expected=row.version)
        ).version == row.version + 1


async def test_changes_that_were_missed_are_unknown(own_redis: Server, store: RedisStore) -> None:
    """After a restart of the server the listener is told once that rows are unknown, and hears changes again."""
    ear = Ear()
    store.listeners.append(ear)
    other = store_on(own_redis)
    await ear.until_hearing(other)
    unknown = ear.unknown
    own_redis.restart()
    await ear.until_hearing(other)
    assert ear.unknown > unknown


async def test_reads_survive_a_lost_connection(own_redis: Server, store: RedisStore) -> None:
    """A read that was under way when its connection broke is asked again over the next one."""
    await store.put("sessions", "a", b"1")
    for _ in range(10):
        reading = [asyncio.ensure_future(store.get("sessions", "a")) for _ in range(50)]
        await asyncio.sleep(0)
        servers.command(own_redis, "CLIENT", "KILL", "TYPE", "normal")
        assert [row.value for row in await asyncio.gather(*reading) if row is not None] == [b"1"] * 50
        await until_written(store)


async def test_a_server_that_is_not_there_is_told_at_once(own_redis: Server) -> None:
    """Opening without a server fails with a sentence that has neither address nor password in it."""
    own_redis.stop()
    store = store_on(own_redis)
    with pytest.raises(StoreUnavailable) as refused:
        await store.open()
    assert str(refused.value).startswith("Redis cannot be reached")
    assert str(own_redis.port) not in str(refused.value)
    own_redis.start()
    await store.open()
    await store.put("sessions", "a", b"1")
    await store.close()
