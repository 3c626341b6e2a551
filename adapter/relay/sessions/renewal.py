"""Renewal of sessions that an upstream lost: it answers 404, and is sent the client's ``initialize`` again.

Only the status 404 starts a renewal, never the text of a result. A 404 that brings the result of a call is the answer
of that call.

Of several replicas that renew a session one wins, by the version of its row. The others take its mapping over and end
the upstream sessions that they have opened themselves. No lease keeps them from trying: it would cost every renewal two
round trips, and a holder that dies would delay the others, to save an ``initialize`` now and then.
An ``initialize``, sent for the first time or again, may be answered after its client has stopped waiting:
such a late session is closed, because nobody will use it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.errors import (
    AdapterError,
    BadRequest,
    SessionMissing,
    SessionUnknown,
    UpstreamBroken,
    UpstreamUnanswered,
)
from adapter.relay.background import BackgroundTasks, settle
from adapter.relay.exchange import LATEST_LEGACY, POST_FIELDS, ClientRequest, forwardable, requests_of
from adapter.relay.replies import with_result
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import (
    ABANDON_SILENCE,
    ACCEPT,
    CLOSE_SILENCE,
    INITIALIZED,
    NO_LEGACY,
    InnerClient,
)
from adapter.relay.sessions.session_map import Session, Sessions
from adapter.rules.access.sessions import (
    Event,
    Handshake,
    SessionRecord,
    SessionState,
    UpstreamSession,
    advance,
)
from adapter.state.port import Row
from adapter.upstream.port import InitializeRequest, Share, UpstreamReply, UpstreamRequest, header, silent
from adapter.wire.envelope import Envelope, read_envelope
from adapter.wire.eras import Era

LATEST = 120.0
"""Seconds that a late answer to ``initialize`` is waited for."""

MOST = 16
"""Late answers of one server that are waited for. Connections of further ones are dropped."""

ATTEMPTS = 3
"""Attempts to renew an idle session while other processes change its record."""


@dataclass(eq=False, repr=False)
class Renewal:
    """Sends ``initialize``, closes sessions that open too late, and replaces the upstream sessions that stand behind
    clients' sessions. ``latest`` in seconds.
    """

    sessions: Sessions
    background: BackgroundTasks
    log: FilteringBoundLogger
    latest: float = LATEST
    # The late answers that are waited for, by server.
    _waiting: dict[str, int] = field(default_factory=dict, init=False)

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
                await ask.renewed(ask, session)
        return result

    async def wake(self, ask: ClientRequest, session: Session) -> None:
        """Open an upstream session for an idle one. Raises SessionMissing where others change it again and again."""
        for _ in range(ATTEMPTS):
            await self.renew(ask, session)
            if not session.asleep:
                break
        else:
            raise SessionMissing()
        if ask.renewed is not None:
            await ask.renewed(ask, session)

    async def renew(self, ask: ClientRequest, session: Session, seen: int | None = None) -> None:
        """Open a new upstream session in place of the one of generation ``seen``; once for many callers.

        The renewal goes on when the caller that began it is cancelled, because others may wait for it.
        """
        if session.renewal is None:
            if not session.asleep and session.generation != seen:
                return
            session.renewal = asyncio.ensure_future(self._renew_once(ask, session, seen))
        # All callers share one outcome: with an attempt of its own each would wait for all before it.
        await asyncio.shield(session.renewal)

    async def _renew_once(self, ask: ClientRequest, session: Session, seen: int | None) -> None:
        try:
            row, record = await self.sessions.record(session)
            if record.state is SessionState.OPEN and record.upstream.generation != seen:
                # Another process was first: its mapping is in the store.
                session.follow(record, row.version)
                ask.server.began_anew()
                return
            async with self.sessions.slot_for(session.key, record):
                await self._open_anew(ask, session, row, record)
        finally:
            session.renewal = None

    async def _open_anew(self, ask: ClientRequest, session: Session, row: Row, record: SessionRecord) -> None:
        """Open another upstream session, and keep it unless another process was first with one of its own."""
        renewed = await self._replay(ask, session, record)
        remapped = False
        try:
            remapped = await self.sessions.remap(session, row, renewed)
        finally:
            if not remapped:
                await InnerClient.of(ask, renewed.upstream).abandon()
        ask.server.began_anew()
        if not remapped:
            return
        if self.sessions.on_event is not None:
            revived = record.state is SessionState.IDLE
            self.sessions.on_event(ask.server.id, "revived" if revived else "renewed")
        self.log.info(
            "upstream session renewed",
            server=ask.server.id,
            changed=renewed.upstream.digest != record.upstream.digest,
            generation=renewed.upstream.generation,
        )

    async def _replay(self, ask: ClientRequest, session: Session, record: SessionRecord) -> SessionRecord:
        """Send the client's handshake again. Raises SessionUnknown if it is refused, UpstreamBroken if it fails."""
        record = _resendable(ask.server, record)
        credentials = forwardable(ask.headers, drop=POST_FIELDS)
        common = [*credentials, ("Accept", ACCEPT), ("Content-Type", "application/json")]
        try:
            share = (
                Share(record.principal, many=session.unnamed)
                if session.unnamed or ask.server.shares
                else None
            )
            initialize = record.handshake.initialize
            request = InitializeRequest("POST", common, initialize, ask.sender.caller, ask.query, share=share)
            reply = await self.initialize(ask, request, looks=not ask.server.eras)
        except UpstreamUnanswered:
            # Only the initialize may have run, not the call that needs the session.
            raise UpstreamBroken(
                "The upstream server cannot open a session now; the call was not sent."
            ) from None
        if reply.status >= 500:
            reply.abort()
            raise UpstreamBroken(
                f"The upstream server cannot open a session now (HTTP status {reply.status})."
            )
        opening = read_envelope(record.handshake.initialize)
        assert isinstance(opening, Envelope)
        client, _ = await InnerClient.of(ask, record.upstream).begun(
            reply, opening.id, record.handshake.initialized or INITIALIZED, record.upstream.generation + 1
        )
        if client is None:
            raise SessionUnknown(
                "The upstream server refused to open this session again: send initialize again."
            )
        upstream = client.session
        ask.server.issues_ids = upstream.id is not None
        if not session.unnamed:
            # Each request of a client names the version that it negotiated itself.
            upstream = upstream._replace(protocol_version=record.upstream.protocol_version)
        event = Event.REVIVED if record.state is SessionState.IDLE else Event.REINITIALIZED
        return replace(
            record.seen(self.sessions.clock()), state=advance(record.state, event), upstream=upstream
        )

    # --- initialize -------------------------------------------------------------------------------------------

    async def initialize(
        self, ask: ClientRequest, request: UpstreamRequest, *, looks: bool = True
    ) -> UpstreamReply:
        """The answer to an ``initialize`` for the client of ``ask``, by its head. ``looks``: where it is refused it is
        sent once more if another era is spoken for the server now. Raises what Upstream.send raises, and
        UpstreamSilent.

        A session that opens after the server's time, or after the caller was cancelled, is closed.
        """
        loop, server, known = asyncio.get_running_loop(), ask.server, ask.server.eras
        read_timeout = server.timeouts.request
        sending = loop.create_task(server.upstream.send(request, read_timeout + self.latest))
        # What asyncio.wait does, in a third of its steps: every session is opened here.
        over: asyncio.Future[None] = loop.create_future()
        sending.add_done_callback(partial(settle, over))
        alarm = loop.call_later(read_timeout, settle, over)
        try:
            await over
        except asyncio.CancelledError:
            self._leave(server, request, sending)
            raise
        finally:
            alarm.cancel()
        if not sending.done():
            self._leave(server, request, sending)
            raise silent(read_timeout)
        reply = sending.result()
        if looks and reply.status in NO_LEGACY and await bridged(ask, known, reply):
            return await self.initialize(ask, request, looks=False)
        return reply

    def _leave(
        self, server: Server, request: UpstreamRequest, sending: asyncio.Future[UpstreamReply]
    ) -> None:
        """Wait for the answer in the background, unless too many are waited for already."""
        if self._waiting.get(server.id, 0) >= MOST and not sending.done():
            sending.cancel()
            return
        self._waiting[server.id] = self._waiting.get(server.id, 0) + 1
        self.background.run(self._close(server, request, sending))

    async def _close(
        self, server: Server, request: UpstreamRequest, sending: asyncio.Future[UpstreamReply]
    ) -> None:
        try:
            async with asyncio.timeout(self.latest):
                reply = await sending
            reply.abort()
            session = header(reply.headers, "mcp-session-id")
            if session is not None:
                late = UpstreamSession(session, LATEST_LEGACY)
                await InnerClient(server.upstream, request, late, self.latest).close(CLOSE_SILENCE)
                self.log.info("a session that came too late was closed", server=server.id)
        except (AdapterError, TimeoutError):
            # It never came, or cannot be closed: asking again would not help.
            return
        finally:
            self._waiting[server.id] -= 1


