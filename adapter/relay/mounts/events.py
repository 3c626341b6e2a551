"""Answers of one server of a merged mount on their way to the client: ids of the server's own are told apart."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from adapter.errors import MessageTooLong
from adapter.relay.call.get_streams import ACKNOWLEDGED
from adapter.relay.exchange import ClientResponse, Flow
from adapter.relay.http_api.callers import pieces_of
from adapter.relay.replies import EVENT_STREAM, media_type, too_large
from adapter.relay.server import Server
from adapter.rules.access.headers import of_changed_body
from adapter.rules.mounts.member_ids import downward, is_news, is_plain
from adapter.rules.mounts.uris import names_uri
from adapter.upstream.port import Sink
from adapter.wire.sse import SseEvent, SseReader, replace_data, replace_id

_HAS_ID = re.compile(rb"(?:^|[\r\n])id")

News = Callable[[str], None]
"""Is given the id of a server that says that one of its lists has changed."""


Uris = Callable[[str, bytes], bytes]
"""Gives a message of the server of that id with the URIs that clients of the mount know."""


def same_uris(server: str, data: bytes) -> bytes:  # noqa: ARG001 (one of Uris)
    """The message as it is: where one server is all there is."""
    return data


class MemberEvents:
    """Reads the stream of one server, and gives what clients may have of it. ``news``: see News, ``uris``: see Uris.

    ``subscription``: the stream is one part of a client's subscription, which the mount acknowledges and ends itself.
    ``marked``: see ``downward``.
    """

    def __init__(
        self,
        server: Server,
        news: News,
        uris: Uris = same_uris,
        marked: str | None = None,
        *,
        subscription: bool = False,
    ) -> None:
        self._marked = marked
        self._subscription = subscription
        self._id = server.id
        self._limit = server.rules.answer_limit
        self._news = news
        self._uris = uris
        self._reader = SseReader(self._limit)

    @property
    def last_id(self) -> bytes:
        """The id of the last event, as the server gave it."""
        return self._reader.last_id

    @property
    def retry(self) -> int | None:
        """Milliseconds after which the server wants its stream to be asked for again."""
        return self._reader.retry

    @property
    def rest(self) -> bytes:
        """What the stream ended with that is no whole event."""
        return self._reader.rest

    def feed(self, chunk: bytes) -> bytes:
        """The events that a chunk completes, as the client may have them. Raises AnswerTooLarge."""
        if (
            not (self._subscription or self._reader.inside)
            and chunk.endswith(b"\n\n")
            and is_plain(chunk)
            and not names_uri(chunk)
            and not _HAS_ID.search(chunk)
        ):
            # Whole events behind whole events, of which none has to change: most answers are one such chunk.
            return chunk
        try:
            events = self._reader.feed(chunk)
        except MessageTooLong:
            raise too_large(self._limit) from None
        return b"".join(map(self._told_apart, events))

    def _told_apart(self, event: SseEvent) -> bytes:
        raw = event.raw
        if event.data:
            if self._subscription and _frames_subscription(event.data):
                return b""
            if is_news(event.data):
                self._news(self._id)
            data = self._uris(self._id, downward(self._id, event.data, self._marked))
            if data is not event.data:
                raw = replace_data(event, data)
        if event.id:
            raw = replace_id(SseEvent(raw, event.data, lead=event.lead), f"{self._id}.".encode() + event.id)
        return raw

    async def whole(self, answer: ClientResponse) -> AsyncGenerator[bytes, None]:
        """The whole events of an answer, as they come. Raises as its body does."""
        async for chunk in pieces_of(answer):
            if piece := self.feed(chunk):
                yield piece

    async def pieces(self, answer: ClientResponse) -> AsyncGenerator[bytes, None]:
        """The body of an answer, piece by piece. Raises as that does."""
        async with aclosing(self.whole(answer)) as events:
            async for piece in events:
                yield piece
        if self.rest:
            yield self.rest

    async def pour(self, body: Flow, sink: Sink) -> None:
        """The same for a body that can be poured."""
        await body.pour(_ToldApart(self, sink))
        if self.rest and not sink.put(self.rest):
            await sink.drained()


def _frames_subscription(data: bytes) -> bool:
    """Tell whether a message is the first or the last one of a subscription."""
    return ACKNOWLEDGED.encode() in data or b'"method"' not in data


class _ToldApart:
    """A Sink before another one."""

    def __init__(self, events: MemberEvents, sink: Sink) -> None:
        self._events = events
        self._sink = sink

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Sink."""
        piece = self._events.feed(chunk)
        return self._sink.put(piece, more=more) if piece else True

    async def drained(self) -> None:
        """See Sink."""
        await self._sink.drained()


def told_apart(
    answer: ClientResponse, server: Server, news: News, uris: Uris = same_uris, marked: str | None = None
) -> ClientResponse:
    """The answer of a server as the client of the mount may have it; ``marked``: see ``downward``."""
    body = answer.body
    # Most answers are such; no line of JSON begins with a bare word.
    if isinstance(body, bytes) and is_plain(body) and not names_uri(body) and not _HAS_ID.search(body):
        return answer
    streams = media_type(answer.headers) == EVENT_STREAM
    if isinstance(body, bytes):
        if streams:
            events = MemberEvents(server, news, uris, marked)
            answer.body = events.feed(body) + events.rest
        else:
            answer.body = uris(server.id, downward(server.id, body, marked))
        if answer.body is not body and answer.body != body:
            answer.headers, answer.length = of_changed_body(answer.headers), None
        return answer
    if streams:
        events = MemberEvents(server, news, uris, marked)
        inner = ClientResponse(answer.status, answer.headers, body)
        if isinstance(body, Flow):
            poured = body
            answer.body = Flow(lambda: events.pieces(inner), lambda sink: events.pour(poured, sink))
        else:
            answer.body = events.pieces(inner)
        answer.length = None
    return answer
