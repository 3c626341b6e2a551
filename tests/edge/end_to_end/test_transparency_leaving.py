"""Leaving and cancelling are told to the upstream."""

from __future__ import annotations

import asyncio

import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, call_body, read_body, result


@pytest.mark.parametrize("begun", [b"", b"application/json", b"text/event-stream"])
async def test_client_that_leaves_ends_the_upstreams_exchange(in_session: StartRoad, begun: bytes) -> None:
    """A disconnect before or in the middle of an answer closes that call's connection, and no other."""
    asked, closed = asyncio.Event(), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        if exchange.message["id"] == 2:
            await exchange.json(result(2))
            return
        if begun:
            lines = [b"HTTP/1.1 200 OK", b"Content-Type: " + begun, b"Transfer-Encoding: chunked", b"", b""]
            await exchange.send(b"\r\n".join(lines))
            await exchange.chunk(b": " + b"x" * 100_000)
        asked.set()
        await exchange.gone()
        closed.set()

    async with in_session(script) as (up, front, stays):
        async with front.client() as leaves:
            leaves.session = stays.session
            await leaves.send("POST", call_body(number=1))
            await asked.wait()
            if begun:
                await leaves.head()
        async with asyncio.timeout(8):
            await closed.wait()
        _, body = await stays.call(number=2)
        assert body == result(2)
        assert up.opened == 1


async def test_cancelling_reaches_the_upstream_while_the_call_is_open(in_session: StartRoad) -> None:
    """A ``notifications/cancelled`` overtakes the call it cancels; the upstream then ends the call itself."""
    cancelled = asyncio.Event()
    note = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'

    async def script(exchange: Exchange) -> None:
        await cancelled.wait()
        await exchange.json(result(1, "stopped"))

    async def hearing(exchange: Exchange) -> None:
        assert exchange.body == note
        cancelled.set()
        await exchange.answer(202, b"")

    async with in_session(script, hearing=hearing) as (_, front, client), front.client() as other:
        other.session = client.session
        await client.send("POST", call_body(number=1))
        head, _ = await other.request("POST", note)
        assert head.status == 202
        assert await read_body(client.reader, await client.head()) == result(1, "stopped")
