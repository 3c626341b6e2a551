"""Renewal of sessions that an upstream lost: it answers 404, and is sent the client's ``initialize`` again.

Only the status 404 starts a renewal, never the text of a result. A 404 that brings the result of a call is the answer
of that call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from structlog.typing import FilteringBoundLogger

from adapter.errors import BadRequest, SessionMissing, SessionUnknown, UpstreamBroken, UpstreamUnanswered
from adapter.relay.exchange import POST_FIELDS, ClientRequest, forwardable, requests_of
from adapter.relay.replies import discard, read_answer, with_result
from adapter.relay.server import Server
from adapter.relay.sessions.late_sessions import LateSessions, abandon
from adapter.relay.sessions.own_session import (
    ABANDON_SILENCE,
    ACCEPT,
    INITIALIZED,
    Resumption,
    initialize_result,
    opened,
)
from adapter.relay.sessions.session_map import Session, Sessions
from adapter.rules.access.sessions import Event, Handshake, SessionRecord, SessionState, advance
from adapter.upstream.port import InitializeRequest, Share, UpstreamReply, UpstreamRequest, always, header
from adapter.wire.envelope import Envelope, read_envelope

WAKINGS = 3
"""Attempts to renew an idle session while other processes change its record."""


class Renewal:
    """Replaces the upstream sessions that stand behind clients' sessions. ``clock`` gives Unix time in seconds."""

    def __init__(
        self,
        sessions: Sessions,
        late: LateSessions,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._sessions = sessions
        self._late = late
        self._clock = clock
        self._log = log

    async def after_404(
        self, ask: ClientRequest, session: Session, seen: int, reply: UpstreamReply
    ) -> UpstreamReply | None:
        """Renew the session of generation ``seen``, which the upstream lost. None: the request may be sent again.

        A 404 that brings the result of a request that must not run twice is returned instead. Raises SessionUnknown
        where the upstream opens no session for this client, and what Upstream.send raises.
        """
        result = await _result_of(ask, reply)
        if result is None:
            reply.abort()
            await self.renew(ask, session, seen)
            if ask.renewed is not None:
                await ask.renewed(ask)
        return result

    async def wake(self, ask: ClientRequest, session: Session) -> None:
        """Open an upstream session for an idle one. Raises SessionMissing where others change it again and again."""
        for _ in range(WAKINGS):
            await self.renew(ask, session)
            if not session.asleep:
                break
        else:
            raise SessionMissing()
        if ask.renewed is not None:
            await ask.renewed(ask)

    async def renew(self, ask: ClientRequest, session: Session, seen: int | None = None) -> None:
        """Open a new upstream session in place of the one of generation ``seen``; once for many callers.

        The replay is finished also when the caller that began it goes away, for the others wait for it.
        """
        if session.renewal is None:
            if not session.asleep and session.upstream.generation != seen:
                return
            session.renewal = asyncio.ensure_future(self._renew_once(ask, session, seen))
        # All who wait share one outcome: a second try after a failure would make each wait for all before it.
        await asyncio.shield(session.renewal)

    async def _renew_once(self, ask: ClientRequest, session: Session, seen: int | None) -> None:
        try:
            row, record = await self._sessions.record(session)
            if seen is not None and record.upstream.generation != seen:
                # Another replica was first: its mapping is in the store.
                await self._sessions.remap(session, row, record)
                ask.server.began_anew()
                return
            renewed = await self._replay(ask, session, record)
            remapped = False
            try:
                remapped = await self._sessions.remap(session, row, renewed)
            finally:
                if not remapped:
                    await abandon(ask, renewed.upstream)
            ask.server.began_anew()
            if not remapped:
                return
            ask.server.counters.reinitialized += 1
            self._log.info(
                "upstream session renewed",
                server=ask.server.id,
                changed=renewed.upstream.digest != record.upstream.digest,
                generation=renewed.upstream.generation,
            )
        finally:
            session.renewal = None

    async def _replay(self, ask: ClientRequest, session: Session, record: SessionRecord) -> SessionRecord:
        """Initialize upstream as the client once did.

        Raises SessionUnknown if that is refused now, UpstreamBroken if the upstream is in no state to answer.
        """
        record = _resendable(ask.server, record)
        credentials = forwardable(ask.headers, drop=POST_FIELDS)
        common = [*credentials, ("Accept", ACCEPT), ("Content-Type", "application/json")]
        read_timeout = ask.server.timeouts.request
        try:
            share = Share(record.principal, many=session.kept) if session.kept or ask.server.shares else None
            initialize = record.handshake.initialize
            request = InitializeRequest("POST", common, initialize, query=ask.query, share=share)
            reply = await self._late.initialize(ask.server, request, read_timeout)
        except UpstreamUnanswered:
            # What may have run is only this, not the call that needs the session.
            raise UpstreamBroken("The upstream server opens no session now; the call was not sent.") from None
        if reply.status >= 500:
            reply.abort()
            raise UpstreamBroken(f"The upstream server opens no session now (HTTP status {reply.status}).")
        upstream_session = header(reply.headers, "mcp-session-id")
        try:
            renewed = await self._complete(ask, record, reply, upstream_session, common)
        except BaseException:
            await abandon(ask, record.upstream._replace(id=upstream_session))
            raise
        ask.server.issues_ids = upstream_session is not None
        if session.kept:
            return renewed
        # Each request of a client names the version that it negotiated itself.
        version = record.upstream.protocol_version
        return replace(renewed, upstream=renewed.upstream._replace(protocol_version=version))

    async def _complete(
        self,
        ask: ClientRequest,
        record: SessionRecord,
        reply: UpstreamReply,
        upstream_session: str | None,
        common: list[tuple[str, str]],
    ) -> SessionRecord:
        """The rest of a replay, from the head of the answer to ``initialize`` on."""
        read_timeout = ask.server.timeouts.request
        initialize = read_envelope(record.handshake.initialize)
        assert isinstance(initialize, Envelope)
        version = record.upstream.protocol_version
        resume = Resumption(ask.server, common, upstream_session, version, ask.query).after
        answer = await read_answer(reply, initialize.id, read_timeout, resume, ask.server.answer_limit)
        result = initialize_result(answer.response)
        if result is None:
            raise SessionUnknown(
                "The upstream server does not open this session again: send initialize again."
            )
        event = Event.REVIVED if record.state is SessionState.IDLE else Event.REINITIALIZED
        upstream = opened(upstream_session, result, record.upstream.generation + 1)
        headers = [*common, ("MCP-Protocol-Version", upstream.protocol_version)]
        if upstream_session is not None:
            headers.append(("Mcp-Session-Id", upstream_session))
        body = record.handshake.initialized or INITIALIZED
        reply = await ask.server.upstream.send(
            UpstreamRequest("POST", headers, body, query=ask.query, repeatable=always), read_timeout
        )
        await discard(reply, read_timeout)
        state = advance(record.state, event)
        return replace(record.seen(self._clock()), state=state, upstream=upstream)


async def _result_of(ask: ClientRequest, reply: UpstreamReply) -> UpstreamReply | None:
    """The 404 as it came, where it brings the result of a request that must not run twice; None for any other."""
    if ask.repeatable() or not (requests := requests_of(ask.envelope)):
        return None
    return await with_result(reply, {request.id for request in requests}, ABANDON_SILENCE)


def _resendable(server: Server, record: SessionRecord) -> SessionRecord:
    """The record with what may be sent again: it may be of a time when this server had no guard.

    Raises SessionUnknown where that is not ``initialize``.
    """
    try:
        server.require_clear(read_envelope(record.handshake.initialize))
    except BadRequest as error:
        raise SessionUnknown(f"This session's initialize is not sent again: {error} Send another.") from None
    if record.handshake.initialized is None:
        return record
    try:
        server.require_clear(read_envelope(record.handshake.initialized))
    except BadRequest:
        return replace(record, handshake=Handshake(record.handshake.initialize))
    return record
