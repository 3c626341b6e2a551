"""Read exchanges: the request walks its stages, and so does the response; everything between passes as it comes."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from adapter.errors import AdapterError, AnswerTooLarge, BadJson, UpstreamBroken, UpstreamSilent
from adapter.relay.call.answer_stream import AnswerStream, StreamEdits, StreamPolicy
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.call.get_streams import noticing
from adapter.relay.call.resumption import ExchangeRecovery
from adapter.relay.exchange import JSON, ClientRequest, ClientResponse, asking_plain, both
from adapter.relay.flow import of_pieces
from adapter.relay.notifications import Inbox
from adapter.relay.replies import (
    LARGE,
    LIST,
    decoded,
    is_encoded,
    is_response,
    joined,
    long_response_to,
    media_type,
    read_body,
    read_pieces,
    require_plain,
)
from adapter.relay.sessions.session_map import Session
from adapter.relay.stages import Call, OccasionalStage, Stages, Withdrawn, walk_request, walk_response
from adapter.rules.access.headers import of_changed_body
from adapter.rules.results.tool_results import without_paths
from adapter.upstream.port import UpstreamReply
from adapter.wire.ambiguity import may_hold
from adapter.wire.envelope import Envelope, answers, failure, parse, response_in
from adapter.wire.eras import Era
from adapter.wire.shared_ids import TOKEN
from adapter.wire.spans import MessagePieces, find, items
from adapter.wire.sse import encode

STREAM = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]
"""The fields of a stream of the adapter's own."""

MessageEdit: TypeAlias = Callable[[bytes], bytes]


@dataclass(slots=True)
class StagedExchange:
    """Takes the requests that stages concern."""

    call_gate: CallGate
    deferred: DeferredAnswers

    async def read(
        self, ask: ClientRequest, session: Session | None, envelope: Envelope, stages: Stages
    ) -> ClientResponse:
        """Answer one request by way of its stages. Raises AdapterError."""
        call = self.call_gate.call(ask, session, envelope)
        recovery = ExchangeRecovery(ask, session, [envelope], self.deferred, (call, stages))
        if envelope.name in ask.server.stages.speaking and _hears_progress(ask, envelope):
            return _spoken(stages, call, recovery)
        try:
            own = await walk_request(stages, call)
            if own is not None:
                recovery.finish()
                return ClientResponse(200, [JSON], own)
            if call.guarded and session is not None and ask.server.stages.planned:
                session.guarded = session.guarded.plus(envelope.id)
            return await self._forward(ask, session, call, stages, recovery)
        except Withdrawn:
            recovery.finish()
            return ClientResponse(202, [], b"")
        except BaseException:
            recovery.finish()
            raise

    async def _forward(
        self,
        ask: ClientRequest,
        session: Session | None,
        call: Call,
        stages: Stages,
        recovery: ExchangeRecovery,
    ) -> ClientResponse:
        # A compressed body was read and may be edited, so it leaves plain; so must come what stages will edit.
        ask.headers = asking_plain(call.headers, drop=frozenset({"content-encoding"} if ask.encoded else ()))
        read_timeout = ask.server.read_timeout_of(call.envelope.method, call.envelope.name)
        try:
            reply = await self.call_gate.upstream_sessions.send(ask, session, call.request, read_timeout)
            headers = ask.server.rules.answer_headers.to_client(reply.headers)
            if media_type(reply.headers) == "text/event-stream":
                require_plain(reply)
                edits = StreamEdits(partial(_finished, stages, call), _aside(ask, call))
                terms = StreamPolicy(
                    read_timeout,
                    ask.sender.era is Era.LEGACY,
                    ask.server.listener(),
                    ask.server.rules.answer_limit,
                )
                stream = AnswerStream(reply, [call.envelope], recovery, terms, edits)
                answer = stream.answer(
                    reply.status, of_changed_body(headers), both(reply.abort, recovery.finish)
                )
                if call.joined is not None:
                    answer.body = call.joined(stream.pieces())
                return answer
            if call.envelope.method == LIST:
                message = await read_pieces(reply, read_timeout, ask.server.rules.answer_limit)
                known = await _known_list(ask, call, stages, reply, message)
                if known is not None:
                    recovery.finish()
                    return known
                raw = await joined(message)
            else:
                raw = await read_body(reply, read_timeout, ask.server.rules.answer_limit)
        except UpstreamSilent:
            recovery.cancel_upstream()
            raise
        # Some clients pass over a byte order mark.
        body, status = decoded(raw, reply, ask.server.rules.answer_limit).removeprefix(BOM_UTF8), reply.status
        # Of other statuses too: a modern upstream says 404 where it does not know a method that the adapter adds.
        # And of other types, since a client may not look at that.
        if await _answers(call, body):
            came, body = body, await walk_response(stages, call, body)
            if status != 200 and body is not came and find(body, ("error",)) is None:
                status = 200
        elif call.guarded and body:
            whole = await _batch(stages, call, body)
            if whole is None and status < 400:
                raise UpstreamBroken("The upstream server answered with something other than a response.")
            body = whole or _refusal(call, body)
        recovery.finish()
        return ClientResponse(status, headers if body is raw else of_changed_body(headers), body)


def _hears_progress(ask: ClientRequest, envelope: Envelope) -> bool:
    """Tell whether the client wants to hear of the progress of its call, and can."""
    accepted = any(
        name.lower() == "accept" and "text/event-stream" in value.lower() for name, value in ask.headers
    )
    return accepted and find(envelope.body, TOKEN) is not None


