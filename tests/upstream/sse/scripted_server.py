"""An HTTP+SSE server that says exactly what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.upstream.raw_peer import PATIENCE, Peer, Site
from tests.upstream.raw_peer import site as listening

OPENED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDPOINT = "/messages?session_id=1"


@dataclass
class Stream:
    """The server's end of one GET."""

    peer: Peer
    head: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def opens(self, endpoint: str | None = ENDPOINT) -> Stream:
        """Answer with an event stream, whose first event names the endpoint."""
        await self.peer.says(OPENED)
        if endpoint is not None:
            await self.sends(f"event: endpoint\ndata: {endpoint}\n\n".encode())
        return self

    async def sends(self, *pieces: bytes) -> None:
        """Send bytes of the stream, each piece as a chunk of its own."""
        await self.peer.says(*[b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces])

    async def says(self, *messages: bytes, id: str | None = None) -> None:
        """Send JSON-RPC messages."""
        name = "" if id is None else f"id: {id}\n"
        for message in messages:
            await self.sends(f"event: message\n{name}".encode() + b"data: " + message + b"\n\n")

    async def refuses(self, head: bytes, body: bytes = b"") -> None:
        await self.peer.says(head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async def ends(self) -> None:
        """End the stream in order."""
        await self.peer.says(b"0\r\n\r\n")
        self.ended.set()

    def breaks(self) -> None:
        """Lose the connection."""
        self.peer.reset()

    async def left(self) -> None:
        """Wait until the client has dropped the stream."""
        await self.peer.left()
        self.ended.set()


@dataclass
class Post:
    """One message that was posted, to be answered as HTTP."""

    peer: Peer
    head: str
    body: bytes
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def message(self) -> Any:
        return orjson.loads(self.body)

    @property
    def target(self) -> str:
        return self.head.split()[1]

    async def answers(self, status: str = "202 Accepted", body: bytes = b"Accepted", *fields: str) -> None:
        lines = "".join(f"{line}\r\n" for line in fields)
        head = f"HTTP/1.1 {status}\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        await self.peer.says(head.encode() + body)
        self.answered.set()

    def breaks(self) -> None:
        self.peer.reset()
        self.answered.set()


class SseSite:
    """The GETs and POSTs that come in, each in order. ``accepts``: every POST is answered 202 at once."""

    def __init__(self, site: Site) -> None:
        self.accepts = True
        self.posted: list[Post] = []
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()
        self.posts: asyncio.Queue[Post] = asyncio.Queue()
        self._site = site

    @property
    def url(self) -> str:
        return self._site.url("/sse")

    def origin(self, host: str = "127.0.0.1") -> str:
        return self._site.url("", host=host)

    async def stream(self) -> Stream:
        async with asyncio.timeout(PATIENCE):
            return await self.streams.get()

    async def post(self) -> Post:
        async with asyncio.timeout(PATIENCE):
            return await self.posts.get()

    async def attend(self) -> None:
        """Take every connection, until cancelled."""
        async with asyncio.TaskGroup() as attending:
            while True:
                attending.create_task(self._attend(await self._site.peers.get()))

    async def _attend(self, peer: Peer) -> None:
        try:
            while True:
                head, body = await _request(peer)
                if head.startswith("GET"):
                    stream = Stream(peer, head)
                    self.streams.put_nowait(stream)
                    await stream.ended.wait()
                    continue
                post = Post(peer, head, body)
                self.posted.append(post)
                if self.accepts:
                    await post.answers()
                self.posts.put_nowait(post)
                await post.answered.wait()
        except (asyncio.IncompleteReadError, ConnectionError):
            peer.hang_up()


async def _request(peer: Peer) -> tuple[str, bytes]:
    head = await peer.reader.readuntil(b"\r\n\r\n")
    _, _, rest = head.lower().partition(b"content-length: ")
    return head.decode("latin-1"), await peer.reader.readexactly(int(rest.split(b"\r\n")[0]) if rest else 0)


@asynccontextmanager
async def sse_site() -> AsyncIterator[SseSite]:
    """A scripted server on loopback."""
    async with listening() as site:
        server = SseSite(site)
        attending = asyncio.create_task(server.attend())
        try:
            yield server
        finally:
            attending.cancel()
            await asyncio.gather(attending, return_exceptions=True)
