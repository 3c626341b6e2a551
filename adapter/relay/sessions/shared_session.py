"""One session at a server in which all sessions of a principal speak, each under ids of its own."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from adapter.errors import BadJson, UpstreamBroken
from adapter.relay.background import AT_ONCE, apart
from adapter.relay.exchange import asking_plain
from adapter.relay.flow import EditedStream
from adapter.relay.replies import (
    EVENT_STREAM,
    decoded,
    is_encoded,
    kept_fields,
    media_type,
    read_body,
    require_plain,
)
from adapter.relay.sessions.fan_out import FanOut
from adapter.rules.access.headers import SharedFields
from adapter.rules.access.sessions import MANY, ServerRequests, SharedRecord, belongs
from adapter.rules.tools.lists import has_no_such_method
from adapter.settings.core import UpstreamConnections
from adapter.upstream.port import Headers, Upstream, UpstreamReply, UpstreamRequest, WholeReply, header
from adapter.wire.envelope import REQUEST, Batch, Envelope, Kind, dump, parse, read_envelope
from adapter.wire.scan import has_more_values
from adapter.wire.shared_ids import (
    CANCELLED,
    EVERYBODY,
    PROGRESS,
    Addressed,
    AskedId,
    about,
    asked_id,
    downward,
    named,
    plain_answer,
    request_upward,
    tagged,
    with_id,
)
from adapter.wire.spans import items
from adapter.wire.sse import encode

LARGEST = 4 << 20
"""Bytes of a server's message that is parsed. Answers to requests may be larger: their ids are found without."""

MOST_VALUES = 100_000
"""Values of such a message: to parse them takes some ten milliseconds."""

_OF_THE_CLIENT = frozenset({"mcp-session-id", "content-encoding"})
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


