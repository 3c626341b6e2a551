"""The entrance of the relay, which dispatches each request to a mount.

An exchange no stage concerns is piped: body bytes out, answer bytes back as they arrive. ``initialize`` is read,
because its result mints the session, but leaves as it came. What stages concern is read and edited.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from functools import partial

from adapter.errors import AdapterError, BadRequest
from adapter.relay.background import run_beside
from adapter.relay.call.batches import joined, refusals, refused_whole, without
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.get_streams import GetStreams
from adapter.relay.call.passthrough import PassThrough
from adapter.relay.call.staged import StagedExchange
from adapter.relay.exchange import ClientRequest, ClientResponse, both, forwardable, requests_of
from adapter.relay.replies import read_body
from adapter.relay.server import REFUSED, caller_refusal
from adapter.relay.sessions.session_map import Session, Sessions
from adapter.relay.sessions.upstream_sessions import UpstreamSessions
from adapter.wire.envelope import Batch, Envelope, Kind, parse
from adapter.wire.eras import LEGACY, MODERN

CLOSE_SECONDS = 10.0
"""Seconds that a session's end may take at the upstream, where any request may take that long. The cleanup closes what
could not be closed by then.
"""

_EMPTY = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}
_SHORT = 100
"""Bytes of the notification that some SDKs write, with spaces or without."""

BATCH_VERSION = "2025-03-26"
"""The one protocol version that has JSON-RPC batches."""


@dataclass(slots=True)
class Relay:
    """Built by the composition root; ``handle`` is its one entrance."""

    sessions: Sessions
    upstream_sessions: UpstreamSessions
    call_gate: CallGate
    passthrough: PassThrough
    staged: StagedExchange
    get_streams: GetStreams

    async def handle(self, ask: ClientRequest) -> ClientResponse:
        """Answer one request to a mount. Raises AdapterError for what the edge has to render."""
        if ask.method != "POST":
            return await self._listen_or_end(ask)
        envelope, server, principal = ask.envelope, ask.server, ask.sender.principal
        assert envelope is not None
        if (
            type(envelope) is Envelope
            and envelope.method == "initialize"
            and envelope.kind is Kind.REQUEST
            and ask.sender.era is LEGACY
        ):
            return await self._open(ask, envelope)
        session = await self._session_of(ask)
        if isinstance(envelope, Batch) and (session is None or _version_of(session, ask) != BATCH_VERSION):
            raise BadRequest(f"JSON-RPC batches exist only in MCP {BATCH_VERSION}.")
        server.require_healthy()
        _judge(ask, envelope)
        if not (requests := requests_of(envelope)):
            return await self._notify(ask, session)
        number = len(requests)
        self.sessions.in_flight.enter(session, principal, number)
        try:
            if isinstance(envelope, Batch):
                answer = await self._batch(ask, session, envelope, requests)
            else:
                if gates := server.stages.gates.get(envelope.method):
                    envelope = await self.call_gate.admitted(ask, session, envelope, gates)
                if stages := server.stages.stages_for(envelope):
                    answer = await self.staged.read(ask, session, envelope, stages)
                else:
                    answer = await self.passthrough.pipe(ask, session, [envelope])
        except BaseException:
            self.sessions.in_flight.leave(session, principal, number)
            raise
        if answer.status in REFUSED:
            _note_refusal(ask, answer, session)
        if isinstance(answer.body, bytes):
            self.sessions.in_flight.leave(session, principal, number)
        else:
            answer.release = both(
                answer.release, partial(self.sessions.in_flight.leave, session, principal, number)
            )
        return answer

    async def _listen_or_end(self, ask: ClientRequest) -> ClientResponse:
        if ask.sender.era is LEGACY and ask.method == "DELETE":
            # It needs an id: nobody may end a session that others go on in.
            return await self.end(ask, min(CLOSE_SECONDS, ask.server.timeouts.request))
        return await self.get_streams.listen(ask, await self._session_of(ask))

    async def _session_of(self, ask: ClientRequest) -> Session | None:
        """The session of a legacy request; None for a modern one. Raises SessionMissing, SessionUnknown."""
        sender = ask.sender
        if sender.era is MODERN:
            return None
        if sender.session_id is None:
            return await self.upstream_sessions.principal_sessions.find(ask)
        return await self.sessions.find(sender.session_id, ask.server.id, sender.principal)

    async def _open(self, ask: ClientRequest, initialize: Envelope) -> ClientResponse:
        _judge(ask, initialize)
        ask.server.require_healthy()
        async with self.sessions.place(ask.opens) as place:
            answer = await self.upstream_sessions.open(ask, initialize, place)
        if answer.status in REFUSED:
            _note_refusal(ask, answer, None)
        return answer

    async def _batch(
        self, ask: ClientRequest, session: Session | None, batch: Batch, requests: list[Envelope]
    ) -> ClientResponse:
        concerned = [each for each in requests if not await self.call_gate.is_free(ask, session, each)]
        if concerned:
            return await self._part(ask, session, batch, concerned)
        return await self.passthrough.pipe(ask, session, requests)

    async def _part(
        self, ask: ClientRequest, session: Session | None, batch: Batch, concerned: list[Envelope]
    ) -> ClientResponse:
        """A batch with members that stages concern: each gets an error of its own, the others are piped."""
        refused = refusals(concerned)
        if len(batch.members) == len(concerned):
            return refused_whole(refused)
        rest = without(ask, batch, concerned)
        ask.body = b""
        if not (requests := requests_of(rest.envelope)):
            await (await self._notify(rest, session)).close()
            return refused_whole(refused)
        assert isinstance(rest.envelope, Batch)
        return await joined(await self._batch(rest, session, rest.envelope, requests), requests, refused)

    async def _notify(self, ask: ClientRequest, session: Session | None) -> ClientResponse:
        """Notifications and responses: the upstream's own answer, 202 as a rule."""
        envelope = ask.envelope
        if session is not None and isinstance(envelope, Envelope):
            if envelope.kind is Kind.RESPONSE and session.asleep:
                # It answers a request of an upstream session that is no more.
                return ClientResponse(202, [], b"")
            if envelope.method == "notifications/initialized" and _says_more(envelope.body):
                await self._remember_initialized(session, envelope.body)
            gates = ask.server.stages.gates.get(envelope.method)
            # Clients that share a session choose their ids themselves, so one that is given up may be another's: who
            # gives up such a call is heard by hanging up.
            if gates and not session.unnamed:
                await self.call_gate.admitted(ask, session, envelope, gates)
        read_timeout = ask.server.timeouts.request
        reply = await self.upstream_sessions.send(ask, session, ask.body, read_timeout)
        body = await read_body(reply, read_timeout, ask.server.rules.answer_limit)
        return ClientResponse(reply.status, ask.server.rules.answer_headers.to_client(reply.headers), body)

    async def _remember_initialized(self, session: Session, body: bytes) -> None:
        row, record = await self.sessions.record(session)
        if record.handshake.initialized != body:
            handshake = record.handshake._replace(initialized=body)
            await self.sessions.remap(session, row, replace(record, handshake=handshake))

    # --- DELETE -----------------------------------------------------------------------------------------------

    async def end(self, ask: ClientRequest, within: float) -> ClientResponse:
        """End the session of a DELETE here in any case, upstream if that takes no longer than ``within`` seconds; the
        cleanup closes what could not be closed now.

        Raises SessionMissing, SessionUnknown, StoreUnavailable.
        """
        session = await self.sessions.find(ask.sender.session_id, ask.server.id, ask.sender.principal)
        self.sessions.begin_end(session)
        if self.sessions.on_event is not None:
            self.sessions.on_event(session.server, "ended")
        # Begun, it is finished, also when the client does not wait for it.
        return await run_beside(self._end(ask, session, within))

    async def _end(self, ask: ClientRequest, session: Session, within: float) -> ClientResponse:
        try:
            async with asyncio.timeout(within):
                if session.renewal is not None:
                    # Begun before the end was, it would leave a session upstream that nobody closes.
                    await asyncio.wait([session.renewal])
                reply = await self.upstream_sessions.close(ask, session)
                read_timeout, limit = ask.server.timeouts.request, ask.server.rules.answer_limit
                body = await read_body(reply, read_timeout, limit) if reply else b""
        except (AdapterError, TimeoutError):
            closed, reply = False, None
        else:
            closed = reply is None or reply.status < 500
        await self.sessions.end(session, closed=closed)
        if reply is None or not closed or reply.status == 404:
            return ClientResponse(200, [], b"")
        return ClientResponse(reply.status, ask.server.rules.answer_headers.to_client(reply.headers), body)


