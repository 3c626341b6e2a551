"""Bodies that threads read from the socket: they end where others do, and the connection goes on behind them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from adapter.edge.http.bodies import LARGE, LOW_WATER, Body, BodyLimits, BodySocket, ClientGone
from adapter.edge.http.limits import Patience
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Request
from adapter.errors import BodyTooSlow
from adapter.rules.access.rate_limit import Floor
from tests.edge.raw import read_head

SIZE = 4 * LARGE
HEAD = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n"


async def whole(source: BodySocket, patience: float = 5.0) -> bytes:
    """All that is left, read in a thread."""
    content = b""
    block = memoryview(bytearray(100_000))
    while source.left:
        count = await asyncio.to_thread(source.receive, block)
        content += block[:count]
        if not count:
            await source.wait(patience)
    return content


class Reader:
    """A handler that takes the first piece of a body through the loop, and the rest from its socket if it can."""

    def __init__(self, patience: float = 5.0) -> None:
        self.contents: list[bytes] = []
        self.from_socket: list[int] = []
        self.failure: BaseException | None = None
        self.waits, self.over = asyncio.Event(), asyncio.Event()
        self.most = SIZE
        self._patience = patience

    async def __call__(self, request: Request) -> None:
        try:
            await self._read(request.body)
        except BaseException as failure:
            self.failure = failure
            raise
        finally:
            self.over.set()
        request.reply.send(200, [], b"%d" % len(self.contents[-1]))

    async def _read(self, body: Body) -> None:
        content = b""
        while piece := await body.piece(self._patience):
            content += piece
            source = body.socket()
            if source is not None:
                with contextlib.closing(source):
                    self.from_socket.append(source.left)
                    self.waits.set()
                    content += await whole(source, self._patience)
        self.contents.append(content)


@contextlib.asynccontextmanager
async def listening(
    reader: Reader, terms: BodyLimits | None = None, patience: Patience | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    listener = await Listener.open(
        reader, "127.0.0.1", 0, patience or Patience(linger=0.1), terms or BodyLimits()
    )
    answers, writer = await asyncio.open_connection(*listener.address)
    try:
        yield answers, writer
    finally:
        writer.close()
        listener.close()
        await listener.drop()


async def answer(answers: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await read_head(answers)
    return head.status, await answers.readexactly(int(head["content-length"]))


async def test_the_connection_goes_on_behind_a_body_read_by_threads() -> None:
    """Two large bodies and a small one on one connection, the last two sent ahead: each is whole, and is answered."""
    reader = Reader()
    first, second = b"1" * SIZE, bytes(range(256)) * (SIZE // 256)
    async with listening(reader) as (answers, writer):
        writer.write(HEAD % SIZE + first + HEAD % SIZE + second + HEAD % 2 + b"hi")
        statuses = [await answer(answers) for _ in range(3)]
    assert statuses == [(200, b"%d" % SIZE), (200, b"%d" % SIZE), (200, b"2")]
    assert reader.contents == [first, second, b"hi"]
    assert reader.from_socket and max(reader.from_socket) < SIZE


async def test_what_is_small_or_in_chunks_comes_through_the_loop() -> None:
    """Where little is left, or nobody said how much, there is no socket to read from."""
    reader = Reader()
    async with listening(reader) as (answers, writer):
        writer.write(HEAD % (LARGE - 1) + b"x" * (LARGE - 1))
        assert await answer(answers) == (200, b"%d" % (LARGE - 1))
        writer.write(HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked"))
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (SIZE, b"x" * SIZE))
        assert await answer(answers) == (200, b"%d" % SIZE)
    assert not reader.from_socket


@pytest.mark.parametrize("resets", [False, True])
async def test_a_client_that_leaves_amid_its_body_is_noticed(resets: bool) -> None:
    """Its reader, who waits for more, is told that it has gone; half a body is not taken for a whole one."""
    reader = Reader()
    async with listening(reader) as (_, writer):
        writer.write(HEAD % SIZE + b"x" * LARGE)
        await reader.waits.wait()
        if resets:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()
        else:
            writer.close()
        await reader.over.wait()
    assert isinstance(reader.failure, ClientGone) and not reader.contents


async def test_a_client_that_trickles_is_too_slow() -> None:
    """The floor of all bodies holds here too."""
    reader = Reader()
    floor = Floor(rate=1_000_000, window=0.2, grace=0)
    async with listening(reader, BodyLimits(floor=floor)) as (_, writer):
        writer.write(HEAD % SIZE + b"x" * 1000)
        while not reader.over.is_set():
            writer.write(b"x" * 1000)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.over.wait(), 0.05)
    assert isinstance(reader.failure, BodyTooSlow)


async def test_few_bytes_do_not_wait_for_many() -> None:
    """Less than the kernel gathers is taken after a moment, and the last bytes of a body at once."""
    reader = Reader()
    async with listening(reader) as (answers, writer):
        writer.write(HEAD % (LARGE + 1) + b"x")
        await reader.waits.wait()
        for size in (LARGE - LOW_WATER - 1, LOW_WATER):
            writer.write(b"x" * size)
            await writer.drain()
        writer.write(b"x")
        assert await asyncio.wait_for(answer(answers), 5) == (200, b"%d" % (LARGE + 1))


async def test_a_cancelled_reader_gives_its_connection_back() -> None:
    """Whatever ends the reading, the socket is the loop's again and its descriptor is closed."""
    reader = Reader()
    async with listening(reader) as (answers, writer):
        writer.write(HEAD % SIZE + b"x" * LARGE)
        await reader.waits.wait()
        writer.transport.abort()
        await reader.over.wait()
        assert await answers.read() == b""
