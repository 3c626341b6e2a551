"""Clients that send as little as they can for as long as they may."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.attacks.arena import Arena, attacked
from tests.attacks.crowd import crowd
from tests.edge.conftest import done
from tests.edge.raw import Exchange, Head, RawClient, RawUpstream, call_body, error_of, result

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024
SLOW_HEADS = 1000
HALF_SENT = 200
KEPT = 32 * MIB
SLACK = 48 * MIB
"""Bytes that memory may grow besides: the connections themselves, the allocator's arenas."""


async def answered(client: RawClient) -> tuple[Head, bytes]:
    head = await client.head()
    return head, await client.reader.readexactly(int(head["content-length"]))


@pytest.fixture
async def upstream() -> AsyncIterator[RawUpstream]:
    async with RawUpstream(done) as started:
        yield started


async def test_slow_heads_by_the_thousand_are_let_go(tmp_path: Path, upstream: RawUpstream) -> None:
    """Each is told so when its time is over; nobody else notices, and health answers meanwhile."""
    async with attacked(tmp_path, upstream.url) as arena:
        async with crowd(arena.client, SLOW_HEADS) as slow, arena.client() as watching:
            for client in slow:
                await client.send_more(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            trickling = asyncio.create_task(trickle(slow))
            head, _ = await watching.request("GET", path="/livez")
            assert head.status == 200
            told = await asyncio.gather(*(answered(client) for client in slow))
            trickling.cancel()
        assert {head.status for head, _ in told} == {408}
        await upstream_works(arena)


async def trickle(clients: list[RawClient]) -> None:
    """A byte to each, over and over."""
    while True:
        for client in clients:
            try:
                await client.send_more(b"X")
            except ConnectionError:
                continue
        await asyncio.sleep(0.2)


async def upstream_works(arena: Arena) -> None:
    async with arena.client() as client:
        await client.initialize()
        assert (await client.call())[1] == result(1)


async def test_half_sent_bodies_take_no_more_than_is_allowed(tmp_path: Path, upstream: RawUpstream) -> None:
    """Hundreds of megabytes are offered; ``core.max_buffered_bytes`` is held, and nothing when they have gone."""
    core = {"max_buffered_bytes": KEPT}
    async with attacked(tmp_path, upstream.url, core=core) as arena:
        before = arena.resident_bytes()
        async with crowd(arena.client, HALF_SENT) as slow:
            sending = [
                asyncio.create_task(send_half(client, call_body() + b" " * MIB, 4 * MIB)) for client in slow
            ]
            most = 0
            for _ in range(100):
                most = max(most, arena.resident_bytes() - before)
                await asyncio.sleep(0.02)
            assert most < KEPT * 3 // 2 + SLACK
            refused = [task.result() for task in sending if task.done()]
            assert refused and all(head.status == 503 for head, _ in refused)
            assert all("core.max_buffered_bytes" in error_of(body)["message"] for _, body in refused)
            await upstream_works(arena)
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        await upstream_works(arena)
        async with arena.client() as client:
            await client.initialize()
            async with asyncio.timeout(10):
                while True:
                    head, body = await client.request("POST", call_body() + b" " * 3 * MIB)
                    if head.status == 200:
                        break
                    client.close()
                    await client.__aenter__()
            assert body == result(1)


async def test_bodies_that_stop_do_not_keep_others_from_coming_in(
    tmp_path: Path, upstream: RawUpstream
) -> None:
    """They fill the memory together and stop; large bodies of others wait a little, and none of them is refused."""
    core = {"max_buffered_bytes": 8 * MIB, "max_request_bytes": MIB // 2}
    async with attacked(tmp_path, upstream.url, core=core) as arena, crowd(arena.client, 30) as slow:
        for _ in range(10):
            for client in slow:
                await send_part(client, 30_000, MIB // 2)
        for _ in range(30):
            async with asyncio.timeout(20), arena.client() as client:
                await client.initialize()
                head, body = await client.request("POST", call_body() + b" " * 300_000)
                assert (head.status, body) == (200, result(1))


async def send_part(client: RawClient, size: int, announced: int) -> None:
    """Send a part of a body, and the head of its request before the first."""
    if client.session is None:
        client.session = "none"
        await client.send("POST", content_length=str(announced))
    with contextlib.suppress(ConnectionError):
        await client.send_more(b" " * size)


async def send_half(client: RawClient, half: bytes, announced: int) -> tuple[Head, bytes]:
    """Send half of a body and no more, and return the answer."""
    await client.send("POST", half, content_length=str(announced))
    return await answered(client)


async def test_trickling_bodies_are_let_go(tmp_path: Path, upstream: RawUpstream) -> None:
    """A byte now and then keeps no body alive: each is told the floor."""
    async with attacked(tmp_path, upstream.url) as arena:
        async with crowd(arena.client, HALF_SENT) as slow:
            for client in slow:
                await client.send("POST", b" ", content_length=str(MIB))
            trickling = asyncio.create_task(trickle(slow))
            told = await asyncio.gather(*(answered(client) for client in slow))
            trickling.cancel()
        assert {head.status for head, _ in told} == {408}
        await upstream_works(arena)


@pytest.mark.parametrize("taking", [True, False], ids=["endless streams", "answers that nobody takes"])
async def test_answers_without_end_keep_no_memory_from_others(
    tmp_path: Path, upstream: RawUpstream, taking: bool
) -> None:
    """Their requests would fill ``core.max_buffered_bytes`` many times; large ones of others are served at once."""

    async def script(exchange: Exchange) -> None:
        if taking:
            await exchange.begin_stream()
            await exchange.chunk(b": alive\n\n")
            await exchange.gone()
        else:
            await exchange.json(result(1, "z" * 12 * MIB))

    upstream.script = script
    core = {"max_buffered_bytes": 2 * MIB}
    async with (
        attacked(tmp_path, upstream.url, 300_000, core=core) as arena,
        crowd(arena.client, 40 if taking else 10) as slow,
    ):
        for client in slow:
            await client.initialize()
            if not taking:
                client.stop_reading()
            await client.send("POST", call_body() + b" " * 400_000)
            if taking:
                assert (await client.head()).status == 200
        for _ in range(5):
            async with arena.client() as client:
                await client.initialize()
                assert (await sent_large(client)).status == 200


async def sent_large(client: RawClient) -> Head:
    """Make a call of 300 KB, and return the head of its answer."""
    await client.send("POST", call_body() + b" " * 300_000)
    return await client.head()


async def test_requests_of_open_streams_take_no_memory(tmp_path: Path, upstream: RawUpstream) -> None:
    """Not in the books alone: a hundred streams whose requests had a megabyte each cost a few."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.gone()

    upstream.script = script
    async with attacked(tmp_path, upstream.url) as arena, crowd(arena.client, 100) as slow:
        before = arena.resident_bytes()
        for client in slow:
            await client.initialize()
            await client.send("POST", call_body() + b" " * MIB)
            assert (await client.head()).status == 200
            upstream.seen.clear()
        assert arena.resident_bytes() - before < SLACK
