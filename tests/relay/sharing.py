"""A server with sessions that answers as it is told, and adapter processes that share its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.errors import UpstreamUnreachable
from adapter.relay.cleanup import CleanupTask
from adapter.relay.exchange import ClientResponse as RelayAnswer
from adapter.relay.sessions.shared_sessions import SharedSessions
from adapter.settings.core import UpstreamConnections
from adapter.state.port import Store
from adapter.state.sqlite import MemoryStore
from adapter.upstream.port import Headers, UpstreamReply, UpstreamRequest, header
from adapter.wire.eras import Era
from adapter.wire.sse import encode
from tests.relay.relaying import INITIALIZE, Clock, Relaying, pieces, whole
from tests.scripted import ScriptedAnswer, ScriptedReply

JSON = ("Content-Type", "application/json")
Message = dict[str, Any]
RESULT: Message = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "live"}}


class Stream:
    """An UpstreamReply that is an event stream, said by a test."""

    status = 200
    whole: bytes | None = None
    needs_request = False
    headers: Headers = (("Content-Type", "text/event-stream"),)

    def __init__(self) -> None:
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self.aborted = asyncio.Event()

    def say(self, message: object, number: str | None = None) -> None:
        """Say a message, as an event with that id."""
        self.write(encode(orjson.dumps(message), id=number.encode() if number else None))

    def write(self, text: bytes) -> None:
        self._said.put_nowait(text)

    def end(self) -> None:
        self._said.put_nowait(b"")

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        async with asyncio.timeout(read_timeout):
            return await self._said.get()

    def abort(self) -> None:
        """See UpstreamReply."""
        self.aborted.set()


def answered(message: Message, result: object) -> ScriptedReply:
    body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
    return ScriptedReply(ScriptedAnswer(headers=(JSON,), chunks=[body]))


async def echo(message: Message) -> UpstreamReply:
    """Answers with the request's arguments."""
    return answered(message, message.get("params", {}).get("arguments"))


@dataclass
class LiveUpstream:
    """Has sessions, counts them, and answers requests by ``handler``. ``said`` is what needed no answer."""

    handler: Callable[[Message], Awaitable[UpstreamReply]] = echo
    issues_ids: bool = True
    alive: set[str] = field(default_factory=set)
    opened: int = 0
    requests: list[UpstreamRequest] = field(default_factory=list)
    said: list[Message] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    opens: asyncio.Event = field(default_factory=asyncio.Event)
    refuses: ScriptedAnswer | None = None
    away: bool = False
    result: Message = field(default_factory=lambda: dict(RESULT))

    def __post_init__(self) -> None:
        self.opens.set()

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        self.requests.append(request)
        if self.away:
            raise UpstreamUnreachable()
        session = header(request.headers, "mcp-session-id")
        if b'"initialize"' in request.body:
            return await self._open(orjson.loads(request.body))
        if self.issues_ids and session not in self.alive:
            return ScriptedReply(ScriptedAnswer(404))
        if request.method == "DELETE":
            self.alive.discard(session or "")
            return ScriptedReply(ScriptedAnswer())
        if request.method == "GET":
            stream = Stream()
            self.streams.append(stream)
            return stream
        message = orjson.loads(request.body)
        if isinstance(message, list):
            answers = [{"jsonrpc": "2.0", "id": each["id"], "result": each["method"]} for each in message]
            return ScriptedReply(ScriptedAnswer(headers=(JSON,), chunks=[orjson.dumps(answers)]))
        if "id" in message and "method" in message:
            return await self.handler(message)
        self.said.append(message)
        return ScriptedReply(ScriptedAnswer(202, headers=()))

    async def _open(self, message: Message) -> UpstreamReply:
        self.opened += 1
        name = f"real-{self.opened}"
        await self.opens.wait()
        if self.refuses is not None:
            return ScriptedReply(self.refuses)
        self.alive.add(name)
        reply = answered(message, self.result)
        if self.issues_ids:
            reply.headers = [JSON, ("Mcp-Session-Id", name)]
        return reply

    def methods(self) -> list[str]:
        """What was said that needed no answer, but for the beginning of sessions."""
        found = [message.get("method", "response") for message in self.said]
        return [method for method in found if method != "notifications/initialized"]

    async def close(self) -> None:
        """See Upstream."""


