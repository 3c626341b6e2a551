"""One session at a server in which all sessions of a principal speak, each under ids of its own."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from adapter.errors import BadJson, UpstreamBroken
from adapter.relay.answers import decoded, media_type, read_body, require_plain
from adapter.relay.exchange import asking_plain
from adapter.relay.fan_out import FanOut
from adapter.relay.pacing import apart
from adapter.relay.shared_replies import EditedStream, ReadyReply, kept_fields
from adapter.rules.shared_sessions import MANY, ServerRequests, SharedRecord, belongs
from adapter.upstream.port import Upstream, UpstreamReply, UpstreamRequest, header
from adapter.wire.envelope import Batch, Envelope, Kind, dump, parse, read_envelope
from adapter.wire.shared_ids import (
    CANCELLED,
    EVERYBODY,
    HUGE,
    PROGRESS,
    Addressed,
    about,
    asked,
    downward,
    named,
    plain_answer,
    request_upward,
    tagged,
    with_id,
)
from adapter.wire.spans import items
from adapter.wire.sse import encode

METHOD_NOT_FOUND = -32601

_OF_THE_CLIENT = frozenset({"mcp-session-id", "content-encoding"})
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS

Edits = Callable[[], bytes]
"""Makes what goes upstream of a client's message."""


@dataclass(frozen=True, slots=True)
class SharingLimits:
    """``answer``: bytes of an answer, or of one event. ``streams``: GET streams of one principal."""

    answer: int
    streams: int


