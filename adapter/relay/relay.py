"""The relay: what becomes of each request to a mount.

An exchange no stage concerns is piped: body bytes out, answer bytes back as they arrive. ``initialize`` is read,
because its result mints the session, but leaves as it came. What stages concern is read and edited.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from adapter.errors import AdapterError, BadRequest
from adapter.relay.call.batches import joined, refusals, refused_whole, without
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.get_streams import GetStreams
from adapter.relay.call.passthrough import PassThrough
from adapter.relay.call.staged import StagedExchange
from adapter.relay.exchange import ClientRequest, ClientResponse, both, forwardable, requests_of
from adapter.relay.replies import read_body
from adapter.relay.sessions.initialize import SessionOpener
from adapter.relay.sessions.session_map import Session, Sessions
from adapter.relay.sessions.upstream_sessions import UpstreamSessions
from adapter.wire.envelope import Batch, Envelope, Kind
from adapter.wire.eras import Era

CLOSE_SECONDS = 10.0
"""Seconds that a session's end may take at the upstream, where any request may take that long. The janitor closes what
could not be closed by then.
"""

BATCH_VERSION = "2025-03-26"
"""The one protocol version that has JSON-RPC batches."""


@dataclass(slots=True)
class Relay:
    """Built by the composition root; ``handle`` is its one entrance."""

    sessions: Sessions
    upstream_sessions: UpstreamSessions
    opener: SessionOpener
    call_gate: CallGate
    passthrough: PassThrough
    staged: StagedExchange
    get_streams: GetStreams

    async def handle(self, ask: ClientRequest) -> ClientResponse:
        """Answer one request to a mount. Raises AdapterError for what the edge has to render."""
        if ask.method == "POST":
            return await self._post(ask)
        session = None
        if ask.era is Era.LEGACY:
            if ask.method == "DELETE":
                # It needs an id: nobody may end a session that others go on in.
                return await self.end(ask, min(CLOSE_SECONDS, ask.server.timeouts.request))
            if ask.session_id is None:
                session = await self.opener.kept.find(ask)
            else:
                session = await self.sessions.find(ask.session_id, ask.server.id, ask.principal)
        return await self.get_streams.listen(ask, session)

    # --- POST -------------------------------------------------------------------------------------------------

    async def _post(self, ask: ClientRequest) -> ClientResponse:
        envelope = ask.envelope
        assert envelope is not None
        if ask.era is Era.MODERN:
            if isinstance(envelope, Batch):
                raise BadRequest(f"JSON-RPC batches exist only in MCP {BATCH_VERSION}.")
            session = None
        elif isinstance(envelope, Envelope) and _opens(envelope):
            _judge(ask, envelope)
            ask.server.require_healthy(asyncio.get_running_loop().time())
            ask.server.counters.exchanges += 1
            return await self.opener.open(ask, envelope)
        else:
            if ask.session_id is None:
                session = await self.opener.kept.find(ask)
            else:
                session = await self.sessions.find(ask.session_id, ask.server.id, ask.principal)
            if isinstance(envelope, Batch) and _version_of(session, ask) != BATCH_VERSION:
                raise BadRequest(f"JSON-RPC batches exist only in MCP {BATCH_VERSION}.")
        ask.server.require_healthy(asyncio.get_running_loop().time())
        _judge(ask, envelope)
        requests = requests_of(envelope)
        if not requests:
            return await self._notify(ask, session)
        leave = self.sessions.enter(session, ask.principal, len(requests))
        try:
            answer = await self._exchange(ask, session, envelope, requests)
        except BaseException:
            leave()
            raise
        answer.release = both(answer.release, leave)
        return answer

    async def _exchange(
        self,
        ask: ClientRequest,
        session: Session | None,
        envelope: Envelope | Batch,
        requests: list[Envelope],
    ) -> ClientResponse:
        ask.server.counters.exchanges += len(requests)
        if isinstance(envelope, Batch):
            concerned = [each for each in requests if not await self.call_gate.is_free(ask, session, each)]
            if concerned:
                return await self._part(ask, session, envelope, concerned)
        else:
            if ask.server.plan.unfold is not None:
                envelope = await self.call_gate.unfolded(ask, session, envelope, ask.server.plan.unfold)
                requests = [envelope]
            await self.call_gate.admit(ask, session, envelope)
            if stages := ask.server.plan.stages_for(envelope):
                return await self.staged.read(ask, session, envelope, stages)
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
        return await joined(await self._exchange(rest, session, rest.envelope, requests), requests, refused)

    async def _notify(self, ask: ClientRequest, session: Session | None) -> ClientResponse:
        """Notifications and responses: the upstream's own answer, 202 as a rule."""
        envelope = ask.envelope
        if session is not None and isinstance(envelope, Envelope):
            if envelope.kind is Kind.RESPONSE and session.asleep:
                # It answers a request of an upstream session that is no more.
                return ClientResponse(202, [], b"")
            if envelope.method == "notifications/initialized" and b'"params"' in envelope.body:
                await self._remember_initialized(session, envelope.body)
            if envelope.method == "notifications/cancelled" and ask.server.plan.withdraw is not None:
                # The upstream hears of it too, as it may have the request already.
                ask.server.plan.withdraw(session.key, envelope)
        read_timeout = ask.server.timeouts.request
        reply = await self.upstream_sessions.send(ask, session, ask.body, read_timeout)
        body = await read_body(reply, read_timeout, ask.server.answer_limit)
        return ClientResponse(reply.status, ask.server.answer_headers.to_client(reply.headers), body)

    async def _remember_initialized(self, session: Session, body: bytes) -> None:
        row, record = await self.sessions.record(session)
        if record.initialized != body:
            await self.sessions.remap(session, row, replace(record, initialized=body))

    # --- DELETE -----------------------------------------------------------------------------------------------

    async def end(self, ask: ClientRequest, within: float) -> ClientResponse:
        """End the session of a DELETE here in any case, upstream if that takes no longer than ``within`` seconds; the
        janitor closes what could not be closed now.

        Raises SessionMissing, SessionUnknown, StoreUnavailable.
        """
        session = await self.sessions.find(ask.session_id, ask.server.id, ask.principal)
        self.sessions.begin_end(session)
        # Begun, it is finished, also when the client does not wait for it.
        return await asyncio.shield(asyncio.ensure_future(self._end(ask, session, within)))

    async def _end(self, ask: ClientRequest, session: Session, within: float) -> ClientResponse:
        try:
            async with asyncio.timeout(within):
                if session.renewal is not None:
                    # Begun before the end was, it would leave a session upstream that nobody closes.
                    await asyncio.wait([session.renewal])
                reply = await self.upstream_sessions.close(ask.server, session, ask.headers, ask.query)
                read_timeout, limit = ask.server.timeouts.request, ask.server.answer_limit
                body = await read_body(reply, read_timeout, limit) if reply else b""
        except (AdapterError, TimeoutError):
            await self.sessions.end(session, closed=False)
            return ClientResponse(200, [], b"")
        if reply is not None and reply.status >= 500:
            await self.sessions.end(session, closed=False)
            return ClientResponse(200, [], b"")
        await self.sessions.end(session, closed=True)
        if reply is None or reply.status == 404:
            return ClientResponse(200, [], b"")
        return ClientResponse(reply.status, ask.server.answer_headers.to_client(reply.headers), body)


def _judge(ask: ClientRequest, envelope: Envelope | Batch) -> None:
    """Raise BadRequest for a message that the upstream might take for another one.

    Of a compressed body two programs may make different messages, so that what was judged leaves as it was read.
    """
    ask.server.require_clear(envelope)
    if ask.encoded and ask.server.plan.guards:
        ask.body, ask.encoded = envelope.body, False
        ask.headers = forwardable(ask.headers, drop=frozenset({"content-encoding"}))


def _version_of(session: Session, ask: ClientRequest) -> str:
    """The protocol version of a request: the one its session negotiated, or else the one that its header names.

    MCP 2025-11-25, "Protocol Version Header", has a request without that header be of 2025-03-26.
    """
    return session.protocol_version or ask.version or "2025-03-26"


def _opens(envelope: Envelope) -> bool:
    return envelope.method == "initialize" and envelope.kind is Kind.REQUEST
