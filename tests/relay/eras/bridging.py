"""A legacy server that answers as it is told, behind the bridge for modern clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.log import get_logger
from adapter.relay.eras.legacy_sessions import LegacySessions, ServerBridge
from adapter.relay.eras.modern_clients import Forward, LegacyServer, ModernClients
from adapter.relay.eras.parked_calls import ParkedCalls
from adapter.relay.files.rounds import RoundLimits
from adapter.relay.replies import events_of, media_type
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import InnerClient
from adapter.relay.sessions.shared_sessions import SharedSessions
from adapter.rules.access.principals import ANONYMOUS, Caller
from adapter.rules.access.sessions import UpstreamSession
from adapter.settings.core import UpstreamConnections
from adapter.state.port import Store
from adapter.state.sqlite import MemoryStore
from adapter.upstream.local.replies import Deadlines
from adapter.upstream.port import ReadLimit, UpstreamReply, UpstreamRequest, WholeReply
from adapter.wire.envelope import read_envelope
from adapter.wire.sse import SseReader
from tests.relay.relaying import Clock
from tests.relay.sharing import LiveUpstream, Message, Stream, answered
from tests.waiting import until

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
ALL: Message = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
PATIENCE = 30.0
LIMITS = RoundLimits()


def modern(
    method: str,
    params: Message | None = None,
    *,
    number: int | str = 1,
    principal: str = "ada",
    capabilities: Message | None = None,
    meta: Message | None = None,
    fields: tuple[tuple[str, str], ...] = (),
) -> UpstreamRequest:
    """A request as the relay gives it to the upstream."""
    params = dict(params or {})
    params["_meta"] = {
        PREFIX + "protocolVersion": VERSION,
        PREFIX + "clientInfo": {"name": "test", "version": "1"},
        PREFIX + "clientCapabilities": ALL if capabilities is None else capabilities,
        **(meta or {}),
    }
    body = orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    named = params.get("uri") if method == "resources/read" else params.get("name")
    headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("MCP-Protocol-Version", VERSION),
        ("Mcp-Method", method),
        *(
            [("Mcp-Name", named)]
            if named and method in ("tools/call", "prompts/get", "resources/read")
            else []
        ),
        *fields,
    ]
    return UpstreamRequest("POST", headers, body, Caller(principal), envelope=read_envelope(body))


@dataclass
class Bridging:
    """One process with the bridge."""

    upstream: LiveUpstream
    clients: ModernClients
    parked: ParkedCalls
    clock: Clock
    sessions: LegacySessions
    numbers: int = field(default=0)

    async def send(self, request: UpstreamRequest) -> UpstreamReply:
        return await self.clients.send(request, PATIENCE)

    async def ask(self, method: str, params: Message | None = None, **more: Any) -> Message:
        """The response to a request, which is the last message of its answer."""
        self.numbers += 1
        return (await messages(await self.send(modern(method, params, number=self.numbers, **more))))[-1]

    async def call(self, name: str = "x", arguments: Message | None = None, **more: Any) -> Message:
        params = {"name": name, "arguments": arguments or {}, **more.pop("params", {})}
        return await self.ask("tools/call", params, **more)

    async def resume(self, asked: Message, given: Message, name: str = "x", **more: Any) -> Message:
        """The response to the next round of a call."""
        params = {"inputResponses": given, "requestState": asked["result"]["requestState"]}
        return await self.call(name, params=params, **more)


async def messages(reply: UpstreamReply) -> list[Message]:
    """All messages of an answer."""
    if media_type(reply.headers) != "text/event-stream":
        body = b""
        while chunk := await reply.read(PATIENCE):
            body += chunk
        return [orjson.loads(body)]
    found = []
    async with aclosing(events_of(reply, SseReader(1 << 20), PATIENCE)) as events:
        async for event in events:
            found.append(orjson.loads(event.data or b""))
    return found


def bridging(
    upstream: LiveUpstream,
    store: Store | None = None,
    *,
    owner: str = "",
    limits: RoundLimits = LIMITS,
    shares: bool = False,
    total: float | None = None,
    one_channel: bool = False,
    forward: Forward | None = None,
    clock: Clock | None = None,
) -> Bridging:
    store, clock = store or MemoryStore(), clock or Clock()
    server = Server("files", "/files", upstream)
    shared = SharedSessions(server, store, UpstreamConnections(), idle_ttl=None, clock=clock)
    like = InnerClient(upstream, UpstreamRequest("POST", []), UpstreamSession(None, ""), PATIENCE)
    sessions = LegacySessions(upstream, shared, like, shares, get_logger(__name__), Deadlines())
    parked = ParkedCalls(store, limits, clock, owner)
    limit = None if total is None else ReadLimit(total, "core.defaults.tool_call_total_seconds")
    bridge = ServerBridge("files", sessions, parked, limit, one_channel)
    clients = ModernClients(LegacyServer(bridge))
    clients.forward = forward
    return Bridging(upstream, clients, parked, clock, sessions)


def question(number: int | str, method: str = "elicitation/create", **params: Any) -> Message:
    """A request of the server's."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def answer_to(message: Message, text: str = "done") -> Message:
    """The response to a call, with one text."""
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}


@dataclass
class AskingServer(LiveUpstream):
    """Has the stream of each call said by the test. ``told`` are the other requests, which get an empty result."""

    calls: list[tuple[Message, Stream]] = field(default_factory=list)
    told: list[tuple[str, Message]] = field(default_factory=list)
    called: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.handler = self._stream

    async def _stream(self, message: Message) -> UpstreamReply:
        if message["method"].startswith(("logging/", "resources/")):
            self.told.append((message["method"], message["params"]))
            return answered(message, {})
        stream = Stream()
        async with self.called:
            self.calls.append((message, stream))
            self.called.notify_all()
        return stream

    async def next_call(self, count: int = 1) -> tuple[Message, Stream]:
        """The ``count``-th call."""
        async with self.called:
            await self.called.wait_for(lambda: len(self.calls) >= count)
        return self.calls[count - 1]

    async def until_said(self, count: int = 1) -> list[Message]:
        """What was said to questions, when it is so many messages."""
        await until(lambda: len(self.responses) >= count, PATIENCE)
        return self.responses

    @property
    def responses(self) -> list[Message]:
        return [message for message in self.said if "method" not in message]


class Processes:
    """Two of them at one server, with one store."""

    def __init__(self, upstream: AskingServer | None = None) -> None:
        self.upstream = upstream or AskingServer()
        self.forwarded: list[str] = []
        store = MemoryStore()
        self.by_name: dict[str, Bridging] = {
            name: bridging(self.upstream, store, owner=name, forward=self._forward) for name in ("one", "two")
        }

    async def _forward(
        self, owner: str, request: UpstreamRequest, read_timeout: float | None
    ) -> UpstreamReply:
        self.forwarded.append(owner)
        found = self.by_name.get(owner)
        return WholeReply(404) if found is None else await found.clients.send(request, read_timeout)


@asynccontextmanager
async def calling(process: Bridging, **more: Any) -> AsyncIterator[asyncio.Task[Message]]:
    """A call that is under way."""
    task = asyncio.create_task(process.call(**more))
    try:
        yield task
    finally:
        task.cancel()


__all__ = ["ANONYMOUS", "Stream"]
