"""Messages of a server that writes all of them to one stream, each brought to the request that it belongs to.

Source of the rules: JSON-RPC 2.0 (a response has the id of its request), MCP 2025-11-25, "Progress" (a token is that of
one request) and "Streamable HTTP" (anything else goes to one stream of the client).

Requests that a server was sent and has not answered.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, TypeAlias

from adapter.errors import AdapterError, UpstreamBroken
from adapter.upstream.local.events import CallEvents, EventStream, StreamBounds
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import LocalAnswer, PendingReply, status_of
from adapter.upstream.local.sessions import LocalSession
from adapter.wire.envelope import Envelope, Kind, dump
from adapter.wire.eras import Era
from adapter.wire.line_messages import LineMessage, RpcId, answered, renumbered, token_in, with_subscription
from adapter.wire.shared_ids import CANCELLED, PROGRESS, about
from adapter.wire.sse import encode

Taker: TypeAlias = Callable[["RequestUnderWay", LineMessage], None]


class RequestUnderWay(PendingReply):
    """The reply to one request, which ``given_up`` is told of when nobody waits for it any more.

    ``number`` and ``token`` are its ids at the server, where ``renumbered`` says that the adapter chose them; then
    ``token_bytes`` is the client's token. ``streams``: its answer may be an event stream, whose events are those of
    ``session``. ``taker`` is called with the response in place of the client.
    """

    __slots__ = (
        "_given_up", "era", "id_bytes", "method", "number", "renumbered", "session", "streams", "taker", "token",
        "token_bytes",
    )  # fmt: skip

    def __init__(
        self,
        request: LocalRequest,
        session: LocalSession | None,
        given_up: Callable[[RequestUnderWay], None],
        taker: Taker | None = None,
    ) -> None:
        super().__init__()
        self.method = request.envelope.method
        self.id_bytes = request.id_bytes
        self.era = request.head.era
        self.session = session
        self.streams = request.head.streams
        self.taker = taker
        self.number: RpcId = 0
        self.token: RpcId | None = None
        self.token_bytes: bytes | None = None
        self.renumbered = False
        self._given_up = given_up

    def give_up(self) -> None:
        """See PendingReply."""
        if not self.over:
            self._given_up(self)

    def event(self, message: bytes) -> bytes:
        """A message as an event of its stream, which a session keeps for a client that comes back."""
        if self.session is None:
            return encode(message)
        if self.kept is None:
            self.kept = CallEvents(self.session.sent)
        return self.kept(message)

    def as_sent(self, message: LineMessage) -> bytes:
        """A message of the server's under the ids that the client knows."""
        if not self.renumbered:
            return message.data
        if message.kind is Kind.RESPONSE:
            data = answered(message, self.id_bytes)
            return with_subscription(message._replace(data=data), self.id_bytes)
        if message.method == PROGRESS and self.token_bytes is not None:
            return about(message.data, "progressToken", self.token_bytes)
        return with_subscription(message, self.id_bytes)

    def respond(self, message: LineMessage) -> None:
        """Give the client its response."""
        status = 200 if self.era is Era.LEGACY else status_of(message.code, self.era)
        self.answer(LocalAnswer(self.as_sent(message) if self.renumbered else message.data, status))

    def break_off(self, error: AdapterError) -> None:
        """Give the client a failure."""
        self.fail(error, self.id_bytes)


