"""Answers of one server of a merged mount on their way to the client: ids of the server's own are told apart."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from adapter.errors import BadJson, MessageTooLong, UpstreamBroken
from adapter.relay.background import in_turns, nothing
from adapter.relay.call.get_streams import ACKNOWLEDGED
from adapter.relay.exchange import ClientResponse, Flow
from adapter.relay.http_api.callers import pieces_of, whole_body
from adapter.relay.mounts.asks import Number
from adapter.relay.mounts.sessions import MountSession
from adapter.relay.replies import EVENT_STREAM, LARGE, is_encoded, media_type, too_large
from adapter.relay.server import Server
from adapter.rules.access.access_rules import ListShape
from adapter.rules.access.headers import of_changed_body
from adapter.rules.mounts.lists import changes_in
from adapter.rules.mounts.member_ids import HINTS, downward
from adapter.rules.mounts.uris import UriTable
from adapter.upstream.port import Sink
from adapter.wire.envelope import dump, parse, read_response
from adapter.wire.outline import skeleton
from adapter.wire.sse import SseEvent, SseReader, replace_data, replace_id

_METHOD = HINTS[0]
_HINTS = (*HINTS[1:], b"\nid", b"\rid")
_FIRST_ID = (b"id", b"\xef\xbb\xbfid")
"""A stream may begin with the mark of its coding."""

_USUAL = (b'"method":"notifications/progress"', b'"method":"notifications/message"')
"""What servers say while they work on a request; their ids are the client's own."""

News = Callable[[str, ListShape], None]
"""Is given the id of a server that says that a list has changed, and which."""


Uris = Callable[[], UriTable | None]
"""Gives the URIs that clients of the mount know; None where one server is all there is."""


def is_plain(data: bytes, own: Number) -> bool:
    """Tell whether nothing in whole messages or events has to change, or to be looked into: most answers to the request
    ``own`` are such.

    No line of JSON begins with a bare word, so that it needs not be known what of the two they are.
    """
    # In one step of the interpreter: every answer comes by here.
    if max(map(data.find, _HINTS)) >= 0:
        return False
    ids = data.lower().count(b'"id"')
    if _METHOD in data and (ids or data.count(_METHOD) != sum(map(data.count, _USUAL))):
        return False
    if ids:
        said = b'"id":%d' % own if type(own) is int else b'"id":' + dump(own)
        if ids > 1 or not (said + b"," in data or said + b"}" in data):
            return False
    return not data.startswith(_FIRST_ID)


