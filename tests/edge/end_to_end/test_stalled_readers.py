"""Clients that do not take their answers: for how long they are waited for, and what they may hold meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.edge.http.bodies import ClientGone
from adapter.edge.http.limits import Handler, Patience
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Request
from tests.edge.conftest import StartRoad
from tests.edge.http.test_bodies import KIB, MIB
from tests.edge.raw import (
    Exchange,
    beginning,
    call_body,
    in_json,
    modern_body,
    modern_fields,
    read_chunk,
    result,
)
from tests.waiting import until

ASKED = b"GET /mcp HTTP/1.1\r\nHost: here\r\n\r\n"
STALL = 0.3


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server with that handler, on which a request was sent."""
    listener = await Listener.open(handler, "127.0.0.1", 0, Patience(linger=0.1, stall=STALL))
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(ASKED)
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.transport.abort()
        listener.close()
        await listener.drop()


# --- time -------------------------------------------------------------------------------------------------------


async def test_who_takes_nothing_of_a_stream_is_let_go(in_session: StartRoad) -> None:
    """After the time that it has for a part of its answer; the upstream's connection is free again too."""
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        with contextlib.suppress(ConnectionError):
            while True:
                await exchange.chunk(b"data: " + bytes(64 * 1024) + b"\n\n")
        gone.set()

    patience = Patience(stall=STALL)
    async with in_session(script, patience=patience) as (_, _, client):
        client.stop_reading()
        await client.send("POST", call_body())
        async with asyncio.timeout(20):
            await gone.wait()


async def test_who_takes_little_is_waited_for() -> None:
    """As long as something leaves, however long the whole takes."""

    async def flood(request: Request) -> None:
        request.reply.begin(200, [], None)
        while True:
            await request.reply.write(bytes(64 * 1024))

    async with serving(flood) as (reader, _):
        for _ in range(60):
            assert len(await reader.readexactly(256 * 1024)) == 256 * 1024
            await asyncio.sleep(STALL / 15)


class Endless:
    """A file as large as is asked for, which the kernel sends."""

    def __init__(self, path: Path) -> None:
        path.touch()
        os.truncate(path, 64 * MIB)
        self._file = os.open(path, os.O_RDONLY)

    async def send(self, receiver: int, offset: int, length: int) -> int:
        try:
            return os.sendfile(receiver, self._file, offset, length)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        os.close(self._file)


async def test_who_takes_nothing_of_a_file_is_let_go(tmp_path: Path) -> None:
    """The kernel sends it, so that nothing waits here; a full socket is noticed all the same."""
    over: list[Exception] = []

    async def download(request: Request) -> None:
        request.reply.begin(200, [], 64 * MIB)
        try:
            await request.reply.write_file(file, 0, 64 * MIB)
        except ClientGone as error:
            over.append(error)
            raise

    file = Endless(tmp_path / "file")
    async with serving(download) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's own can
        await until(lambda: over)
    file.close()


# --- memory -----------------------------------------------------------------------------------------------------

LARGE = call_body() + b" " * 300 * KIB


async def test_a_stream_holds_nothing_of_its_request(in_session: StartRoad) -> None:
    """From its head on: the request has been sent and is not sent again, however long the stream is open."""
    script = beginning()
    async with in_session(script) as (_, front, client):
        await client.send("POST", LARGE)
        assert (await client.head()).status == 200
        assert front.app.bodies.buffers.used == 0


@pytest.mark.parametrize("size", [100 * KIB, 12 * MIB])
async def test_an_answer_that_is_not_taken_holds_nothing_of_its_request(
    in_session: StartRoad, size: int
) -> None:
    """However large it is, and for however long its client looks away."""

    async with in_session(in_json(result(1, "z" * size))) as (up, front, client):
        client.stop_reading()
        await client.send("POST", LARGE)
        await up.arrived("tools/call")
        await until(lambda: front.app.bodies.buffers.used == 0)
        client.read_on()
        assert (await client.head()).status == 200


async def test_what_the_upstream_did_not_take_still_counts(road: StartRoad) -> None:
    """One that answers before it has read the request leaves its bytes here: they are held, and counted."""

    held: list[asyncio.StreamWriter] = []

    async def greedy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's own can
        writer.write(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n: early\n\n")

    early = await asyncio.start_server(greedy, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{early.sockets[0].getsockname()[1]}/mcp"
    core, body = {"max_request_bytes": "32Mi"}, modern_body() + b" " * 16 * MIB
    async with road(core=core, server={"upstream": {"url": url}}) as (_, front, client):
        await client.send("POST", body, **modern_fields())
        assert (await client.head()).status == 200
        assert await read_chunk(client.reader) == b": early\n\n"
        assert front.app.bodies.buffers.used == len(body)
    early.close()
    for writer in held:
        writer.transport.abort()


async def test_stages_keep_the_request_until_the_answer_has_left(in_session: StartRoad) -> None:
    """They may have to read it again, or write it down."""
    script = beginning(b": alive\n\n")
    makes = {"type": "artifact_producer", "tools": ["tool"], "output_locator": {"mode": "embedded"}}
    async with in_session(script, server={"adapters": [makes]}) as (_, front, client):
        await client.send("POST", LARGE)
        assert (await client.head()).status == 200
        assert front.app.bodies.buffers.used == len(LARGE)
        client.close()
        await until(lambda: front.app.bodies.buffers.used == 0)