def _says_more(initialized: bytes) -> bool:
    """Tell whether a client's notification has to be kept for renewals, which send one without params."""
    return b'"params"' in initialized and (len(initialized) > _SHORT or parse(initialized) != _EMPTY)


def _note_refusal(ask: ClientRequest, answer: ClientResponse, session: Session | None) -> None:
    """Have the server know that its upstream refused a caller."""
    secrets = () if session is None else (session.upstream_id,)
    ask.server.refusal = caller_refusal(
        time.time(), answer.status, answer.headers, answer.body, ask.headers, secrets
    )


def _judge(ask: ClientRequest, envelope: Envelope | Batch) -> None:
    """Raise BadRequest for a message that the upstream might take for another one.

    Of a compressed body two programs may make different messages, so that what was judged leaves as it was read.
    """
    ask.server.require_clear(envelope)
    if ask.encoded and ask.server.stages.guards:
        ask.body, ask.encoded = envelope.body, False
        ask.headers = forwardable(ask.headers, drop=frozenset({"content-encoding"}))


def _version_of(session: Session, ask: ClientRequest) -> str:
    """The protocol version of a request: the one its session negotiated, or else the one that its header names.

    MCP 2025-11-25, "Protocol Version Header", has a request without that header be of 2025-03-26.
    """
    return session.protocol_version or ask.sender.version or "2025-03-26"
