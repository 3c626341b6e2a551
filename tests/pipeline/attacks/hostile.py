"""An upstream that answers calls as a test likes, behind a running adapter whose stages guard it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tests.edge.raw import Exchange, RawUpstream
from tests.pipeline.end_to_end.living import Answer, Living, Speaker, living

SECRET = "jane@example.org"
RECORD = {"content": [{"type": "text", "text": orjson.dumps({"id": 1, "email": SECRET}).decode()}]}
REDACTED = {"id": 1, "email": "[REDACTED]"}

SETTINGS = """
presenters:
  customer: {schema: {id: int, email: string}, redact: {paths: [email]}}
servers:
  - id: raw
    mount_path: /mcp
    upstream: {url: "%s"}
    stages:
      "locked_*": {auth: {plugin: api_key, policy: {value: k3y}}}
      "shown_*": {presenter: customer}
      "rare_*": {limits: {rate: {max: 1, window: 60s}}}
core: {tool_definition_pinning: {mode: "off"}}
"""

Json = dict[str, Any]
Says = Callable[[Exchange, Any], Awaitable[None]]
"""Answers a call, given its id."""


def response(number: Any, result: Json = RECORD, **members: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "result": result, **members})


async def plainly(exchange: Exchange, number: Any) -> None:
    await exchange.json(response(number))


@dataclass
class Hostile:
    """An upstream's script. ``ran`` are the bodies of the calls that it got; ``replays`` answers GET.

    ``sessions`` are those that it knows, and ``port`` is where it listens, also when it is started again.
    """

    says: Says = plainly
    listed: list[str] = field(default_factory=list)
    annotations: Json = field(default_factory=dict)
    replays: Callable[[Exchange], Awaitable[None]] | None = None
    ran: list[bytes] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    port: int = 0

    async def __call__(self, exchange: Exchange) -> None:
        message = exchange.message
        if exchange.head.method == "GET" and self.replays is not None:
            await self.replays(exchange)
        elif message.get("method") == "tools/list":
            more = {"inputSchema": {"type": "object"}, "annotations": self.annotations}
            tools = [{"name": name, **more} for name in self.listed]
            await exchange.json(response(message["id"], {"tools": tools}))
        else:
            self.ran.append(exchange.body)
            await self.says(exchange, message.get("id"))


@contextlib.asynccontextmanager
async def behind(
    upstream: Hostile, place: Path, settings: str = SETTINGS, **scripts: str
) -> AsyncIterator[Living]:
    """The running adapter before ``upstream``, whose URL takes the place of ``%s`` in ``settings``."""
    raw = RawUpstream(upstream, sessions=set(upstream.sessions), port=upstream.port)
    async with raw:
        upstream.port = raw.port
        try:
            async with living(place, settings % raw.url, scripts=scripts) as front:
                yield front
        finally:
            upstream.sessions |= raw.sessions


async def spoken(speaker: Speaker, params: bytes, named: str, **members: str) -> Answer:
    """A call whose params are exactly these bytes, but for the ``_meta`` of a modern one; ``named`` mirrors it."""
    fields, _ = speaker.request("tools/call", {"name": named})
    if speaker.modern:
        meta = orjson.loads(speaker.request("tools/call", {})[1])["params"]["_meta"]
        params = params[:-1] + b',"_meta":' + orjson.dumps(meta) + b"}" if params[:1] == b"{" else params
    more = b"".join(b',"%b":%b' % (key.encode(), value.encode()) for key, value in members.items())
    body = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%b%b}' % (params, more)
    return Answer(*await speaker.raw.request("POST", body, speaker.path, **fields))