class RequestsUnderWay:
    """Requests by their ids and progress tokens at the server, in the order in which they were sent."""

    def __init__(self) -> None:
        self._by_number: dict[RpcId, RequestUnderWay] = {}
        self._by_token: dict[RpcId, RequestUnderWay] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[RequestUnderWay]:
        return iter(list(self._by_number.values()))

    @property
    def only(self) -> RequestUnderWay | None:
        """The one request that there is, None where there are others too, or none."""
        return next(iter(self._by_number.values())) if len(self._by_number) == 1 else None

    def __contains__(self, number: RpcId) -> bool:
        return number in self._by_number

    def add(self, request: RequestUnderWay) -> None:
        """Keep a request until it is taken."""
        self._by_number[request.number] = request
        if request.token is not None:
            self._by_token[request.token] = request

    def take(self, number: RpcId | None) -> RequestUnderWay | None:
        """Forget the request of this id and return it, None if there is none."""
        found = None if number is None else self._by_number.pop(number, None)
        if found is not None and found.token is not None and self._by_token.get(found.token) is found:
            del self._by_token[found.token]
        return found

    def get(self, number: RpcId) -> RequestUnderWay | None:
        """The request of this id."""
        return self._by_number.get(number)

    def of(self, message: LineMessage) -> RequestUnderWay | None:
        """The request that a notification names, by its progress token or as a subscription; None if it names none."""
        if message.token is not None:
            return self._by_token.get(message.token)
        return None if message.about is None else self._by_number.get(message.about)

    def streaming(self, session: LocalSession | None) -> list[RequestUnderWay]:
        """The requests of a session whose answer may be a stream, the newest first."""
        found = [each for each in self._by_number.values() if each.session is session and each.streams]
        return found[::-1]

    @property
    def only_session(self) -> LocalSession | None:
        """The session of all requests, None where they are those of several, or there are none."""
        only = None
        for request in self._by_number.values():
            if request.session is not None and request.session is not only:
                if only is not None:
                    return None
                only = request.session
        return only


BOUNDS = StreamBounds(messages=4096, size=1 << 20, waiting=1 << 20)
"""Of each stream to a client, and of what is kept for one that comes back."""

MOST_ABANDONED = 64
"""Requests that go on although their clients have left. The oldest of more is cancelled."""

CROWDED = 256 << 10
"""Unread bytes of a stream from which on its server has to wait."""

OF_CALLS = 30.0
"""Seconds for which the reader of a call's stream may keep the server waiting. Then the call is given up."""

OF_LISTENERS = 10.0
"""The same of a GET stream, which ends then. Its client comes back with the id of the last event."""

UNREAD = "The client read its stream too slowly, so the answer was given up; the call may have run."


_OURS = "mcp-file-adapter"
"""The beginning of an id in place of one that a client uses twice at a time."""


class ServerLine(Protocol):
    """The way to a server and back, as a correlation needs it."""

    def pause(self) -> None:
        """Read nothing more of the server's, until ``resume`` is called."""

    def resume(self) -> None:
        """Read on."""

    def cancel(self, request: RequestUnderWay) -> None:
        """Tell the server that nobody waits for this request any more."""

    def take(self, message: LineMessage) -> None:
        """Take a request or notification that belongs to no request under way."""