def _spoken(stages: Stages, call: Call, recovery: ExchangeRecovery) -> ClientResponse:
    """A stream of what a stage of the adapter's own says of its progress, and then its response."""
    inbox = Inbox()
    call.speak = inbox.put
    return ClientResponse(200, STREAM, noticing(_own(stages, call), inbox), release=recovery.finish)


async def _own(stages: Stages, call: Call) -> AsyncGenerator[bytes, None]:
    """The response of a stage of the adapter's own, as an event; nothing for a client that gave up its request."""
    try:
        response = await walk_request(stages, call)
    except Withdrawn:
        return
    except AdapterError as error:
        response = failure(error, call.envelope.id_bytes)
    assert response is not None, "such a stage always answers"
    yield encode(response)


async def _known_list(
    ask: ClientRequest, call: Call, stages: Stages, reply: UpstreamReply, message: MessagePieces
) -> ClientResponse | None:
    """The answer to a list of tools that came before but for its id, and so is not read again; None for any other."""
    guard = ask.server.stages.guard
    if guard is None or stages[-1] is not guard or reply.status != 200 or is_encoded(reply.headers):
        return None
    for stage in stages[:-1]:
        if not (isinstance(stage, OccasionalStage) and await stage.passes(call)):
            return None
    pieces = await guard.list_again(call, message)
    if pieces is None:
        return None
    headers = of_changed_body(ask.server.rules.answer_headers.to_client(reply.headers))
    size = sum(map(len, pieces))
    if size <= LARGE:
        return ClientResponse(200, headers, b"".join(pieces))
    return ClientResponse(200, headers, of_pieces(pieces), length=size)


async def _answers(call: Call, body: bytes) -> bool:
    """Tell whether the body is the response to the call."""
    if call.envelope.method != LIST:
        number = call.envelope.id
        try:
            message = (
                response_in(body, number) if len(body) <= LARGE else await long_response_to(body, number)
            )
        except AnswerTooLarge as error:
            # That is for the stages that read its values; most look at none.
            call.came = (body, error)
            return await is_response(body, number)
        call.came = (body, message)
        return message is not None
    return await is_response(body, call.envelope.id)


async def _finished(stages: Stages, call: Call, response: bytes) -> bytes:
    """The response as the stages want it; the failure of one is an error response, for the head has left.

    What else ended the wait, such as a batch of JSON-RPC messages, leaves as it came, unless the call is guarded.
    """
    try:
        if await _answers(call, response):
            return await walk_response(stages, call, response)
        if not call.guarded:
            return response
        whole = await _batch(stages, call, response)
        if whole is None:
            raise UpstreamBroken("The upstream server answered with something other than a response.")
        return whole
    except AdapterError as error:
        return failure(error, call.envelope.id_bytes)


async def _batch(stages: Stages, call: Call, data: bytes) -> bytes | None:
    """Of a batch of messages the response to the call, as the stages want it, and what is no response at all.

    None for what is no batch, or none with the response in it.
    """
    if call.envelope.method == LIST and len(data) > LARGE:
        # No client sends a batch for a list, and reading it to find that out would take long.
        return None
    try:
        if not isinstance(parse(data), list):
            return None
    except BadJson:
        return None
    members = [data[start:end] for start, end in items(data)]
    response = next((each for each in members if answers(each, call.envelope.id)), None)
    if response is None:
        return None
    others = [each for each in members if _is_aside(parse(each))]
    return b"[" + b",".join([*others, await walk_response(stages, call, response)]) + b"]"


def _aside(ask: ClientRequest, call: Call) -> MessageEdit | None:
    """The function that messages on the way of the response pass through; None where they pass as they come."""
    access, edits = ask.server.stages.access, [*call.heard]
    if access is not None:
        edits.insert(0, partial(access.aside, ask.sender.caller))
    if call.joined is None and (call.guarded or call.withheld):
        edits.append(partial(_seen_meanwhile, call))
    return partial(_edited, edits) if len(edits) > 1 else edits[0] if edits else None


def _edited(edits: Iterable[MessageEdit], data: bytes) -> bytes:
    """What is left of a message after all edits; none of them sees one of which nothing is left."""
    for edit in edits:
        data = data and edit(data)
    return data


def _refusal(call: Call, body: bytes) -> bytes:
    """The part of a body with a failure status that may leave: nothing for a call, as it may tell of data."""
    if call.envelope.method != LIST or len(body) > LARGE:
        return b""
    try:
        return b"" if may_hold(parse(body), "result") else body
    except BadJson:
        return body


def _seen_meanwhile(call: Call, data: bytes) -> bytes:
    """A message on the way of the response, such as one of progress, with its texts as they may be seen.

    Of a guarded call's stream whatever is no such message stays behind, such as a response that comes twice.
    """
    if call.guarded and call.envelope.method == LIST and len(data) > LARGE:
        return b""
    try:
        message = parse(data)
    except BadJson:
        message = None
    if call.guarded and not _is_aside(message):
        return b""
    return without_paths(data, call.withheld) if call.withheld and isinstance(message, dict) else data


def _is_aside(message: object) -> bool:
    """Tell whether this is a notification or a request of the upstream's."""
    return isinstance(message, dict) and "method" in message and not message.keys() & {"result", "error"}
