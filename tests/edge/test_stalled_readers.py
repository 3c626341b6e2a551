"""Clients that do not take their answers: for how long they are waited for, and what they may hold meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from adapter.edge.listener import Listener
from adapter.edge.patience import Patience
from adapter.edge.places import Handler
from adapter.edge.request import ClientGone, Request
from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.raw import Exchange, call_body
from tests.edge.test_bodies import MIB, until

ASKED = b"GET /mcp HTTP/1.1\r\nHost: here\r\n\r\n"
STALL = 0.3


@contextlib.asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server with that handler, on which a request was sent."""
    listener = await Listener.open(handler, "127.0.0.1", 0, Patience(linger=0.1, stall=STALL))
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(ASKED)
    try:
        async with asyncio.timeout(5):
            yield reader, writer
    finally:
        writer.transport.abort()
        listener.close()
        await listener.drop()


# --- time -------------------------------------------------------------------------------------------------------


async def test_who_takes_nothing_of_a_stream_is_let_go(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """After ``core.client_timeouts.answer_stall_seconds``; the upstream's connection is free again too."""
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        with contextlib.suppress(ConnectionError):
            while True:
                await exchange.chunk(b"data: " + bytes(64 * 1024) + b"\n\n")
        gone.set()

    core = {"client_timeouts": {"answer_stall_seconds": STALL}}
    async with upstream(script) as up, adapter(up, core=core) as front, front.client() as client:
        await client.initialize()
        client.stop_reading()
        await client.send("POST", call_body())
        async with asyncio.timeout(5):
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
