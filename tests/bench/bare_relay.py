"""A relay that does as little as a relay in Python can, as an anchor for what the adapter's calls cost.

``python -m tests.bench.bare_relay PORT UPSTREAM_PORT`` serves ``/mcp``. It parses HTTP with httptools, looks at each
message's method, maps session ids in a dict, keeps upstream connections in a pool, streams answers and lets a slow
client slow its upstream down: one task for each request, as the adapter has. It has no authentication, log, limit,
timeout or state that survives it. A call costs the adapter more than this relay by its features and its design.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import deque
from typing import Any, cast

import httptools
import orjson
import uvloop

SESSION = b"mcp-session-id"
NOT_FORWARDED = {b"host", b"connection", b"content-length", b"transfer-encoding", SESSION}
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class Upstream(asyncio.Protocol):
    """One keep-alive connection to the upstream, with one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.fields: list[tuple[bytes, bytes]] = []
        self._parser: Any = None
        self._pieces: deque[bytes] = deque()
        self._news: asyncio.Future[None] | None = None
        self._has_head = self.is_done = self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        self._wake()

    async def send(self, request: bytes) -> int:
        """Send a request; the status of its answer."""
        self._parser = httptools.HttpResponseParser(self)
        self.fields, self._has_head, self.is_done = [], False, False
        self._pieces.clear()
        self.transport.write(request)
        while not self._has_head:
            await self._wait()
        status: int = self._parser.get_status_code()
        return status

    async def read(self) -> bytes:
        """What has come of the body; nothing at its end."""
        while not self._pieces and not self.is_done:
            await self._wait()
        body = b"".join(self._pieces)
        self._pieces.clear()
        return body

    async def _wait(self) -> None:
        if self.is_lost:
            raise ConnectionError("the upstream closed the connection")
        self._news = asyncio.get_running_loop().create_future()
        self.transport.resume_reading()
        await self._news

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        elif not self.is_done and len(self._pieces) > 16:
            self.transport.pause_reading()

    # httptools calls these
    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self.is_done = True


class Relay:
    """The state of the process: the session map and the upstream connections that are free."""

    def __init__(self, upstream_port: int) -> None:
        self._port = upstream_port
        self.sessions: dict[bytes, bytes] = {}
        self.free: list[Upstream] = []

    async def connection(self) -> Upstream:
        """A free connection to the upstream, or a new one."""
        while self.free:
            if not (connection := self.free.pop()).is_lost:
                return connection
        _, opened = await asyncio.get_running_loop().create_connection(Upstream, "127.0.0.1", self._port)
        return opened


class Client(asyncio.Protocol):
    """One keep-alive connection of a client, with one request at a time."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._session = b""
        self._fields: list[bytes] = []
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    # httptools calls these
    def on_message_begin(self) -> None:
        self._fields, self._body, self._session = [], [], b""

    def on_header(self, name: bytes, value: bytes) -> None:
        field = name.lower()
        if field == SESSION:
            self._session = value
        elif field not in NOT_FORWARDED:
            self._fields += (name, b": ", value, b"\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._exchange())

    async def _exchange(self) -> None:
        request = self._request(self._parser.get_method(), b"".join(self._body))
        if request is None:
            self._transport.write(NOT_FOUND)
            return
        upstream = await self._relay.connection()
        try:
            status = await upstream.send(request)
            await self._answer(upstream, status)
        except BaseException:
            upstream.transport.abort()
            raise
        self._relay.free.append(upstream)

    def _request(self, method: bytes, body: bytes) -> bytes | None:
        """The request as it goes upstream; None for one of no session."""
        message = orjson.loads(body) if body else None
        session = self._relay.sessions.get(self._session)
        if session is None and (message is None or message.get("method") != "initialize"):
            return None
        if method == b"DELETE":
            del self._relay.sessions[self._session]
        mapped = b"" if session is None else b"Mcp-Session-Id: " + session + b"\r\n"
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        return b"".join((method, b" /mcp HTTP/1.1\r\nHost: bench\r\n", *self._fields, mapped, length, body))

    async def _answer(self, upstream: Upstream, status: int) -> None:
        head, chunked = [b"HTTP/1.1 %d OK\r\n" % status], True
        for name, value in upstream.fields:
            field = name.lower()
            if field == SESSION:
                self._relay.sessions[minted := secrets.token_hex(16).encode()] = value
                value = minted
            chunked = chunked and field != b"content-length"
            if field != b"connection":
                head += (name, b": ", value, b"\r\n")
        head.append(b"\r\n")
        while head or not upstream.is_done:
            body = await upstream.read()
            piece = b"%x\r\n%b\r\n" % (len(body), body) if chunked and body else body
            end = b"0\r\n\r\n" if chunked and upstream.is_done else b""
            self._transport.write(b"".join((*head, piece, end)))
            head = []
            await self._writable.wait()


async def serve(port: int, upstream_port: int) -> None:
    """Serve until the process is ended."""
    relay = Relay(upstream_port)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(relay), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
