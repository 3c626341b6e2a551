"""A server end made of bytes: it accepts connections and says exactly what a test tells it to."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import Purpose, UpstreamReply, UpstreamRequest, always

PATIENCE = 20.0
"""Seconds after which a test gives up; nothing here takes a tenth of it."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
POST = UpstreamRequest("POST", [("Accept", "application/json")], b'{"id":1}')
PING = UpstreamRequest("POST", [("Accept", "application/json")], b'{"id":2}', repeatable=always)
GET = UpstreamRequest("GET", [("Accept", "text/event-stream")], repeatable=always, purpose=Purpose.STREAM)


class Peer:
    """The server's end of one accepted connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """The next request, head and body as they came."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            _, _, rest = head.lower().partition(b"content-length: ")
            return head + await self.reader.readexactly(int(rest.split(b"\r\n")[0]) if rest else 0)

    async def says(self, *pieces: bytes) -> None:
        """Send each piece as a segment of its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    def hang_up(self) -> None:
        """Close in order (FIN)."""
        self.writer.close()

    def hang_up_at_once(self) -> None:
        """Close in order, before anybody else of this process gets a turn."""
        own = self.writer.get_extra_info("socket")
        with socket.socket(fileno=os.dup(own.fileno())) as same:
            same.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close without order (RST)."""
        self.writer.transport.abort()

    async def left(self) -> None:
        """Wait until the client's end is gone."""
        async with asyncio.timeout(PATIENCE):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass

    async def gone(self) -> None:
        """Wait until the descriptor of this end is closed."""
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class Site:
    """A listening server; its connections come out of ``accept`` in the order they were made."""

    def __init__(self) -> None:
        self.accepted = 0
        self.port = 0
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._open: list[Peer] = []

    def url(self, path: str = "/mcp", *, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def accept(self) -> Peer:
        async with asyncio.timeout(PATIENCE):
            return await self.peers.get()

    def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        peer = Peer(reader, writer)
        self._open.append(peer)
        self.peers.put_nowait(peer)

    def hang_up_all(self) -> None:
        for peer in self._open:
            peer.reset()


@asynccontextmanager
async def site(tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    listening = Site()
    server = await asyncio.start_server(listening.admit, "127.0.0.1", 0, ssl=tls, backlog=1024)
    listening.port = server.sockets[0].getsockname()[1]
    try:
        yield listening
    finally:
        server.close()
        listening.hang_up_all()
        await server.wait_closed()


async def answer_all(listening: Site, answer: Callable[[Peer], Awaitable[None]]) -> None:
    """Play ``answer`` for every request of every connection, until cancelled."""

    async def attend(peer: Peer) -> None:
        try:
            while True:
                await peer.request()
                await answer(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            peer.hang_up()

    async with asyncio.TaskGroup() as attending:
        while True:
            attending.create_task(attend(await listening.peers.get()))


async def body_of(reply: UpstreamReply) -> bytes:
    """The whole body, read to its end."""
    pieces = []
    while piece := await reply.read(PATIENCE):
        pieces.append(piece)
    return b"".join(pieces)


async def sent(
    upstream: HttpUpstream, site: Site, request: UpstreamRequest = POST
) -> tuple[Peer, asyncio.Task[UpstreamReply]]:
    """A request that has reached the server on a new connection, and the task that waits for its answer."""
    sending = asyncio.create_task(upstream.send(request, PATIENCE))
    peer = await site.accept()
    await peer.request()
    return peer, sending