class SharedSession:
    """Speaks in the upstream session of ``record``. ``gone`` is called when the server does not know it any more.

    ``clock`` gives Unix time in seconds; ``used`` is when a client last asked something.
    """

    def __init__(
        self,
        upstream: Upstream,
        record: SharedRecord,
        limits: SharingLimits,
        gone: Callable[[SharedSession], Awaitable[None]],
        clock: Callable[[], float],
    ) -> None:
        self.record = record
        self.used = clock()
        self.busy = 0
        self._upstream = upstream
        self._limits = limits
        self._gone = gone
        self._clock = clock
        self._epoch = record.epoch
        self._requests = ServerRequests()
        # Of members in which several clients speak: the tags of requests under way, by the ids that clients gave them.
        self._under_way: dict[bytes, list[str]] = {}
        self.listeners = FanOut(self._epoch, self._read_event, limit=limits.answer, most=limits.streams)

    def __repr__(self) -> str:
        return f"<SharedSession {self._epoch}: {self.busy} busy, {self.listeners!r}>"

    async def send(self, request: UpstreamRequest, member: str, silence: float | None) -> UpstreamReply:
        """Send for one member, as Upstream does. A DELETE ends its part only."""
        if request.method == "DELETE":
            self.listeners.end(member)
            return ReadyReply(200, [], b"")
        self.used = self._clock()
        if request.method == "GET":
            return await self._listen(request, member, silence)
        return await self._post(request, member, silence)

    # --- POST -------------------------------------------------------------------------------------------------

    async def _post(self, request: UpstreamRequest, member: str, silence: float | None) -> UpstreamReply:
        envelope = read_envelope(plain_body(request))
        # Clients that name no session may all count from 1, so each of their requests is a member of its own.
        tag = f"{member}-{secrets.token_hex(6)}" if member.startswith(MANY) else member
        text = await self._upward(envelope, member, tag)
        if text is None:
            return ReadyReply(202, [], b"")
        done = self._begin(envelope, tag)
        try:
            reply = await self._send(request, text, silence)
            if media_type(reply) == "text/event-stream":
                require_plain(reply)
                return EditedStream(reply, partial(self._read_answer, tag), self._limits.answer, done)
            raw = decoded(await read_body(reply, silence, self._limits.answer), reply, self._limits.answer)
            left = await self._read_answer(tag, raw) if raw else raw
        except BaseException:
            done()
            raise
        done()
        return ReadyReply(reply.status, kept_fields(reply.headers), left or b"")

    async def _send(self, request: UpstreamRequest, body: bytes, silence: float | None) -> UpstreamReply:
        fields = asking_plain(list(request.headers), drop=_OF_THE_CLIENT)
        fields.append(("Mcp-Session-Id", self.record.session))
        reply = await self._upstream.send(replace(request, headers=fields, body=body), silence)
        if reply.status == 404:
            await self._gone(self)
        return reply

    def _begin(self, envelope: Envelope | Batch, tag: str) -> Callable[[], None]:
        """Count an exchange until the returned function is called."""
        members = envelope.members if isinstance(envelope, Batch) else [envelope]
        ids = [each.id_bytes for each in members if each.kind is Kind.REQUEST] if "-" in tag else []
        self.busy += 1
        for number in ids:
            self._under_way.setdefault(number, []).append(tag)

        def done() -> None:
            self.busy -= 1
            for number in ids:
                tags = self._under_way[number]
                tags.remove(tag)
                if not tags:
                    del self._under_way[number]

        return done

    async def _upward(self, envelope: Envelope | Batch, member: str, tag: str) -> bytes | None:
        """What a client sent, as it goes to the server; None where the server is not to hear of it."""
        members = envelope.members if isinstance(envelope, Batch) else [envelope]
        edits = [edit for each in members if (edit := self._edits(each, member, tag)) is not None]
        if not edits:
            return None
        if isinstance(envelope, Envelope):
            return await apart(len(envelope.body), edits[0])
        return await apart(len(envelope.body), lambda: b"[" + b",".join(edit() for edit in edits) + b"]")

    def _edits(self, message: Envelope, member: str, tag: str) -> Edits | None:
        match message.kind:
            case Kind.REQUEST:
                return partial(request_upward, message, tag)
            case Kind.RESPONSE:
                return self._response(message, member)
            case Kind.NOTIFICATION:
                return self._notification(message, member)

    def _response(self, response: Envelope, member: str) -> Edits | None:
        """An answer to a request of the server's. One that comes too late, or that nobody asked for, stays here."""
        found = asked(response.id)
        if found is None or found.epoch != self._epoch:
            return None
        if found.tag != EVERYBODY and not belongs(found.tag, member):
            return None
        if not self._requests.answer(found.id, refused=_refuses(response)):
            return None
        if found.tag == EVERYBODY:
            self.listeners.tell_others(member, _withdrawn(str(response.id)))
        return partial(with_id, response.body, found.id)

    def _notification(self, message: Envelope, member: str) -> Edits | None:
        if message.method == "notifications/initialized":
            # It was said when the session was opened.
            return None
        if message.method == PROGRESS:
            found = asked(named(parse(message.body), "progressToken"))
            if found is None or found.epoch != self._epoch:
                return None
            if found.tag != EVERYBODY and not belongs(found.tag, member):
                return None
            return partial(about, message.body, "progressToken", found.id)
        if message.method == CANCELLED:
            number = named(parse(message.body), "requestId")
            text = dump(number)
            whose = self._cancelled(text, member) if isinstance(number, str | int | float) else None
            return partial(about, message.body, "requestId", tagged(whose, text)) if whose else None
        return lambda: message.body

    def _cancelled(self, number: bytes, member: str) -> str | None:
        """The tag of the request that a client cancels; None where it may be one of several clients'."""
        if not member.startswith(MANY):
            return member
        tags = [tag for tag in self._under_way.get(number, ()) if belongs(tag, member)]
        return tags[0] if len(tags) == 1 else None

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
        if len(data) > HUGE:
            raise UpstreamBroken(
                f"The upstream server sent a message above {HUGE} bytes that answers no request."
            )
        try:
            message = parse(data)
        except BadJson:
            return None
        if isinstance(message, dict):
            parts: list[tuple[bytes, Any]] = [(data, message)]
        elif isinstance(message, list):
            spans = await apart(len(data), lambda: list(items(data)))
            parts = [(data[start:end], each) for (start, end), each in zip(spans, message, strict=True)]
        else:
            return None
        found = [await self._message(part, each, tag, streams) for part, each in parts]
        return [each for each in found if each is not None]

    async def _message(self, data: bytes, message: Any, tag: str, streams: int) -> Addressed | None:
        if not isinstance(message, dict):
            return Addressed(data, None)
        tag_of = self._requests.tag_of
        found = await apart(len(data), lambda: downward(data, message, tag, self._epoch, tag_of))
        if found is not None and found.asks is not None:
            self._requests.ask(found.asks, tag, streams)
        return found

    # --- GET --------------------------------------------------------------------------------------------------

    async def _listen(self, request: UpstreamRequest, member: str, silence: float | None) -> UpstreamReply:
        last = header(request.headers, "last-event-id")
        is_general, after = self.listeners.place(last)
        if is_general:
            return await self.listeners.join(member, after, partial(self._open, request, after, silence))
        # The rest of a call's stream, which is that call's alone.
        reply = await self._open(request, last, silence)
        if reply.status != 200 or media_type(reply) != "text/event-stream":
            return reply
        require_plain(reply)
        return EditedStream(reply, partial(self._read_answer, member), self._limits.answer, _nothing)

    async def _open(
        self, request: UpstreamRequest, last_event_id: str | None, silence: float | None
    ) -> UpstreamReply:
        fields = [each for each in request.headers if each[0].lower() != "last-event-id"]
        if last_event_id is not None:
            fields.append(("Last-Event-ID", last_event_id))
        request = replace(request, headers=fields)
        return await self._send(request, b"", silence)


def plain_body(request: UpstreamRequest) -> bytes:
    """The message of a request, also where its client compressed it; ingress has read it so before."""
    coding = (header(request.headers, "content-encoding") or "identity").strip().lower()
    if coding == "identity":
        return request.body
    return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(request.body)


def _withdrawn(number: str) -> bytes:
    """Tell a client that somebody else has answered what it was asked."""
    params = {"requestId": number, "reason": "Another client has answered."}
    return dump({"jsonrpc": "2.0", "method": CANCELLED, "params": params})


def _nothing() -> None:
    return None


def _refuses(response: Envelope) -> bool:
    """Tell whether a client says that it cannot answer a request of this kind at all."""
    error = parse(response.body).get("error") if response.failed else None
    return isinstance(error, dict) and error.get("code") == METHOD_NOT_FOUND
