"""The relay: what becomes of each request to a mount.

An exchange no stage concerns is piped: body bytes out, answer bytes back as they arrive. ``initialize`` is read,
because its result mints the session, but leaves as it came. What stages concern is read and edited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from adapter.errors import AdapterError, BadJson, BadRequest, UpstreamSilent
from adapter.relay.answers import ANSWER_LIMIT, decoded, is_encoded, media_type, read_body, require_plain
from adapter.relay.batches import joined, refusals, refused_whole, without
from adapter.relay.errands import Errands
from adapter.relay.exchange import Answer, Ask, asking_plain, forwardable, requests_of
from adapter.relay.fetching import fetch
from adapter.relay.mapping import Mapping
from adapter.relay.notices import Notices
from adapter.relay.opening import Opening
from adapter.relay.parking import Parking
from adapter.relay.recovery import ExchangeRecovery
from adapter.relay.server import Server
from adapter.relay.sessions import Session, Sessions
from adapter.relay.stages import Call, Stages, Unfold, walk_request, walk_response
from adapter.relay.streams import AnswerStream, Heed, held, listening, noticing, piped
from adapter.rules.headers import to_client
from adapter.rules.results import without_paths
from adapter.rules.scopes import Scope
from adapter.upstream.port import UpstreamReply, header
from adapter.wire.envelope import Batch, Envelope, Kind, answers, parse
from adapter.wire.eras import Era
from adapter.wire.failure import failure
from adapter.wire.spans import find

HELD_JSON = 64 << 10
"""Bytes of a JSON answer that are held until it is whole, so that one which breaks off can still be replaced."""

BATCH_VERSION = "2025-03-26"
"""The one protocol version that has JSON-RPC batches."""

_JSON = ("Content-Type", "application/json")


@dataclass(slots=True)
class Relay:
    """Built by the composition root; ``handle`` is its one entrance.

    ``scope_of`` tells whose files and pins a request may touch, by its session and its principal.
    """

    sessions: Sessions
    mapping: Mapping
    opening: Opening
    parking: Parking
    errands: Errands
    scope_of: Callable[[Session | None, str], Scope]
    notices: Notices

    async def handle(self, ask: Ask) -> Answer:
        """Answer one request to a mount. Raises AdapterError for what the edge has to render."""
        if ask.method == "POST":
            return await self._post(ask)
        session = None
        if ask.era is Era.LEGACY:
            session = await self.sessions.find(ask.session_id, ask.server.id, ask.principal)
        if ask.method == "DELETE" and session is not None:
            return await self._delete(ask, session)
        return await self._get(ask, session)

    # --- POST -------------------------------------------------------------------------------------------------

    async def _post(self, ask: Ask) -> Answer:
        envelope = ask.envelope
        assert envelope is not None
        if ask.era is Era.MODERN:
            if isinstance(envelope, Batch):
                raise BadRequest(f"JSON-RPC batches exist only in MCP {BATCH_VERSION}.")
            session = None
        elif isinstance(envelope, Envelope) and _opens(envelope):
            ask.server.require_healthy(asyncio.get_running_loop().time())
            ask.server.counters.exchanges += 1
            return await self.opening.open(ask, envelope)
        else:
            session = await self.sessions.find(ask.session_id, ask.server.id, ask.principal)
            if isinstance(envelope, Batch) and session.protocol_version != BATCH_VERSION:
                raise BadRequest(f"JSON-RPC batches exist only in MCP {BATCH_VERSION}.")
        ask.server.require_healthy(asyncio.get_running_loop().time())
        if not (isinstance(envelope, Envelope) and envelope.kind is Kind.REQUEST):
            _require_harmless(ask.server, envelope)
        requests = requests_of(envelope)
        if not requests:
            return await self._notify(ask, session)
        leave = self.sessions.enter(session, ask.principal, len(requests))
        try:
            answer = await self._exchange(ask, session, envelope, requests)
        except BaseException:
            leave()
            raise
        answer.release = _both(answer.release, leave)
        return answer

    async def _exchange(
        self, ask: Ask, session: Session | None, envelope: Envelope | Batch, requests: list[Envelope]
    ) -> Answer:
        ask.server.counters.exchanges += len(requests)
        if isinstance(envelope, Batch):
            concerned = [each for each in requests if not await self._is_free(ask, session, each)]
            if concerned:
                return await self._part(ask, session, envelope, concerned)
        else:
            if ask.server.plan.unfold is not None:
                envelope = await self._unfolded(ask, session, envelope, ask.server.plan.unfold)
                requests = [envelope]
            await self._admit(ask, session, envelope)
            if stages := ask.server.plan.stages_for(envelope):
                return await self._read(ask, session, envelope, stages)
        silence = _silence(ask, requests)
        recovery = ExchangeRecovery(ask, session, requests, self.parking, self.errands)
        try:
            reply = await self.mapping.send(ask, session, ask.body, silence)
            headers = to_client(reply.headers)
            if media_type(reply) == "text/event-stream":
                if is_encoded(reply):
                    if reply.whole is not None:
                        return Answer(reply.status, headers, reply.whole)
                    # Nobody looks into it, but its events are due at once, so it is not held either.
                    return Answer(reply.status, headers, piped(reply, silence), release=reply.abort)
                stream = AnswerStream(
                    reply,
                    list(requests),
                    silence=silence,
                    recovery=recovery,
                    resumable=ask.era is Era.LEGACY,
                    heed=_listener(ask.server),
                )
                if reply.whole is not None and stream.settled_by(reply.whole):
                    return Answer(reply.status, headers, reply.whole)
                return Answer(reply.status, headers, stream.pieces(), release=reply.abort)
            if reply.whole is not None:
                return Answer(reply.status, headers, reply.whole)
            return await self._pipe(reply, headers, silence)
        except UpstreamSilent:
            recovery.cancel_upstream()
            raise

    async def _unfolded(
        self, ask: Ask, session: Session | None, envelope: Envelope, unfold: Unfold
    ) -> Envelope:
        """The call that this one stands for, which takes its place in all that follows."""
        call = self._call(ask, session, envelope)
        await unfold(call)
        if call.envelope is not envelope:
            drop = frozenset({"content-encoding"} if ask.encoded else ())
            ask.envelope, ask.body, ask.encoded = call.envelope, call.request, False
            ask.headers = forwardable(call.headers, drop=drop)
        return call.envelope

    async def _admit(self, ask: Ask, session: Session | None, envelope: Envelope) -> None:
        """Have the gate judge a call, now and when the upstream began anew before it was sent. Raises AdapterError."""
        gate = ask.server.plan.gate
        if gate is None or envelope.method != "tools/call":
            return
        scope = self.scope_of(session, ask.principal)
        if not gate.passes(scope.id, envelope.name):
            await gate.admit(self._call(ask, session, envelope))
        ask.renewed = partial(self._admit, ask, session, envelope)

    async def _is_free(self, ask: Ask, session: Session | None, member: Envelope) -> bool:
        """Whether a member of a batch may be piped with the others."""
        plan = ask.server.plan
        if plan.stages_for(member) or (plan.unfold is not None and member.method == "tools/call"):
            return False
        try:
            await self._admit(ask, session, member)
        except AdapterError:
            return False
        return True

    async def _part(
        self, ask: Ask, session: Session | None, batch: Batch, concerned: list[Envelope]
    ) -> Answer:
        """A batch with members that stages concern: each gets an error of its own, the others are piped."""
        refused = refusals(concerned)
        if len(batch.members) == len(concerned):
            return refused_whole(refused)
        rest = without(ask, batch, concerned)
        if not (requests := requests_of(rest.envelope)):
            await (await self._notify(rest, session)).close()
            return refused_whole(refused)
        assert isinstance(rest.envelope, Batch)
        return joined(await self._exchange(rest, session, rest.envelope, requests), refused)

    async def _pipe(
        self, reply: UpstreamReply, headers: list[tuple[str, str]], silence: float | None
    ) -> Answer:
        """An answer that is no event stream: held while small, so that a broken one never leaves in part."""
        first: list[bytes] = []
        size = 0
        try:
            while size <= HELD_JSON:
                chunk = await reply.read(silence)
                if not chunk:
                    return Answer(reply.status, headers, b"".join(first))
                first.append(chunk)
                size += len(chunk)
        except BaseException:
            reply.abort()
            raise
        length = header(reply.headers, "content-length")
        return Answer(
            reply.status,
            headers,
            held(first, piped(reply, silence)),
            length=int(length) if length else None,
            release=reply.abort,
        )

    async def _notify(self, ask: Ask, session: Session | None) -> Answer:
        """Notifications and responses: the upstream's own answer, 202 as a rule."""
        envelope = ask.envelope
        if session is not None and isinstance(envelope, Envelope):
            if envelope.kind is Kind.RESPONSE and session.asleep:
                # It answers a request of an upstream session that is no more.
                return Answer(202, [], b"")
            if envelope.method == "notifications/initialized" and b'"params"' in envelope.body:
                await self._remember_initialized(session, envelope.body)
        silence = ask.server.silence.request
        reply = await self.mapping.send(ask, session, ask.body, silence)
        body = await read_body(reply, silence)
        return Answer(reply.status, to_client(reply.headers), body)

    async def _remember_initialized(self, session: Session, body: bytes) -> None:
        row, record = await self.sessions.record(session)
        if record.initialized != body:
            await self.sessions.remap(session, row, replace(record, initialized=body))

    # --- read exchanges ---------------------------------------------------------------------------------------

    async def _read(self, ask: Ask, session: Session | None, envelope: Envelope, stages: Stages) -> Answer:
        call = self._call(ask, session, envelope)
        recovery = ExchangeRecovery(ask, session, [envelope], self.parking, self.errands)
        recovery.reading(call, stages)
        try:
            own = await walk_request(stages, call)
            if own is not None:
                recovery.finish()
                return Answer(200, [_JSON], own)
            return await self._forward_read(ask, session, call, stages, recovery)
        except BaseException:
            recovery.finish()
            raise

    def _call(self, ask: Ask, session: Session | None, envelope: Envelope) -> Call:
        return Call(
            server=ask.server.id,
            scope=self.scope_of(session, ask.principal),
            envelope=envelope,
            request=envelope.body,
            era=ask.era,
            base=ask.base,
            session=session.key if session else None,
            headers=ask.headers,
            fetch=partial(fetch, self.mapping, ask, session),
        )

    async def _forward_read(
        self, ask: Ask, session: Session | None, call: Call, stages: Stages, recovery: ExchangeRecovery
    ) -> Answer:
        # A compressed body was read and may be edited, so it leaves plain; so must come what stages will edit.
        ask.headers = asking_plain(call.headers, drop=frozenset({"content-encoding"} if ask.encoded else ()))
        silence = _silence(ask, [call.envelope])
        try:
            reply = await self.mapping.send(ask, session, call.request, silence)
            headers = [field for field in to_client(reply.headers) if field[0].lower() != "content-encoding"]
            if media_type(reply) == "text/event-stream":
                require_plain(reply)
                stream = AnswerStream(
                    reply,
                    [call.envelope],
                    silence=silence,
                    recovery=recovery,
                    resumable=ask.era is Era.LEGACY,
                    rewrite=partial(_finished, stages, call),
                    aside=partial(_seen_meanwhile, call.withheld) if call.withheld is not None else None,
                    heed=_listener(ask.server),
                    limit=ANSWER_LIMIT,
                )
                return Answer(
                    reply.status, headers, stream.pieces(), release=_both(reply.abort, recovery.finish)
                )
            raw = await read_body(reply, silence)
        except UpstreamSilent:
            recovery.cancel_upstream()
            raise
        body, status = decoded(raw, reply), reply.status
        # Of other statuses too: a modern upstream says 404 where it does not know a method that the adapter adds.
        if media_type(reply) == "application/json" and answers(body, call.envelope.id):
            came, body = body, await walk_response(stages, call, body)
            if body is not came and find(body, ("error",)) is None:
                status = 200
        recovery.finish()
        return Answer(status, headers, body)

    # --- GET and DELETE ---------------------------------------------------------------------------------------

    async def _get(self, ask: Ask, session: Session | None) -> Answer:
        ask.server.require_healthy(asyncio.get_running_loop().time())
        silence = ask.server.silence.request
        plan = ask.server.plan
        if session is not None and ask.last_event_id is not None and not plan.empty:
            await self.parking.load(session)
        # What stages wait for must not pass by them compressed; anything else may come as it likes.
        needed = session is not None and (bool(plan.named) or self.parking.waits(session))
        if needed:
            ask.headers = asking_plain(ask.headers)
        reply = await self.mapping.send(ask, session, b"", silence)
        headers = to_client(reply.headers)
        stream = media_type(reply) == "text/event-stream"
        rewrite = None
        if stream and needed:
            require_plain(reply)
        if stream and session is not None and needed:
            rewrite = partial(self.parking.claim, session)
        if reply.whole is not None and rewrite is None:
            return Answer(reply.status, headers, reply.whole)
        if not stream:
            return await self._pipe(reply, headers, silence)
        ask.server.counters.streams += 1
        pieces = listening(reply, rewrite, ANSWER_LIMIT, _listener(ask.server))
        release = reply.abort
        if rewrite is not None and session is not None:
            scope = self.scope_of(session, ask.principal)
            inbox = self.notices.open(scope, session.key, resumed=ask.last_event_id is not None)
            pieces = noticing(pieces, inbox)
            release = _both(release, partial(self.notices.close, scope, session.key, inbox))
        return Answer(reply.status, headers, pieces, release=release)

    async def _delete(self, ask: Ask, session: Session) -> Answer:
        """End the session here in any case; the janitor closes upstream what could not be closed now."""
        self.sessions.begin_end(session)
        # Begun, it is finished, also when the client does not wait for it.
        return await asyncio.shield(asyncio.ensure_future(self._end(ask, session)))

    async def _end(self, ask: Ask, session: Session) -> Answer:
        if session.renewal is not None:
            # Begun before the end was, it would leave a session upstream that nobody closes.
            await asyncio.wait([session.renewal])
        try:
            reply = await self.mapping.close(ask.server, session, ask.headers)
            body = await read_body(reply, ask.server.silence.request) if reply else b""
        except AdapterError:
            await self.sessions.end(session, closed=False)
            return Answer(200, [], b"")
        if reply is not None and reply.status >= 500:
            await self.sessions.end(session, closed=False)
            return Answer(200, [], b"")
        await self.sessions.end(session, closed=True)
        if reply is None or reply.status == 404:
            return Answer(200, [], b"")
        return Answer(reply.status, to_client(reply.headers), body)