async def _result_of(ask: ClientRequest, reply: UpstreamReply) -> UpstreamReply | None:
    """The 404 itself, where it brings the result of a request that must not run twice; None for any other."""
    if ask.repeatable() or not (requests := requests_of(ask.envelope)):
        return None
    return await with_result(reply, {request.id for request in requests}, ABANDON_SILENCE)


def _resendable(server: Server, record: SessionRecord) -> SessionRecord:
    """The record without what a guard does not let pass: the server may have had none when the session was opened.

    Raises SessionUnknown where that is ``initialize`` itself.
    """
    try:
        server.require_clear(read_envelope(record.handshake.initialize))
    except BadRequest as error:
        raise SessionUnknown(
            f"This session's initialize cannot be repeated: {error} Send a new one."
        ) from None
    if record.handshake.initialized is not None:
        try:
            server.require_clear(read_envelope(record.handshake.initialized))
        except BadRequest:
            return replace(record, handshake=Handshake(record.handshake.initialize))
    return record


async def bridged(ask: ClientRequest, known: frozenset[Era], reply: UpstreamReply) -> bool:
    """Tell whether a refused request, sent when these eras of its server were ``known``, may be sent once more, as
    another era is spoken for it now. Then ``reply`` is dropped.
    """
    bridge = ask.server.bridge
    if bridge is None or not await bridge.look(ask, known):
        return False
    reply.abort()
    return True
