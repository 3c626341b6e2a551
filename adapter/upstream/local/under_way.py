"""Requests that a server was sent and has not answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from adapter.errors import AdapterError
from adapter.upstream.local.messages import LocalAnswer, status_of
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import CallEvents, LocalSession
from adapter.wire.envelope import Kind
from adapter.wire.eras import Era
from adapter.wire.line_messages import LineMessage, RpcId, answered, with_subscription
from adapter.wire.shared_ids import PROGRESS, about
from adapter.wire.sse import encode

Taker: TypeAlias = Callable[["RequestUnderWay", LineMessage], None]


class RequestUnderWay:
    """One request of ``method``, whose id the client spelled as ``id_bytes``.

    ``number`` and ``token`` are its ids at the server, where ``renumbered`` says that the adapter chose them; then
    ``token_bytes`` is the client's token. ``streams``: its answer may be an event stream, whose events are those of
    ``session``. ``taker`` is called with the response in place of the client.
    """

    __slots__ = (
        "_events", "era", "id_bytes", "method", "number", "renumbered", "reply", "session", "streams", "taker",
        "token", "token_bytes",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        id_bytes: bytes,
        era: Era,
        session: LocalSession | None,
        streams: bool,
        taker: Taker | None,
    ) -> None:
        self.method = method
        self.id_bytes = id_bytes
        self.era = era
        self.session = session
        self.streams = streams
        self.taker = taker
        self.reply: PendingReply
        self.number: RpcId = 0
        self.token: RpcId | None = None
        self.token_bytes: bytes | None = None
        self.renumbered = False
        self._events: CallEvents | None = None

    def event(self, message: bytes) -> bytes:
        """A message as an event of its stream, which a session keeps for a client that comes back."""
        if self.session is None:
            return encode(message)
        if self._events is None:
            self._events = CallEvents(self.session)
        return self._events(message)

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

    def answer(self, message: LineMessage) -> None:
        """Give the client its response."""
        status = 200 if self.era is Era.LEGACY else status_of(message.code, self.era)
        self.reply.answer(LocalAnswer(self.as_sent(message) if self.renumbered else message.data, status))
        if self._events is not None:
            self._events.close()

    def fail(self, error: AdapterError) -> None:
        """Give the client a failure."""
        self.reply.fail(error, self.id_bytes)
        self.close()

    def close(self) -> None:
        """Note that nothing more comes for it."""
        if self._events is not None:
            self._events.close()


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

    def of_session(self, session: LocalSession) -> bool:
        """Tell whether a session has requests that are not answered."""
        return any(each.session is session for each in self._by_number.values())