async def _finished(stages: Stages, call: Call, response: bytes) -> bytes:
    """The response as the stages want it; the failure of one is an error response, for the head has left.

    What else ended the wait, such as a batch of JSON-RPC messages, leaves as it came.
    """
    if not answers(response, call.envelope.id):
        return response
    try:
        return await walk_response(stages, call, response)
    except AdapterError as error:
        return failure(error, call.envelope.id_bytes)


def _seen_meanwhile(withheld: Callable[[str], str], data: bytes) -> bytes:
    """A message on its way to the response, such as one of progress, with its texts as they may be seen."""
    try:
        message = parse(data)
    except BadJson:
        return data
    return without_paths(data, withheld) if isinstance(message, dict) else data


def _require_harmless(server: Server, envelope: Envelope | Batch) -> None:
    """Raise BadRequest for a tool call without an id: nobody would judge it, and an upstream might run it."""
    members = envelope.members if isinstance(envelope, Batch) else [envelope]
    calls = [each for each in members if each.method == "tools/call" and each.kind is Kind.NOTIFICATION]
    if calls and not server.plan.empty:
        raise BadRequest("tools/call is a request and needs an id.")


def _listener(server: Server) -> Heed | None:
    return server.plan.gate.listener() if server.plan.gate is not None else None


def _silence(ask: Ask, requests: list[Envelope]) -> float | None:
    """The longest silence that any of the requests allows."""
    allowed = [ask.server.silence_for(request.method, request.name) for request in requests]
    return None if None in allowed else max(seconds for seconds in allowed if seconds is not None)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def release() -> None:
        first()
        second()

    return release


def _opens(envelope: Envelope) -> bool:
    return envelope.method == "initialize" and envelope.kind is Kind.REQUEST