class Correlation:
    """The requests that are under way on one line to a server, and their answers.

    The server has to wait while its client reads too slowly. ``shared``: several clients are behind one line, so that
    each request gets an id of the adapter's own, and none may keep the others waiting: a stream that is full ends.
    """

    def __init__(self, line: ServerLine, *, shared: bool = False) -> None:
        self.requests = RequestsUnderWay()
        self._line = line
        self._crowded: dict[EventStream, asyncio.TimerHandle] = {}
        self._shared = shared
        self._numbers = itertools.count(1)
        self._abandoned: deque[RequestUnderWay] = deque()

    def __repr__(self) -> str:
        return f"<Correlation: {len(self.requests)} under way>"

    def fail(self, error: AdapterError) -> None:
        """End every request that is under way with this failure, under its own id."""
        for request in self.requests:
            self.requests.take(request.number)
            request.break_off(error)

    def close(self) -> None:
        """Forget the streams that are watched: the server says nothing more."""
        for alarm in self._crowded.values():
            alarm.cancel()
        self._crowded.clear()

    # --- from clients -------------------------------------------------------------------------------------------

    def numbered(self, request: RequestUnderWay, envelope: Envelope) -> bytes:
        """Give a request its ids at the server. Returns the bytes that the server reads."""
        assert envelope.id is not None, "a request has an id"
        if self._shared:
            return _renumbered(request, envelope, next(self._numbers))
        if envelope.id in self.requests:
            # The answers to both have to be told apart, and the server may go by ids as well.
            return _renumbered(request, envelope, f"{_OURS}-{next(self._numbers)}")
        request.number = envelope.id
        if request.streams:
            request.token = token_in(envelope.body)
        return envelope.body

    def give_up(self, request: RequestUnderWay) -> None:
        """A client has gone or waits no longer. In the legacy era that cancels nothing (MCP 2025-11-25)."""
        if request.method == "initialize" and request.session is not None:
            # It ends with its opening.
            request.session.end()
        elif request.era is Era.LEGACY and not (request.withdrawn or request.overdue):
            self._abandon(request)
        elif self.requests.take(request.number) is not None:
            # The client's own notification follows, where the server knows the request under the same id.
            self._drop(request, tells=request.renumbered or not request.withdrawn)

    def _abandon(self, request: RequestUnderWay) -> None:
        self._abandoned.append(request)
        if len(self._abandoned) > MOST_ABANDONED:
            oldest = self._abandoned.popleft()
            # It may be answered, and its id be that of another request by now.
            if self.requests.get(oldest.number) is oldest:
                self.requests.take(oldest.number)
                self._drop(oldest, tells=True)

    def _drop(self, request: RequestUnderWay, *, tells: bool) -> None:
        if tells:
            self._line.cancel(request)
        request.end()

    # --- from the server ----------------------------------------------------------------------------------------

    def receive(self, message: LineMessage) -> RequestUnderWay | None:
        """Bring a message to where it belongs. Returns the request that it answers, None where it answers none."""
        if message.kind is Kind.RESPONSE:
            return self._settled(message)
        request = self.requests.of(message)
        # A legacy server cancels requests of its own only, whose ids may be those of a client's as well.
        if request is None or (message.method == CANCELLED and request.era is Era.LEGACY):
            self._line.take(message)
        elif message.method == CANCELLED:
            # The server ends a subscription (MCP 2026-07-28, "Subscriptions").
            self.requests.take(request.number)
            request.end()
        else:
            self.pass_on(request, message)
        return None

    def _settled(self, message: LineMessage) -> RequestUnderWay | None:
        number = message.number
        if number is None and message.code is not None and (only := self.requests.only) is not None:
            # An error without an id is that of the only request which it can be about.
            number = None if only.renumbered else only.number
        request = self.requests.take(number)
        if request is None:
            return None
        if request.taker is not None:
            request.taker(request, message)
        else:
            request.respond(message)
        return request

    def pass_on(self, request: RequestUnderWay, message: LineMessage) -> None:
        """Send a message ahead of the answer of a request. A client that leaves too much unread loses its answer."""
        if request.offer(request.as_sent(message), BOUNDS):
            self._watch(request.stream, partial(self._break, request), OF_CALLS)
        else:
            self._break(request)

    def _break(self, request: RequestUnderWay) -> None:
        if self.requests.take(request.number) is not None:
            self._line.cancel(request)
            request.break_off(UpstreamBroken(UNREAD))

    def tell(self, session: LocalSession, data: bytes) -> None:
        """Send a session a message that belongs to none of its requests.

        It goes to the GET stream; where none is open, to the newest request of a client that can be answered by a
        stream, else it waits for one.
        """
        if session.listener is None:
            requests = self.requests.streaming(session)
            if requests:
                self.pass_on(requests[0], LineMessage(Kind.NOTIFICATION, data))
                return
        session.send(data)
        stream = session.listener
        if stream is not None:
            self._watch(stream, stream.end, OF_LISTENERS)

    # --- clients that read more slowly than their server writes -------------------------------------------------

    def _watch(self, stream: EventStream | None, give_up: Callable[[], None], patience: float) -> None:
        """Look at a stream to which something was added: while it is crowded the server is not read. ``give_up`` ends
        one that was crowded for ``patience`` seconds.
        """
        if self._shared or stream is None or stream.over or stream.unread_size < CROWDED:
            return
        if stream in self._crowded:
            return
        if not self._crowded:
            self._line.pause()
        stream.emptied = partial(self._emptied, stream)
        self._crowded[stream] = asyncio.get_running_loop().call_later(patience, give_up)

    def _emptied(self, stream: EventStream) -> None:
        alarm = self._crowded.pop(stream, None)
        if alarm is not None:
            alarm.cancel()
            stream.emptied = None
            if not self._crowded:
                self._line.resume()


def _renumbered(request: RequestUnderWay, envelope: Envelope, number: RpcId) -> bytes:
    data, request.token_bytes = renumbered(envelope, dump(number))
    request.number, request.renumbered = number, True
    request.token = None if request.token_bytes is None else number
    return data
