"""An SSE server behind a LocalUpstream: its sessions, each with a stream of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.errors import BadRequest
from adapter.upstream.local.messages import LocalAnswer
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.sse.session import SseSession
from adapter.upstream.sse.stream import SseAddress, SseTerms
from adapter.wire.envelope import Envelope, failure
from adapter.wire.eras import Era

# A dual-era client takes 400 without an error code of the modern era for a legacy server, and initializes. With the
# code of an unsupported version it would go on in the modern era (MCP 2026-07-28, "Versioning").
_LEGACY_ONLY = (
    "This upstream server speaks the HTTP+SSE transport, which has legacy versions only: send initialize."
)


class SseServer:
    """A LocalServer whose sessions are streams of the server at ``address``, at most ``most`` at once."""

    def __init__(self, address: SseAddress, terms: SseTerms, log: FilteringBoundLogger, most: int) -> None:
        self.sessions = LocalSessions(most, ended=self._left)
        self._address = address
        self._terms = terms
        self._log = log
        self._streams: set[SseSession] = set()
        self._by_id: dict[str, SseSession] = {}

    def __repr__(self) -> str:
        return f"<SseServer: {len(self._by_id)} sessions, {len(self._streams)} streams>"

    def answer(self, request: LocalRequest) -> LocalAnswer | PendingReply:
        """See LocalServer."""
        if request.head.era is Era.MODERN:
            return LocalAnswer(failure(BadRequest(_LEGACY_ONLY), request.id_bytes), BadRequest.http)
        if request.session is not None:
            return self._by_id[request.session.id].call(request)
        session = SseSession(self._address, self._terms, self._log, self)
        self._streams.add(session)
        return session.open(request)

    async def observe(self, envelope: Envelope, session: LocalSession, head: LocalHead) -> None:
        """See LocalServer. Raises UpstreamBroken where the server refuses the message."""
        await self._by_id[session.id].tell(envelope, head)

    async def close(self) -> None:
        """End every session, and drop all connections."""
        streams = list(self._streams)
        for session in streams:
            session.end()
        await asyncio.gather(*(session.closed() for session in streams))
        await self._address.http.close()

    # --- what sessions say ----------------------------------------------------------------------------------------

    def opened(self, stream: SseSession, version: str, capabilities: Mapping[str, Any]) -> LocalSession:
        """See ClientSessions."""
        local = self.sessions.open(version, capabilities)
        self._by_id[local.id] = stream
        return local

    def ended(self, stream: SseSession) -> None:
        """See ClientSessions."""
        self._streams.discard(stream)
        if stream.local is not None:
            stream.local.end()

    def _left(self, local: LocalSession) -> None:
        """The client ended its session."""
        session = self._by_id.pop(local.id, None)
        if session is not None:
            session.end()
