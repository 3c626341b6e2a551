"""``initialize``: the upstream's answer leaves as it came; a successful one mints the client's session."""

from __future__ import annotations

from collections.abc import Callable

from adapter.relay.exchange import LATEST_LEGACY, ClientRequest, ClientResponse, asking_plain
from adapter.relay.replies import media_type, read_answer, read_body, require_plain
from adapter.relay.sessions.principal_sessions import KeptSessions
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.sessions.upstream_sessions import (
    Resumption,
    UpstreamSessions,
    digest,
    initialize_result,
    negotiated_version,
)
from adapter.rules.access.headers import of_changed_body
from adapter.rules.access.sessions import SessionRecord, SessionState
from adapter.upstream.port import header
from adapter.wire.envelope import Envelope


class SessionOpener:
    """Opens sessions, those in ``kept`` for clients that name none. ``clock`` gives Unix time in seconds."""

    def __init__(
        self,
        sessions: Sessions,
        upstream_sessions: UpstreamSessions,
        kept: KeptSessions,
        clock: Callable[[], float],
    ) -> None:
        self.kept = kept
        self._sessions = sessions
        self._upstream_sessions = upstream_sessions
        self._clock = clock

    async def open(self, ask: ClientRequest, envelope: Envelope) -> ClientResponse:
        """Raises LimitReached above ``sessions.max_active``, and what the upstream raises."""
        self._sessions.reserve()
        try:
            return await self._initialize(ask, envelope)
        finally:
            self._sessions.unreserve()

    async def _initialize(self, ask: ClientRequest, envelope: Envelope) -> ClientResponse:
        read_timeout, limit = ask.server.timeouts.request, ask.server.answer_limit
        announce = ask.server.plan.announce
        body = ask.body
        if announce is not None:
            # What is to be edited must come, and so be asked for, plain.
            ask.headers = asking_plain(
                ask.headers, drop=frozenset({"content-encoding"} if ask.encoded else ())
            )
            body = envelope.body
        reply = await self._upstream_sessions.open(ask, body)
        headers = ask.server.answer_headers.to_client(reply.headers)
        if reply.status != 200:
            return ClientResponse(reply.status, headers, await read_body(reply, read_timeout, limit))
        upstream_session = header(reply.headers, "mcp-session-id")
        resume = Resumption(ask.server, ask.headers, upstream_session, None, ask.query).after
        version = LATEST_LEGACY
        try:
            if announce is not None and media_type(reply) == "text/event-stream":
                require_plain(reply)
            answer = await read_answer(reply, envelope.id, read_timeout, resume, limit)
            result = initialize_result(answer.response)
            if result is not None:
                record = self._record(ask, envelope, upstream_session, result)
                version = record.protocol_version
                ask.server.issues_ids = upstream_session is not None
                headers.append(("Mcp-Session-Id", await self._sessions.create(record)))
                await self.kept.remember(record)
            else:
                await self._upstream_sessions.abandon(ask, upstream_session, version)
        except BaseException:
            # The client will never learn of the session, and nothing is written that reminds anybody of it.
            await self._upstream_sessions.abandon(ask, upstream_session, version)
            raise
        changed = answer.raw if announce is None else answer.changed(announce)
        if changed is not answer.raw:
            # What is edited leaves without the coding that it may have come in although it was not asked for.
            headers = of_changed_body(headers)
        return ClientResponse(200, headers, changed)

    def _record(
        self, ask: ClientRequest, envelope: Envelope, upstream_session: str | None, result: bytes
    ) -> SessionRecord:
        now = self._clock()
        return SessionRecord(
            server=ask.server.id,
            principal=ask.principal,
            upstream_session=upstream_session,
            protocol_version=negotiated_version(result),
            initialize=envelope.body,
            initialized=None,
            said=digest(result),
            generation=0,
            state=SessionState.OPEN,
            created=now,
            last_seen=now,
            reason=None,
        )
