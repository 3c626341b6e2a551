"""Clients of an SSE upstream, as the relay sends their requests."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import structlog

from adapter.upstream.http import HttpUpstream
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.port import Headers, UpstreamReply, UpstreamRequest, header
from adapter.upstream.sse.session import SseServer
from adapter.upstream.sse.stream import SseAddress
from tests.upstream.raw_peer import PATIENCE
from tests.upstream.sse.scripted_server import SseSite, Stream

DELAY = 0.01
"""Seconds before a stream is opened again."""

FIELDS: Headers = (
    ("Accept", "application/json, text/event-stream"),
    ("Content-Type", "application/json"),
    ("Accept-Encoding", "gzip"),
    ("Authorization", "Bearer mine"),
)
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize",'
    b'"params":{"protocolVersion":"2025-06-18","capabilities":{}}}'
)
AGREED = b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2024-11-05","capabilities":{}}}'
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class Front:
    """The upstream under test, in front of a scripted server."""

    def __init__(
        self,
        site: SseSite,
        *,
        limit: int = 1 << 20,
        patience: float = PATIENCE,
        most: int = 100,
        linger: float = 5.0,
    ) -> None:
        self.site = site
        self.http = HttpUpstream(site.url, max_streams=most)
        address = SseAddress(self.http, site.url, limit, patience, linger, DELAY)
        self.server = SseServer(address, structlog.get_logger("test"), most)
        self.upstream = LocalUpstream(self.server)

    async def close(self) -> None:
        await self.upstream.close()

    async def post(
        self, body: bytes, session: str | None = None, fields: Headers = FIELDS, query: str = ""
    ) -> UpstreamReply:
        if session is not None:
            fields = (*fields, ("Mcp-Session-Id", session))
        return await self.upstream.send(UpstreamRequest("POST", fields, body, query=query), PATIENCE)

    def posting(self, body: bytes, session: str | None = None) -> asyncio.Task[UpstreamReply]:
        return asyncio.create_task(self.post(body, session))

    async def get(self, session: str, last_event_id: str | None = None) -> UpstreamReply:
        fields = [("Mcp-Session-Id", session), ("Accept", "text/event-stream")]
        if last_event_id is not None:
            fields.append(("Last-Event-ID", last_event_id))
        return await self.upstream.send(UpstreamRequest("GET", fields), PATIENCE)

    async def delete(self, session: str) -> UpstreamReply:
        return await self.upstream.send(UpstreamRequest("DELETE", [("Mcp-Session-Id", session)]), PATIENCE)

    async def opened(self) -> tuple[str, Stream]:
        """A session, and its stream at the server."""
        waits = self.posting(INITIALIZE)
        stream = await (await self.site.stream()).opens()
        assert (await self.site.post()).body == INITIALIZE
        await stream.says(AGREED)
        reply = await waits
        session = header(reply.headers, "mcp-session-id")
        assert (reply.status, reply.whole) == (200, AGREED) and session is not None
        return session, stream

    async def called(self, session: str, number: int = 7) -> asyncio.Task[UpstreamReply]:
        """A call that has reached the server and waits for its answer."""
        waits = self.posting(call(number), session)
        await self.site.post()
        return waits

    async def is_answered(self, session: str, stream: Stream, number: int = 8) -> None:
        """One more call gets its answer."""
        waits = await self.called(session, number)
        await stream.says(result(number))
        assert (await waits).whole == result(number)


def call(number: int = 7, **params: Any) -> bytes:
    """A call, spelled in a way of its own."""
    return b'{"jsonrpc":"2.0", "id":%d, "method":"tools/call", "params":%b}' % (
        number, orjson.dumps({"name": "x", **params}),
    )  # fmt: skip


def result(number: int = 7) -> bytes:
    return b'{"id":%d,  "result":{"pi":3.10}, "jsonrpc":"2.0"}' % number


def sent(method: str, **params: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "method": method, "params": params})