class Sharing(Relaying):
    """An adapter process with ``sessions.upstream: principal``, or else ``missing_id: principal``."""

    shared: SharedSessions


def sharing(
    upstream: LiveUpstream,
    store: Store | None = None,
    *,
    shares: bool = True,
    idle_ttl: float | None = None,
    connections: int = 2,
    answer: int = 1 << 20,
    clock: Clock | None = None,
) -> Sharing:
    process = Sharing(upstream, store=store or MemoryStore(), clock=clock or Clock(), serves_missing=True)
    limits = UpstreamConnections(max_answer_bytes=answer, max_connections=connections)
    process.shared = SharedSessions(
        process.server, process.store, limits, idle_ttl=idle_ttl, clock=process.clock
    )
    process.server.upstream = process.shared
    process.server.shares = shares
    process.cleanup.tasks = (CleanupTask("shared sessions", process.shared.tidy),)
    return process


@dataclass
class Client:
    """One client's session with an adapter process."""

    process: Sharing
    session: str | None
    principal: str = "anonymous"

    async def post(self, message: object, **more: object) -> Any:
        """The answer to a message; None where there is none."""
        body = await whole(await self.handle(message, **more))
        return orjson.loads(body) if body else None

    async def handle(self, message: object, **more: object) -> RelayAnswer:
        ask = self.process.ask(
            orjson.dumps(message), self.session, era=Era.LEGACY, principal=self.principal, **more
        )
        return await self.process.relay.handle(ask)

    async def call(self, number: object, argument: object, **params: object) -> Any:
        """The result of a call, or its error."""
        answer = await self.post(request(number, argument, **params))
        assert answer["id"] == number
        return answer.get("result", answer.get("error"))

    async def say(self, method: str, **params: object) -> None:
        assert await self.post({"jsonrpc": "2.0", "method": method, "params": params}) is None

    async def answer(self, number: object, **result: object) -> None:
        assert await self.post({"jsonrpc": "2.0", "id": number, **result}) is None

    async def delete(self) -> None:
        ask = self.process.ask(b"", self.session, method="DELETE", era=Era.LEGACY, principal=self.principal)
        assert (await self.process.relay.handle(ask)).status == 200

    @asynccontextmanager
    async def listening(
        self, last_event_id: str | None = None
    ) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        """Its GET stream: what is called gives the next message, None at the end."""
        headers = [] if last_event_id is None else [("Last-Event-ID", last_event_id)]
        ask = self.process.ask(
            b"",
            self.session,
            method="GET",
            era=Era.LEGACY,
            principal=self.principal,
            headers=headers,
            last_event_id=last_event_id,
        )
        answer = await self.process.relay.handle(ask)
        assert answer.status == 200
        try:
            yield events(answer)
        finally:
            await answer.close()


def events(answer: RelayAnswer) -> Callable[[], Awaitable[Any]]:
    """What reads a stream message by message; ``(id, message)`` where the event has an id."""
    stream, rest = pieces(answer), bytearray()

    async def following() -> Any:
        while b"\n\n" not in rest:
            async with asyncio.timeout(20):
                chunk = await anext(stream, b"")
            if not chunk:
                return None
            rest.extend(chunk)
        block, _, behind = bytes(rest).partition(b"\n\n")
        rest[:] = behind
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
        message = orjson.loads(fields[b"data"])
        return (fields[b"id"].decode(), message) if b"id" in fields else message

    return following


def request(number: object, argument: object, **params: object) -> Message:
    arguments = {"name": "echo", "arguments": argument} | params
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": arguments}


async def client(process: Sharing, principal: str = "anonymous", number: int = 0) -> Client:
    """A client that has just opened its session."""
    body = orjson.dumps(orjson.loads(INITIALIZE) | {"id": number})
    ask = process.ask(body, None, era=Era.LEGACY, principal=principal)
    answer = await process.relay.handle(ask)
    opened = orjson.loads(await whole(answer))
    assert opened["id"] == number and opened["result"]["serverInfo"] == RESULT["serverInfo"]
    found = Client(process, dict(answer.headers)["Mcp-Session-Id"], principal)
    await found.say("notifications/initialized")
    return found


def nobody(process: Sharing, principal: str = "anonymous") -> Client:
    """A client that drops its session's id."""
    return Client(process, None, principal)
