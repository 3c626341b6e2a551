"""Requests on their way upstream under the upstream's own session id, and that session's renewal.

An upstream that restarted answers 404 to a session it no longer knows. Only that status makes the adapter replay
the client's initialize; no text of a result ever does. A 404 that brings a call's own result is that call's answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import replace

import orjson
from structlog.typing import FilteringBoundLogger

from adapter.errors import (
    AdapterError,
    BadRequest,
    SessionMissing,
    SessionUnknown,
    UpstreamBroken,
    UpstreamUnanswered,
)
from adapter.relay.exchange import POST_FIELDS, ClientRequest, forwardable, requests_of
from adapter.relay.replies import discard, read_answer, with_result
from adapter.relay.server import Server
from adapter.relay.sessions.late_sessions import LateSessions, close_session
from adapter.relay.sessions.session_map import Session, Sessions
from adapter.rules.access.sessions import Event, SessionRecord, SessionState, advance
from adapter.upstream.port import Purpose, Share, UpstreamReply, UpstreamRequest, always, header
from adapter.wire.envelope import Envelope, read_envelope
from adapter.wire.spans import find

INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
ACCEPT = "application/json, text/event-stream"
LISTEN = "subscriptions/listen"
"""The modern era's request for a stream that stays open (MCP 2026-07-28)."""

ABANDON_SILENCE = 2.0
"""Seconds an upstream may be silent about a session that is given up: somebody waits for the failure behind it."""

LONGEST_RETRY = 10.0
"""Seconds an upstream's ``retry:`` is followed when the adapter itself resumes a stream."""


WAKINGS = 3
"""Tries to open an upstream session for one that rests, while somebody else changes what is written of it."""


