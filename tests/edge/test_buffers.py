"""Memory that all bodies share: who waits for it, who goes on, and who is told that there is none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from adapter.edge.bodies import Body, BodyTerms
from adapter.edge.buffers import RequestBuffers
from adapter.edge.listener import Listener
from adapter.edge.patience import Patience
from adapter.edge.request import Request
from adapter.errors import BuffersFull
from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.raw import call_body
from tests.edge.test_bodies import KIB, MIB, until

# --- bodies for which there is no room --------------------------------------------------------------------------


class SlowReader:
    """A handler that takes a first piece, waits for ``go``, and notes the rest, or the failure in place of it."""

    def __init__(self) -> None:
        self.request: Request | None = None
        self.first, self.go, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.rest: bytes | None = None
        self.failure: Exception | None = None

    async def __call__(self, request: Request) -> None:
        self.request = request
        await request.body.piece(5)
        self.first.set()
        await self.go.wait()
        try:
            self.rest = await request.body.piece(5)
        except BuffersFull as error:
            self.failure = error
        request.reply.send(200, [], b"")
        self.over.set()


@contextlib.asynccontextmanager
async def listening(handler: SlowReader, terms: BodyTerms) -> AsyncIterator[Listener]:
    listener = await Listener.open(handler, "127.0.0.1", 0, Patience(linger=0.1), terms)
    try:
        yield listener
    finally:
        listener.close()
        await listener.drop()


async def test_the_end_of_a_refused_body_is_no_end() -> None:
    """A reader that was busy while the rest was refused, and its end came, is told so: half a body is not whole."""
    reader, terms = SlowReader(), BodyTerms(RequestBuffers(64 * KIB))
    async with listening(reader, terms) as listener:
        _, writer = await asyncio.open_connection(*listener.address)
        head = b"POST /mcp HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % (3 * 30 * KIB)
        writer.write(head + bytes(30 * KIB))
        await reader.first.wait()
        terms.buffers.add(MIB)
        assert reader.request is not None
        body = reader.request.body
        writer.write(bytes(30 * KIB))
        await until(lambda: body.unwanted)
        writer.write(bytes(30 * KIB))
        await until(lambda: body.complete)
        reader.go.set()
        await reader.over.wait()
        writer.close()
    assert isinstance(reader.failure, BuffersFull) and reader.rest is None


async def test_no_way_of_reading_takes_a_refused_body_for_whole() -> None:
    """Its end may have come before its first reader does."""
    body = Body(lambda: None)
    body.add(bytes(30 * KIB))
    body.refuse()
    body.end()
    for read in (body.read(), body.piece(1)):
        with pytest.raises(BuffersFull):
            await read
    with pytest.raises(BuffersFull):
        body.take()


# --- waiting ----------------------------------------------------------------------------------------------------


async def test_who_leaves_while_it_waits_is_forgotten(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """Also while nothing is given back: a crowd that comes and goes leaves nothing behind."""
    async with upstream() as up, adapter(up, core={"max_buffered_bytes": "1Mi"}) as front:
        buffers = front.app.bodies.buffers
        buffers.add(MIB + 1)
        async with front.client() as client:
            await client.initialize()
            await client.send("POST", call_body() + b" " * 20 * KIB, content_length=str(90 * KIB))
            await until(lambda: buffers._waiting)
        await until(lambda: not buffers._waiting)
        assert buffers.full
