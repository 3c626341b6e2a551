"""Connections are bounded, and health answers when all of them are taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import orjson
import pytest

from adapter.edge.http.limits import RESERVE, ConnectionLimit, Patience
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Request
from tests.edge.conftest import Adapter, Road, StartRoad
from tests.edge.raw import INITIALIZE, read_body, read_head

HEALTH = ("/livez", "/readyz", "/healthz")
ASKED = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
async def full(road: StartRoad) -> AsyncIterator[Road]:
    """An adapter both of whose connections are taken by clients that ask nothing, one of which is told."""
    async with road(core={"max_connections": 2}) as (up, front, first), front.client() as second:
        # The kernel opens connections by itself; a request shows that the adapter has them too.
        await first.request("GET", path="/livez")
        yield up, front, second


async def asked(front: Adapter, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """The answer on a connection of its own."""
    async with front.client() as client:
        head, body = await client.request(method, INITIALIZE if method == "POST" else b"", path)
        return head.status, dict(head.fields), body


@pytest.mark.parametrize("path", HEALTH)
async def test_health_answers_when_all_connections_are_taken(full: Road, path: str) -> None:
    """Over and over, each time on a connection that is closed behind the answer."""
    for _ in range(5):
        status, fields, body = await asked(full[1], "GET", path)
        assert (status, fields["connection"]) == (200, "close")
        assert orjson.loads(body)["status"]


@pytest.mark.parametrize(("method", "path"), [("POST", "/mcp"), ("GET", "/mcp"), ("POST", "/upload/raw")])
async def test_anything_else_gets_503(full: Road, method: str, path: str) -> None:
    """It names the setting, says when to come again, and closes; nothing reaches the upstream."""
    up, front, _ = full
    status, fields, body = await asked(front, method, path)
    assert (status, fields["connection"], fields["retry-after"]) == (503, "close", "1")
    assert "core.max_connections" in orjson.loads(body)["detail"]
    assert up.seen == []


async def test_a_connection_that_closes_makes_room(full: Road) -> None:
    """The limit is on connections that are open now, not on those that ever were."""
    up, front, client = full
    client.close()
    async with asyncio.timeout(20):
        while (await asked(front, "POST", "/mcp"))[0] == 503:
            await asyncio.sleep(0.01)
    assert up.opened == 1


async def test_a_flood_of_silent_connections_leaves_health_alone(full: Road) -> None:
    """The reserve's own silent ones make room, the oldest first; no more are open than the limit and the reserve."""
    async with AsyncExitStack() as stack:
        for _ in range(4 * RESERVE):
            await stack.enter_async_context(full[1].client())
        for path in HEALTH:
            assert (await asked(full[1], "GET", path))[0] == 200


async def test_those_who_are_answered_keep_their_place() -> None:
    """A flood ends no request; and where the reserve is busy too, newcomers are told so at once."""
    go, came = asyncio.Event(), asyncio.Semaphore(0)

    async def wait(request: Request) -> None:
        came.release()
        await go.wait()
        request.reply.send(200, [], b"waited")

    full: list[int] = []
    places = ConnectionLimit(wait, limit=1, reserved=wait, reserve=1, on_full=lambda: full.append(1))
    refused: list[str] = []
    places.on_refusal = refused.append
    listener = await Listener.open(places, "127.0.0.1", 0, Patience())
    streams = [await asyncio.open_connection(*listener.address) for _ in range(2)]
    for _, writer in streams:
        writer.write(ASKED)
        await came.acquire()
    for _ in range(3):
        reader, writer = await asyncio.open_connection(*listener.address)
        head = await read_head(reader)
        assert (head.status, head["retry-after"]) == (503, "1")
        assert b"core.max_connections" in await read_body(reader, head)
        assert await reader.read() == b""
        writer.close()
    go.set()
    for reader, writer in streams:
        assert (await read_head(reader)).status == 200
        writer.transport.abort()
    assert len(full) == 4 and len(places) <= 2
    assert refused == ["connections_taken"] * 3
    listener.close()
    await listener.drop()


async def test_a_full_adapter_says_so_once(full: Road, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of log for each connection of a flood would be a flood of its own."""
    for _ in range(5):
        await asked(full[1], "GET", "/livez")
    assert capsys.readouterr().err.count("core.max_connections") == 1


async def serve(request: Request) -> None:
    request.reply.send(200, [], b"")


async def test_slow_heads_are_told_so() -> None:
    """Half a head gets its time from its first byte on, whatever was asked before; then 408, and the end."""
    listener = await Listener.open(serve, "127.0.0.1", 0, Patience(head=0.2))
    loop = asyncio.get_running_loop()
    for before in (b"", ASKED, ASKED + ASKED):
        reader, writer = await asyncio.open_connection(*listener.address)
        writer.write(before)
        await asyncio.sleep(0.1)
        began = loop.time()
        for byte in b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 1000:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
            if loop.time() - began > 0.4:
                break
        answer = await reader.read()
        assert answer.count(b"HTTP/1.1 200") == before.count(ASKED)
        assert answer.count(b"HTTP/1.1 408") == 1 and b"longer than 0.2 s" in answer
        writer.transport.abort()
    listener.close()
    await listener.drop()


async def test_a_client_may_send_heads_piece_by_piece_for_long() -> None:
    """Each head has a time of its own, also where one read ends one and begins the next."""
    listener = await Listener.open(serve, "127.0.0.1", 0, Patience(head=0.3))
    reader, writer = await asyncio.open_connection(*listener.address)
    sent = ASKED * 12
    for start in range(5, len(sent), len(ASKED)):
        writer.write(sent[max(0, start - len(ASKED)) : start])
        await asyncio.sleep(0.1)
    writer.write(sent[start:])
    for _ in range(12):
        assert (await read_head(reader)).status == 200
    writer.transport.abort()
    listener.close()
    await listener.drop()