@dataclass(eq=False, repr=False)
class SharedSession:
    """Speaks in the upstream session of ``record``. ``gone`` is called when the server does not know it any more.

    ``clock`` gives Unix time in seconds; ``used`` is when a client last asked something.
    """

    upstream: Upstream
    record: SharedRecord
    limits: UpstreamConnections
    gone: Callable[[SharedSession], Awaitable[None]]
    clock: Callable[[], float]
    busy: int = field(default=0, init=False)
    _requests: ServerRequests = field(default_factory=ServerRequests, init=False)

    def __post_init__(self) -> None:
        self.used = self.clock()
        self._epoch = self.record.epoch
        self.listeners = FanOut(
            self._epoch, self._read_event, limit=self.limits.max_answer_bytes, most=self.limits.max_streams
        )

    def send(
        self, request: UpstreamRequest, member: str, read_timeout: float | None
    ) -> Coroutine[Any, Any, UpstreamReply]:
        """Send for one member, as Upstream does. A DELETE ends its part only."""
        return (self._post if request.method == "POST" else self._get_or_delete)(
            request, member, read_timeout
        )

    async def _get_or_delete(
        self, request: UpstreamRequest, member: str, read_timeout: float | None
    ) -> UpstreamReply:
        if request.method == "DELETE":
            self.listeners.end(member)
            return WholeReply(200, [], b"")
        self.used = self.clock()
        return await self._listen(request, member, read_timeout)

    # --- POST -------------------------------------------------------------------------------------------------

    async def _post(self, request: UpstreamRequest, member: str, read_timeout: float | None) -> UpstreamReply:
        self.used = self.clock()
        envelope = request.envelope
        # What a client compressed, or stages changed, is another message than the one that was read.
        if envelope is None or envelope.body is not request.body:
            body = plain_body(request)
            envelope = await apart(body, partial(read_envelope, body))
        # Clients that name no session may all count from 1, so each of their requests is a member of its own.
        tag = f"{member}-{secrets.token_hex(6)}" if member.startswith(MANY) else member
        if type(envelope) is Envelope and envelope.kind is REQUEST:
            upward = partial(request_upward, envelope, tag)
            text: bytes | None = (
                upward() if len(envelope.body) <= AT_ONCE else await apart(envelope.body, upward)
            )
        else:
            text = await self._upward(envelope, member, tag)
        if text is None:
            return WholeReply(202, [], b"")
        self.busy += 1
        try:
            reply = await self.upstream.send(self._request(request, text), read_timeout)
            if reply.status == 404:
                await self.gone(self)
            limit = self.limits.max_answer_bytes
            if media_type(reply.headers) == EVENT_STREAM:
                require_plain(reply)
                return EditedStream(reply, partial(self._read_answer, tag), limit, self._end)
            raw = reply.whole
            if raw is None or len(raw) > limit or is_encoded(reply.headers):
                raw = decoded(await read_body(reply, read_timeout, limit), reply, limit)
            left = await self._read_answer(tag, raw) if raw else raw
        except BaseException:
            self._end()
            raise
        self.busy -= 1
        return WholeReply(reply.status, kept_fields(reply.headers), left or b"")

    def _request(self, request: UpstreamRequest, body: bytes) -> UpstreamRequest:
        """A member's request as the server gets it."""
        headers = request.headers
        derived = headers.derived if type(headers) is SharedFields else {}
        fields: tuple[str, Headers] | None = derived.get(SharedSession)
        if fields is None or fields[0] != self.record.session:
            plain = asking_plain(list(headers), drop=_OF_THE_CLIENT)
            plain.append(("Mcp-Session-Id", self.record.session))
            fields = derived[SharedSession] = (self.record.session, SharedFields(plain))
        # Not by dataclasses.replace, which takes as long as all else here.
        sent = UpstreamRequest(
            request.method, fields[1], body, request.caller, request.query, request.repeatable
        )
        sent.purpose, sent.envelope = request.purpose, request.envelope
        sent.listens, sent.traceparent = request.listens, request.traceparent
        return sent

    def _end(self) -> None:
        """An exchange is over."""
        self.busy -= 1

    async def _upward(self, envelope: Envelope | Batch, member: str, tag: str) -> bytes | None:
        """The message of a client as it goes to the server; None if the server is not to receive it."""
        if isinstance(envelope, Envelope):
            return await self._message_upward(envelope, member, tag)
        parts = [await self._message_upward(each, member, tag) for each in envelope.members]
        left = [part for part in parts if part is not None]
        return b"[" + b",".join(left) + b"]" if left else None

    async def _message_upward(self, message: Envelope, member: str, tag: str) -> bytes | None:
        match message.kind:
            case Kind.REQUEST:
                return await apart(message.body, partial(request_upward, message, tag))
            case Kind.RESPONSE:
                return await self._response(message, member)
            case Kind.NOTIFICATION:
                return await self._notification(message, member)

    async def _response(self, response: Envelope, member: str) -> bytes | None:
        """A client's answer to the server; None for one that comes too late or answers no request."""
        found = asked_id(response.id)
        if found is None or not self._is_of(found, member):
            return None
        refused = response.failed and await apart(response.body, partial(has_no_such_method, response.body))
        if not self._requests.answer(found.id, refused=refused):
            return None
        if found.tag == EVERYBODY:
            self.listeners.tell_others(member, _withdrawn(str(response.id)))
        return await apart(response.body, partial(with_id, response.body, found.id))

    def _is_of(self, found: AskedId, member: str) -> bool:
        """Tell whether that member was asked so in this session."""
        return found.epoch == self._epoch and (found.tag == EVERYBODY or belongs(found.tag, member))

    async def _notification(self, message: Envelope, member: str) -> bytes | None:
        body = message.body
        if message.method == "notifications/initialized":
            # It was sent when the session was opened.
            return None
        if message.method not in (PROGRESS, CANCELLED):
            return body
        if message.method == CANCELLED and member.startswith(MANY):
            # Its id may be another client's.
            return None
        name = "progressToken" if message.method == PROGRESS else "requestId"
        value = await apart(body, lambda: named(parse(body), name))
        text = None
        if message.method == CANCELLED and isinstance(value, str | int | float):
            # The id under which the request went out.
            text = tagged(member, dump(value))
        elif message.method == PROGRESS and (found := asked_id(value)) and self._is_of(found, member):
            # The server's own token, of which clients were given another.
            text = found.id
        return None if text is None else await apart(body, partial(about, body, name, text))

    # --- what the server says ---------------------------------------------------------------------------------

    async def _read_answer(self, tag: str, data: bytes) -> bytes | None:
        """A message on a stream of ``tag``, or its whole answer, as its client may have it; None for one of others."""
        plain = plain_answer(data, tag)
        if plain is not None:
            return plain
        found = await self._messages(data, tag, 1)
        if found is None:
            return data
        mine = [each.data for each in found if each.tag is None or belongs(each.tag, tag)]
        for each in found:
            if each.tag is not None and not belongs(each.tag, tag):
                self.listeners.tell(each.tag, encode(each.data))
        if not mine:
            return None
        return b"[" + b",".join(mine) + b"]" if data.lstrip()[:1] == b"[" else mine[0]

    async def _read_event(self, data: bytes, streams: int) -> list[Addressed]:
        found = await self._messages(data, EVERYBODY, streams)
        return [Addressed(data, None)] if found is None else found

    async def _messages(self, data: bytes, tag: str, streams: int) -> list[Addressed] | None:
        """The messages of an event or a body; None for what holds none. Raises UpstreamBroken for a huge one."""
        if len(data) > LARGEST or has_more_values(data, MOST_VALUES):
            raise UpstreamBroken(
                "The upstream server sent a message that is too large for a shared session: the limit is "
                f"{LARGEST} bytes and {MOST_VALUES} values."
            )
        try:
            message = parse(data)
        except BadJson:
            return None
        if isinstance(message, dict):
            parts: list[tuple[bytes, Any]] = [(data, message)]
        elif isinstance(message, list):
            spans = await apart(data, lambda: list(items(data)))
            parts = [(data[start:end], each) for (start, end), each in zip(spans, message, strict=True)]
        else:
            return None
        found = [await self._message(part, each, tag, streams) for part, each in parts]
        return [each for each in found if each is not None]

    async def _message(self, data: bytes, message: Any, tag: str, streams: int) -> Addressed | None:
        if not isinstance(message, dict):
            return Addressed(data, None)
        tag_of = self._requests.tag_of
        found = await apart(data, lambda: downward(data, message, tag, self._epoch, tag_of))
        if found is not None and found.asks is not None:
            self._requests.ask(found.asks, tag, streams)
        return found

    # --- GET --------------------------------------------------------------------------------------------------

    async def _listen(
        self, request: UpstreamRequest, member: str, read_timeout: float | None
    ) -> UpstreamReply:
        last = header(request.headers, "last-event-id")
        is_general, after = self.listeners.place(last)
        if is_general:
            return await self.listeners.join(member, after, partial(self._open, request, after, read_timeout))
        # The rest of a call's stream, which is that call's alone.
        reply = await self._open(request, last, read_timeout)
        if reply.status != 200 or media_type(reply.headers) != "text/event-stream":
            return reply
        require_plain(reply)
        return EditedStream(reply, partial(self._read_answer, member), self.limits.max_answer_bytes)

    async def _open(
        self, request: UpstreamRequest, last_event_id: str | None, read_timeout: float | None
    ) -> UpstreamReply:
        fields = [each for each in request.headers if each[0].lower() != "last-event-id"]
        if last_event_id is not None:
            fields.append(("Last-Event-ID", last_event_id))
        sent = self._request(replace(request, headers=fields), b"")
        reply = await self.upstream.send(sent, read_timeout)
        if reply.status == 404:
            await self.gone(self)
        return reply


def plain_body(request: UpstreamRequest) -> bytes:
    """The message of a request, also where its client compressed it; ingress has read it so before."""
    if (header(request.headers, "content-encoding") or "identity").strip().lower() == "identity":
        return request.body
    return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(request.body)


def _withdrawn(number: str) -> bytes:
    """The notification that another client has answered a request."""
    params = {"requestId": number, "reason": "Another client has answered."}
    return dump({"jsonrpc": "2.0", "method": CANCELLED, "params": params})