@dataclass(eq=False, repr=False)
class MemberEvents:
    """Reads the stream of one server, and gives what clients may have of it. ``news``: see News, ``uris``: see Uris.

    Clients tell answers by their ids alone, so the stream carries no answer but that to the request ``own``, which it
    answers itself. One without such a request, in ``session``, carries answers only if it was ``resumed``, and none
    that another server is asked for. ``subscription``: it is one part of a client's subscription, which the mount
    acknowledges itself. As a Sink it is before that of ``pour``.
    """

    server: Server
    news: News
    uris: Uris = nothing
    session: MountSession | None = None
    own: Number = None
    resumed: bool = field(default=False, kw_only=True)
    subscription: bool = field(default=False, kw_only=True)
    _inside: bool = field(default=False, init=False)
    _unread: bytes = field(default=b"", init=False)
    _sink: Sink = field(init=False)

    def __post_init__(self) -> None:
        self._id, self._limit = self.server.id, self.server.rules.answer_limit
        self.reader = SseReader(self._limit)

    async def feed(self, chunk: bytes) -> bytes:
        """The events that a chunk completes, as the client may have them. Raises AnswerTooLarge."""
        try:
            events = self.reader.feed(chunk)
        except MessageTooLong:
            raise too_large(self._limit) from None
        self._inside = self.reader.inside
        return b"".join([await self._told_apart(event) for event in events])

    async def _told_apart(self, event: SseEvent) -> bytes:
        raw = event.raw
        if event.data:
            data = await self.judged(event.data)
            if data is None or (self.subscription and ACKNOWLEDGED.encode() in data):
                return b""
            for shape in changes_in(event.data):
                self.news(self._id, shape)
            if data is not event.data:
                raw = replace_data(event, data)
        if event.id:
            raw = replace_id(SseEvent(raw, event.data, lead=event.lead), f"{self._id}.".encode() + event.id)
        return raw

    async def judged(self, data: bytes) -> bytes | None:
        """A message as the client may have it; None for an answer that does not belong here, and for several in one."""
        try:
            text, message = await _read(data)
        except BadJson:
            text, message = data, None
        if data.lstrip()[:1] == b"[" or (isinstance(message, dict) and not self._belongs(text, message)):
            return None
        marked = None if self.session is None else self.session.marked(self._id)
        return downward(self._id, data, marked, self.uris)

    def _belongs(self, text: bytes, message: dict[str, Any]) -> bool:
        """Tell whether a message is no answer, or one that this stream may carry."""
        if any(name != "id" and name.lower() == "id" for name in message):
            return False  # readers in Go take it for an id
        if isinstance(message.get("method"), str):
            return True
        # Some clients pass over a method that is none.
        message.pop("method", None)
        response = read_response(text, message)
        number = None if response is None else response.id
        if number is None or self.own is not None:
            return number in (None, self.own)
        session = self.session
        return self.resumed and session is not None and not session.asks_another(self._id, number)

    async def pieces(self, answer: ClientResponse, *, torn: bool = True) -> AsyncGenerator[bytes, None]:
        """The body of an answer, piece by piece; ``torn``: also what it ends with that is no whole event. Raises as
        that does.
        """
        async for chunk in pieces_of(answer):
            if piece := await self.feed(chunk):
                yield piece
        if torn and self.reader.rest:
            yield self.reader.rest

    async def pour(self, body: Flow, sink: Sink) -> None:
        """The same for a body that can be poured."""
        self._sink = sink
        await body.pour(self)
        if (rest := self.reader.rest) and not sink.put(rest):
            await sink.drained()

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Sink."""
        if not self._inside and chunk.endswith(b"\n\n") and is_plain(chunk, self.own):
            # Whole events behind whole events, of which none has to change: most answers are such chunks.
            return self._sink.put(chunk, more=more)
        self._unread = chunk
        return False

    async def drained(self) -> None:
        """See Sink."""
        chunk, self._unread = self._unread, b""
        if chunk:
            piece = await self.feed(chunk)
            if not piece or self._sink.put(piece):
                return
        await self._sink.drained()


async def _read(data: bytes) -> tuple[bytes, Any]:
    """A message as text and as a value, without what it carries where it is long or deep. Raises BadJson."""
    if len(data) <= LARGE:
        with suppress(BadJson):
            return data, parse(data)
    text = await in_turns(skeleton(data))
    return text, parse(text)


async def told_apart(
    answer: ClientResponse,
    server: Server,
    news: News,
    uris: Uris = nothing,
    session: MountSession | None = None,
    own: Number = None,
) -> ClientResponse:
    """The answer of a server to the request ``own`` as the client of the mount may have it. What is no stream is judged
    whole, however long it is: a server could name another's request behind any number of bytes.

    Raises UpstreamBroken where it answers another request or is compressed, and AnswerTooLarge.
    """
    body = answer.body
    if is_encoded(answer.headers):
        if not isinstance(body, bytes):
            await body.aclose()
        raise UpstreamBroken(
            f"The server {server.id} compressed an answer although no compression was requested."
        )
    streams = media_type(answer.headers) == EVENT_STREAM
    if not (streams or isinstance(body, bytes)):
        answer.body = body = await whole_body(answer, server.rules.answer_limit)
    events = MemberEvents(server, news, uris, session, own)
    if isinstance(body, Flow):
        inner = ClientResponse(answer.status, answer.headers, body)
        answer.body, answer.length = Flow(partial(events.pieces, inner), partial(events.pour, body)), None
    elif not isinstance(body, bytes):
        answer.body, answer.length = events.pieces(ClientResponse(answer.status, answer.headers, body)), None
    else:
        said = await events.feed(body) + events.reader.rest if streams else await events.judged(body)
        if said is None and answer.status < 400:
            raise UpstreamBroken(f"The server {server.id} answered a request that it was not sent.")
        if said is not None and said != body:
            answer.body, answer.length = said, None
            answer.headers = of_changed_body(answer.headers)
    return answer
