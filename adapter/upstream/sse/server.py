"""An SSE server behind a LocalUpstream: its sessions, each with a stream of its own."""

from __future__ import annotations

import asyncio

from structlog.typing import FilteringBoundLogger

from adapter.errors import BadRequest, SessionUnknown
from adapter.upstream.local.correlation import BOUNDS
from adapter.upstream.local.messages import LocalAnswer
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.sse.session import SseSession
from adapter.upstream.sse.stream import SseAddress
from adapter.wire.envelope import Envelope, failure
from adapter.wire.eras import Era

# A dual-era client takes 400 without an error code of the modern era for a legacy server, and initializes. With the
# code of an unsupported version it would go on in the modern era (MCP 2026-07-28, "Versioning").
_LEGACY_ONLY = (
    "This upstream server speaks the HTTP+SSE transport, which has legacy versions only: send initialize."
)


class SseServer:
    """A LocalServer whose sessions are streams of the server at ``address``.

    ``most`` is the limit of the streams of ``address``, so one more session is refused before any other has to go.
    """

    reads_params = False

    def __init__(self, address: SseAddress, log: FilteringBoundLogger, most: int) -> None:
        self.sessions = LocalSessions(2 * most, self._ended, BOUNDS)
        self._address = address
        self._log = log
        self._streams: dict[LocalSession, SseSession] = {}

    def __repr__(self) -> str:
        return f"<SseServer: {len(self._streams)} sessions>"

    def answer(self, request: LocalRequest) -> LocalAnswer | PendingReply:
        """See LocalServer."""
        if request.head.era is Era.MODERN:
            return LocalAnswer(failure(BadRequest(_LEGACY_ONLY), request.id_bytes), BadRequest.http)
        if request.session is not None:
            return self._of(request.session).call(request)
        local = self.sessions.open("")
        session = self._streams[local] = SseSession(self._address, self._log, local)
        return session.open(request)

    async def observe(self, envelope: Envelope, session: LocalSession, head: LocalHead) -> None:
        """See LocalServer. Raises UpstreamBroken where the server refuses the message."""
        await self._of(session).tell(envelope, head)

    async def close(self) -> None:
        """End every session, and drop all connections."""
        streams = list(self._streams.values())
        for session in streams:
            session.end()
        await asyncio.gather(*(session.closed() for session in streams))
        await self._address.http.close()

    def _of(self, local: LocalSession) -> SseSession:
        """The stream of a session. Raises SessionUnknown for one that ended while its batch was answered."""
        session = self._streams.get(local)
        if session is None:
            raise SessionUnknown()
        return session

    def _ended(self, local: LocalSession) -> None:
        session = self._streams.pop(local, None)
        if session is not None:
            session.end()
