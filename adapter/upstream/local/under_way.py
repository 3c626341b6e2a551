"""Requests that a server was sent and has not answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from adapter.errors import AdapterError
from adapter.upstream.local.events import CallEvents
from adapter.upstream.local.messages import LocalAnswer, status_of
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession
from adapter.wire.envelope import Kind
from adapter.wire.eras import Era
from adapter.wire.line_messages import LineMessage, RpcId, answered, with_subscription
from adapter.wire.shared_ids import PROGRESS, about
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
