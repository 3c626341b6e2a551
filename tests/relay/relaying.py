"""The relay on its own: asks go in, answers come out, and the upstream is whatever a test brings."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter import log
from adapter.relay.background import BackgroundTasks
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.call.dispatch import Relay
from adapter.relay.call.get_streams import GetStreams
from adapter.relay.call.passthrough import PassThrough
from adapter.relay.call.staged import StagedExchange
from adapter.relay.cleanup import Cleanup, CleanupTask
from adapter.relay.exchange import ClientRequest, ClientResponse, Sender
from adapter.relay.notifications import Notifications
from adapter.relay.server import Server, Timeouts
from adapter.relay.sessions.idle_sessions import IdleSessions, LastSeen
from adapter.relay.sessions.principal_sessions import PrincipalSessions
from adapter.relay.sessions.renewal import Renewal
from adapter.relay.sessions.session_map import Session, SessionLimits, Sessions
from adapter.relay.sessions.upstream_sessions import UpstreamSessions
from adapter.relay.stages import Stage, StageEntry, StageTable
from adapter.rules.access.principals import Scope, principal_scope, session_scope
from adapter.rules.access.sessions import (
    Handshake,
    SessionRecord,
    SessionState,
    SessionTimes,
    UpstreamSession,
)
from adapter.state.port import Store
from adapter.state.sqlite import MemoryStore
from adapter.upstream.port import Upstream
from adapter.wire.envelope import read_envelope
from adapter.wire.eras import Era

PARKED_TTL = 100.0
INITIALIZE = orjson.dumps(
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
)


@dataclass
class Clock:
    """Unix time that passes when told."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def scope_of(session: Session | None, principal: str) -> Scope:
    """Whose files a request may touch, as in a deployment whose secret is no secret."""
    if session is None or session.unnamed:
        return principal_scope(b"", principal)
    return session_scope(b"", session.key)


def of_tools(**stages: Stage) -> StageTable:
    """The stages of tools by their names."""
    return StageTable([StageEntry("tools/call", "uploads", stage, tool) for tool, stage in stages.items()])


@dataclass
class Relaying:
    """One adapter process in front of one upstream; two of them on one store are two processes."""

    upstream: Upstream
    stages: StageTable = field(default_factory=StageTable)
    store: Store = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    limits: SessionLimits = field(default_factory=SessionLimits)
    serves_missing: bool = False

    def __post_init__(self) -> None:
        logger = log.get_logger("test")
        self.server = Server("one", "/mcp", self.upstream, timeouts=Timeouts(0.2, 0.2), stages=self.stages)
        self.sessions = Sessions(self.store, self.limits, self.clock)
        self.background = BackgroundTasks()
        self.principal_sessions = PrincipalSessions(self.sessions, serves=self.serves_missing)
        renewal = Renewal(self.sessions, self.background, logger, 5.0)
        self.upstream_sessions = UpstreamSessions(self.sessions, self.principal_sessions, renewal, 1)
        self.deferred = DeferredAnswers(
            self.store, {"one": self.stages}, self.background, ttl=PARKED_TTL, clock=self.clock
        )
        self.sessions.cache.on_renewed = lambda _: self.server.began_anew()
        call_gate = CallGate(self.upstream_sessions, scope_of)
        self.relay = Relay(
            self.sessions,
            self.upstream_sessions,
            call_gate,
            PassThrough(self.upstream_sessions, self.deferred),
            StagedExchange(call_gate, self.deferred),
            GetStreams(call_gate, self.deferred, Notifications()),
        )
        servers = {"one": self.server}
        self.last_seen = LastSeen(self.sessions)
        self.idle = IdleSessions(self.sessions, self.last_seen, servers, 60.0, logger)
        tasks = [
            CleanupTask("sessions", self.idle.tend),
            CleanupTask("deferred answers", self.deferred.expire),
            CleanupTask("held answers", self.deferred.forget_expired, alone=False),
        ]
        if self.sessions.slots is not None:
            tasks.append(CleanupTask("session slots", self.sessions.slots.tidy))
        self.cleanup = Cleanup(60.0, tuple(tasks), logger)

    async def open(self, version: str = "2025-11-25", state: SessionState = SessionState.OPEN) -> str:
        """A session that a client opened earlier, whose upstream session is ``up-1``. Its id."""
        record = SessionRecord(
            server="one",
            principal="anonymous",
            handshake=Handshake(INITIALIZE),
            upstream=UpstreamSession("up-1", version),
            state=state,
            times=SessionTimes(self.clock(), self.clock()),
            reason="the tools changed" if state is SessionState.REVOKED else None,
        )
        return await self.sessions.create(record)

    def ask(self, body: bytes, session: str | None, **more: Any) -> ClientRequest:
        """A POST of ``body`` in that session; ``more`` are other fields of the Ask."""
        envelope = read_envelope(body) if body else None
        era = Era.LEGACY if session is not None else Era.MODERN
        sender = Sender(era, "anonymous", session)
        sender = sender._replace(**{name: value for name, value in more.items() if name in Sender._fields})
        ask = ClientRequest(self.server, "POST", sender, [])
        ask.envelope, ask.body = envelope, body
        for name, value in more.items():
            if name not in Sender._fields:
                setattr(ask, name, value)
        return ask

    async def post(self, body: bytes, session: str | None, **more: object) -> bytes:
        """The whole answer to a POST; ``more`` are other fields of the Ask."""
        return await whole(await self.relay.handle(self.ask(body, session, **more)))

    async def post_first(self, body: bytes) -> bytes:
        """The whole answer to a legacy POST outside any session."""
        return await whole(await self.relay.handle(self.ask(body, None, era=Era.LEGACY)))

    async def get(self, session: str, last_event_id: str) -> bytes:
        """Everything a GET stream brings until its end."""
        headers = [("Accept-Encoding", "gzip"), ("Last-Event-ID", last_event_id)]
        ask = self.ask(b"", session, method="GET", headers=headers, last_event_id=last_event_id)
        return await whole(await self.relay.handle(ask))


async def whole(answer: ClientResponse) -> bytes:
    """The body to its end, and the answer closed as the edge does it."""
    try:
        if isinstance(answer.body, bytes):
            return answer.body
        return b"".join([piece async for piece in answer.body])
    finally:
        await answer.close()


def pieces(answer: ClientResponse) -> AsyncGenerator[bytes, None]:
    """The body piece by piece; whoever takes it closes the answer."""
    assert not isinstance(answer.body, bytes)
    return answer.body