class UpstreamSessions:
    """Sends for sessions. ``renewals`` is how often one request may renew its upstream session; ``late`` sees to
    sessions that the upstream opens too late.

    ``clock`` gives Unix time in seconds.
    """

    def __init__(
        self,
        sessions: Sessions,
        late: LateSessions,
        *,
        renewals: int,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        self._sessions = sessions
        self._late = late
        self._log = log
        self._renewals = renewals
        self._clock = clock

    async def send(
        self, ask: ClientRequest, session: Session | None, body: bytes, read_timeout: float | None
    ) -> UpstreamReply:
        """Send ``body`` with the ask's headers, under the session's mapping, renewing that on a 404; but not where that
        404 brings the result of a call, which has run then.

        Raises what Upstream.send raises, and SessionUnknown when the upstream will not open a session again.
        """
        if session is not None and session.asleep:
            await self._wake(ask, session)
        attempts = self._renewals if session is not None else 0
        while True:
            generation = session.generation if session else 0
            reply = await ask.server.upstream.send(self._request(ask, session, body), read_timeout)
            if reply.status != 404 or session is None or session.upstream_session is None or attempts == 0:
                return reply
            if (ran := await _ran(ask, reply)) is not None:
                return ran
            reply.abort()
            attempts -= 1
            await self.renew(ask, session, generation)
            if ask.renewed is not None:
                await ask.renewed(ask)

    async def open(self, ask: ClientRequest, body: bytes) -> UpstreamReply:
        """Send a client's ``initialize``. Raises what Upstream.send raises."""
        share = Share(ask.principal) if ask.server.shares else None
        request = UpstreamRequest("POST", ask.headers, body, ask.caller, ask.query, share=share)
        return await self._late.initialize(ask.server, request, ask.server.timeouts.request)

    def _request(self, ask: ClientRequest, session: Session | None, body: bytes) -> UpstreamRequest:
        headers = ask.headers
        if session is not None and session.upstream_session is not None:
            headers = [*headers, ("Mcp-Session-Id", session.upstream_session)]
        envelope = ask.envelope
        streams = ask.method == "GET" or (isinstance(envelope, Envelope) and envelope.method == LISTEN)
        purpose = Purpose.STREAM if streams else Purpose.CALL
        return UpstreamRequest(ask.method, headers, body, ask.caller, ask.query, ask.repeatable, purpose)

    # --- renewal ----------------------------------------------------------------------------------------------

    async def renew(self, ask: ClientRequest, session: Session, seen: int | None = None) -> None:
        """Open a new upstream session in place of the one of generation ``seen``; once for many callers.

        The replay is finished also when the caller that began it goes away, for the others wait for it.
        """
        if session.renewal is None:
            if not session.asleep and session.generation != seen:
                return
            session.renewal = asyncio.ensure_future(self._renew_once(ask, session, seen))
        # All who wait share one outcome: a second try after a failure would make each wait for all before it.
        await asyncio.shield(session.renewal)

    async def _wake(self, ask: ClientRequest, session: Session) -> None:
        """Open an upstream session for one that rests. Raises SessionMissing where others change it again and again."""
        for _ in range(WAKINGS):
            await self.renew(ask, session)
            if not session.asleep:
                break
        else:
            raise SessionMissing()
        if ask.renewed is not None:
            await ask.renewed(ask)

    async def _renew_once(self, ask: ClientRequest, session: Session, seen: int | None) -> None:
        try:
            row, record = await self._sessions.record(session)
            if seen is not None and record.generation != seen:
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
                    await self.abandon(ask, renewed.upstream_session, renewed.protocol_version)
            ask.server.began_anew()
            if not remapped:
                return
            ask.server.counters.reinitialized += 1
            self._log.info(
                "upstream session renewed",
                server=ask.server.id,
                changed=renewed.said != record.said,
                generation=renewed.generation,
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
            request = UpstreamRequest("POST", common, record.initialize, query=ask.query, share=share)
            reply = await self._late.initialize(ask.server, request, read_timeout)
        except UpstreamUnanswered:
            # What may have run is only this, not the call that needs the session.
            raise UpstreamBroken(
                "The upstream server cannot open a session now; the call was not sent."
            ) from None
        if reply.status >= 500:
            reply.abort()
            raise UpstreamBroken(
                f"The upstream server cannot open a session now (HTTP status {reply.status})."
            )
        upstream_session = header(reply.headers, "mcp-session-id")
        try:
            renewed = await self._complete(ask, record, reply, upstream_session, common)
        except BaseException:
            await self.abandon(ask, upstream_session, record.protocol_version)
            raise
        ask.server.issues_ids = upstream_session is not None
        # Each request of a client names the version that it negotiated itself.
        return renewed if session.kept else replace(renewed, protocol_version=record.protocol_version)

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
        asked = read_envelope(record.initialize)
        assert isinstance(asked, Envelope)
        resume = Resumption(ask.server, common, upstream_session, record.protocol_version, ask.query).after
        answer = await read_answer(reply, asked.id, read_timeout, resume, ask.server.answer_limit)
        result = initialize_result(answer.response)
        if result is None:
            raise SessionUnknown(
                "The upstream server refused to open this session again: send initialize again."
            )
        event = Event.REVIVED if record.state is SessionState.IDLE else Event.REINITIALIZED
        renewed = replace(
            record,
            state=advance(record.state, event),
            upstream_session=upstream_session,
            protocol_version=negotiated_version(result),
            said=digest(result),
            generation=record.generation + 1,
            last_seen=self._clock(),
        )
        headers = [*common, ("MCP-Protocol-Version", renewed.protocol_version)]
        if upstream_session is not None:
            headers.append(("Mcp-Session-Id", upstream_session))
        body = record.initialized or INITIALIZED
        reply = await ask.server.upstream.send(
            UpstreamRequest("POST", headers, body, query=ask.query, repeatable=always), read_timeout
        )
        await discard(reply, read_timeout)
        return renewed

    # --- the end ----------------------------------------------------------------------------------------------

    async def abandon(self, ask: ClientRequest, upstream_session: str | None, version: str) -> None:
        """Close an upstream session that came to stand behind no client's, if the upstream answers soon."""
        if upstream_session is not None:
            opened = UpstreamRequest("POST", ask.headers, query=ask.query)
            with contextlib.suppress(AdapterError):
                await close_session(ask.server, opened, upstream_session, version, ABANDON_SILENCE)

    async def close(
        self,
        server: Server,
        session: Session | SessionRecord,
        headers: list[tuple[str, str]] | None = None,
        query: str = "",
        read_timeout: float | None = None,
    ) -> UpstreamReply | None:
        """End the upstream's session. The upstream's answer, or None: there was nothing to close.

        ``headers`` and ``query`` are a client's, where it is one that ends the session. ``read_timeout`` (seconds) is
        of any request unless said. Raises what Upstream.send raises.
        """
        if session.upstream_session is None:
            return None
        fields = list(headers) if headers is not None else [*server.static]
        if header(fields, "mcp-protocol-version") is None:
            fields.append(("MCP-Protocol-Version", session.protocol_version))
        fields.append(("Mcp-Session-Id", session.upstream_session))
        request = UpstreamRequest("DELETE", fields, query=query, repeatable=always)
        return await server.upstream.send(request, read_timeout or server.timeouts.request)


class Resumption:
    """GET with ``Last-Event-ID`` by the adapter itself (MCP 2025-11-25, "Resumability and Redelivery")."""

    def __init__(
        self,
        server: Server,
        headers: list[tuple[str, str]],
        upstream_session: str | None,
        version: str | None,
        query: str = "",
    ) -> None:
        self._server = server
        self._query = query
        self._headers = [*forwardable(headers, drop=POST_FIELDS), ("Accept", "text/event-stream")]
        if version:
            self._headers.append(("MCP-Protocol-Version", version))
        if upstream_session is not None:
            self._headers.append(("Mcp-Session-Id", upstream_session))

    async def after(self, last_event_id: bytes, retry: int | None) -> UpstreamReply | None:
        """The stream after ``last_event_id``, asked for when ``retry`` milliseconds have passed; None if refused."""
        if retry:
            await asyncio.sleep(min(retry / 1000, LONGEST_RETRY))
        headers = [*self._headers, ("Last-Event-ID", last_event_id.decode("latin-1"))]
        try:
            reply = await self._server.upstream.send(
                UpstreamRequest("GET", headers, query=self._query, repeatable=always),
                self._server.timeouts.request,
            )
        except AdapterError:
            return None
        kind = (header(reply.headers, "content-type") or "").lower()
        if reply.status == 200 and kind.startswith("text/event-stream"):
            return reply
        reply.abort()
        return None


async def _ran(ask: ClientRequest, reply: UpstreamReply) -> UpstreamReply | None:
    """The 404 as it came, where it brings the result of a request that must not run twice; None for any other."""
    if ask.repeatable() or not (requests := requests_of(ask.envelope)):
        return None
    return await with_result(reply, {request.id for request in requests}, ABANDON_SILENCE)


def _resendable(server: Server, record: SessionRecord) -> SessionRecord:
    """The record with what may be sent again: it may be of a time when this server had no guard.

    Raises SessionUnknown where that is not ``initialize``.
    """
    try:
        server.require_clear(read_envelope(record.initialize))
    except BadRequest as error:
        raise SessionUnknown(
            f"This session's initialize cannot be repeated: {error} Send a new one."
        ) from None
    if record.initialized is None:
        return record
    try:
        server.require_clear(read_envelope(record.initialized))
    except BadRequest:
        return replace(record, initialized=None)
    return record


def initialize_result(response: bytes | None) -> bytes | None:
    """The bytes of a successful initialize result, or None."""
    if response is None:
        return None
    span = find(response, ("result",))
    return response[span[0] : span[1]] if span else None


def negotiated_version(result: bytes) -> str:
    """The protocol version that an initialize result names; 2025-03-26 where it names none, as the spec says."""
    try:
        read = orjson.loads(result)
    except orjson.JSONDecodeError as error:
        # Only the envelope has been read so far; what is between its braces may be anything.
        raise UpstreamBroken("The upstream server's answer to initialize is not valid JSON.") from error
    version = read.get("protocolVersion") if isinstance(read, dict) else None
    return version if isinstance(version, str) else "2025-03-26"


def digest(result: bytes) -> str:
    """The hex SHA-256 of what the upstream said of itself, to be compared when it says it again."""
    return hashlib.sha256(result).hexdigest()
