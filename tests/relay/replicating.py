"""Several adapter processes over one store and one upstream, in the process of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.relay.exchange import ClientResponse
from adapter.relay.sessions.session_map import SessionLimits
from adapter.upstream.port import header
from adapter.wire.eras import Era
from tests.relay.relaying import INITIALIZE, Clock, Relaying, pieces, whole
from tests.relay.sharing import LiveUpstream, Stream
from tests.state.shared import ReplicaStore, SharedMemory

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"save","arguments":{"n":1}}}'
RESULT = {"jsonrpc": "2.0", "id": 1, "result": {"n": 1}}


class Replica(Relaying):
    """One adapter process of several."""

    @property
    def view(self) -> ReplicaStore:
        """The store as this replica sees it."""
        assert isinstance(self.store, ReplicaStore)
        return self.store

    async def initialize(self) -> str:
        """Open a session as a client does; its id."""
        answer = await self.relay.handle(self.ask(INITIALIZE, None, era=Era.LEGACY))
        await whole(answer)
        session = header(answer.headers, "mcp-session-id")
        assert session is not None
        await self.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', session)
        return session

    async def call(self, session: str) -> Any:
        return orjson.loads(await self.post(CALL, session))

    async def end(self, session: str) -> None:
        await whole(await self.relay.handle(self.ask(b"", session, method="DELETE")))

    async def listen(self, session: str, last_event_id: str | None = None) -> Listening:
        ask = self.ask(b"", session, method="GET", headers=[], last_event_id=last_event_id)
        answer = await self.relay.handle(ask)
        assert isinstance(self.upstream, LiveUpstream)
        return Listening(answer, self.upstream.streams[-1])


class Listening:
    """An open GET stream, and its end at the upstream."""

    def __init__(self, answer: ClientResponse, stream: Stream) -> None:
        self.answer = answer
        self.stream = stream
        self.pieces: AsyncGenerator[bytes, None] = pieces(answer)

    async def ended(self) -> bool:
        """Wait until the adapter ends the stream."""
        async with asyncio.timeout(20):
            await self.stream.aborted.wait()
        await self.answer.close()
        return True


@dataclass
class Replicas:
    """Processes over one shared store."""

    limits: SessionLimits = field(default_factory=SessionLimits)
    memory: SharedMemory = field(default_factory=SharedMemory)
    clock: Clock = field(default_factory=Clock)
    upstream: LiveUpstream = field(default_factory=LiveUpstream)

    def start(self, **more: Any) -> Replica:
        """Start one more."""
        fields: dict[str, Any] = {"store": self.memory.replica(), "clock": self.clock, "limits": self.limits}
        return Replica(self.upstream, **fields | more)

    def three(self) -> tuple[Replica, Replica, Replica]:
        """Start three."""
        return self.start(), self.start(), self.start()
