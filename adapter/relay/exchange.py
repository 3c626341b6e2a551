"""One JSON-RPC request and everything that comes back for it, as the relay carries it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from adapter.errors import AdapterError
from adapter.relay.background import nothing
from adapter.relay.server import Server
from adapter.rules.access.headers import SharedFields
from adapter.rules.access.principals import NOBODY, Caller, Scope
from adapter.rules.calls.request_outcomes import RequestOutcome
from adapter.rules.calls.rounds import is_repeatable
from adapter.upstream.port import Headers, Sink
from adapter.wire.envelope import REQUEST, Batch, Envelope
from adapter.wire.eras import Era

JSON = ("Content-Type", "application/json")
"""The field of an answer of the adapter's own."""

POST_FIELDS = frozenset(
    {"accept", "accept-encoding", "content-type", "content-encoding", "mcp-protocol-version", "last-event-id"}
)
"""Fields in which a client speaks of its own POST (lower case); the adapter's own requests leave them out."""

LATEST_LEGACY = "2025-11-25"
"""The legacy era's last version: what the adapter speaks where none has been negotiated."""

# Any: sessions belong to a wing, which this module does not know.
Renewed = Callable[["ClientRequest", Any], Awaitable[None]]
"""Is given the ask it belongs to and its session: one that kept the ask would keep its body until the collector comes
by.
"""


class Sender(NamedTuple):
    """The facts that are the same for all requests with one head on one connection: who sends, and in which session.

    ``session_id`` is the client's own, of the legacy era. ``caller`` is the principal as stages may know it. ``base``
    is the URL under which the client knows the adapter, without a slash at its end. ``party`` are those who may share
    what the server says outside of sessions; empty: the principal.
    """

    era: Era
    principal: str
    session_id: str | None = None
    version: str | None = None
    last_event_id: str | None = None
    caller: Caller = NOBODY
    base: str = ""
    party: str = ""


@dataclass(slots=True)
class ClientRequest:
    """One HTTP request to a mount, as ingress read it: checked, authenticated, its headers filtered.

    ``headers`` are the ones that may go upstream, ``query`` is that of the request's target, as it goes upstream.

    What is read of its message comes later: ``envelope`` is None for GET and DELETE; ``body`` is what the client sent,
    byte for byte; ``encoded`` says that it is compressed, so that ``envelope.body`` differs from it.
    ``renewed`` is called with it and its session before it is sent in a new upstream session, and may raise
    AdapterError. ``judged`` are the calls in it that the guard judged, and will then judge again.
    ``sent``, where there is one, is called once the message is on its way for good, as is ``let_go``.
    ``scope`` is that of the pins by which the guard judges its calls, None where it judges none. ``listens``: see
    UpstreamRequest. ``renews``: a 404 says that the upstream has lost the session, and not that it lacks the stream.
    ``opens`` is the id of the session that an ``initialize`` opens, None for a random one; ``idle`` is that of its
    record.
    """

    server: Server
    method: str
    sender: Sender
    headers: list[tuple[str, str]]
    query: str = ""
    envelope: Envelope | Batch | None = field(default=None, init=False)
    body: bytes = field(default=b"", init=False)
    encoded: bool = field(default=False, init=False)
    renewed: Renewed | None = field(default=None, init=False)
    judged: tuple[Envelope, ...] = field(default=(), init=False)
    scope: Scope | None = field(default=None, init=False)
    sent: Callable[[], None] | None = field(default=None, init=False)
    listens: bool = field(default=True, init=False)
    renews: bool = field(default=True, init=False)
    opens: str | None = field(default=None, init=False)
    idle: float | None = field(default=None, init=False)

    def with_message(
        self, envelope: Envelope | Batch, body: bytes, headers: list[tuple[str, str]]
    ) -> ClientRequest:
        """Another message of the same sender, which is not compressed."""
        other = ClientRequest(self.server, self.method, self.sender, headers, self.query)
        other.envelope, other.body = envelope, body
        other.scope, other.sent = self.scope, self.sent
        return other

    def repeatable(self) -> bool:
        """Tell whether the request may be sent twice; a GET may, for it only reads."""
        if self.envelope is None:
            return True
        guard, scope = self.server.stages.guard, self.scope
        known = None if guard is None or scope is None else partial(guard.repeatable, scope.id)
        return is_repeatable(self.envelope, known)

    def let_go(self) -> None:
        """Keep nothing of a message that has been sent and is not sent again, and say so to ``sent``."""
        sent, self.sent = self.sent, None
        self.body = b""
        if self.envelope is not None:
            self.envelope.shrink()
        if sent is not None:
            sent()


class Flow(AsyncGenerator[bytes, None]):
    """Pieces as they come that can also be poured, which wakes nobody for each of them.

    Whoever has it does one or the other, so what is put around the pieces is put around all there is. Most are poured,
    so ``begin`` makes the pieces only when the first of them is asked for.
    """

    __slots__ = ("_begin", "_pieces", "pour")

    def __init__(
        self, begin: Callable[[], AsyncGenerator[bytes, None]], pour: Callable[[Sink], Awaitable[None]]
    ) -> None:
        self._begin = begin
        self._pieces: AsyncGenerator[bytes, None] | None = None
        self.pour = pour
        """Hands all pieces on to a sink; raises as they do, and as the sink does."""

    def _begun(self) -> AsyncGenerator[bytes, None]:
        if self._pieces is None:
            self._pieces = self._begin()
        return self._pieces

    async def asend(self, value: None) -> bytes:
        return await self._begun().asend(value)

    async def athrow(self, *error: Any) -> bytes:
        return await self._begun().athrow(*error)

    async def aclose(self) -> None:
        if self._pieces is not None:
            await self._pieces.aclose()


@dataclass(slots=True)
class ClientResponse:
    """The answer to the client: a body that is whole, or pieces as they come, which may be a Flow.

    The code that takes it calls ``close`` when the last byte has left or the client has gone. An AdapterError
    that is raised out of ``pieces`` means: the head has left and the body cannot be completed, so break it off.
    ``last_words`` gives the bytes that complete a stream which is cut for that failure, None if no bytes can.
    ``wait_at_least`` allows the upstream to be silent for more seconds than its read timeout; None for no stream.
    ``outcome`` is what the answer has told when it was complete, None where nobody looked or all was well.
    """

    status: int
    headers: Headers
    body: bytes | AsyncGenerator[bytes, None]
    length: int | None = None
    release: Callable[[], None] = field(default=nothing)
    last_words: Callable[[AdapterError], Awaitable[bytes]] | None = None
    wait_at_least: Callable[[float], None] | None = None
    outcome: RequestOutcome | None = None

    @property
    def holds(self) -> bool:
        """True where ``close`` has something to let go of."""
        return self.release is not nothing or not isinstance(self.body, bytes)

    async def close(self) -> None:
        try:
            if not isinstance(self.body, bytes):
                await self.body.aclose()
        finally:
            self.release()


class Exchanges(Protocol):
    """The entrance of the relay, be it the relay itself or the one that observes it."""

    async def handle(self, ask: ClientRequest) -> ClientResponse:
        """See Relay."""

    @property
    def end(self) -> Callable[[ClientRequest, float], Awaitable[ClientResponse]]:
        """See Relay."""


def requests_of(envelope: Envelope | Batch | None) -> list[Envelope]:
    """The JSON-RPC requests among what a client sent: those that wait for an answer."""
    if isinstance(envelope, Batch):
        return [member for member in envelope.members if member.kind is REQUEST]
    return [envelope] if envelope is not None and envelope.kind is REQUEST else []


def forwardable(headers: Headers, *, drop: frozenset[str]) -> list[tuple[str, str]]:
    """``headers`` without the fields named in ``drop`` (lower case)."""
    return [field for field in headers if field[0].lower() not in drop]


def asking_plain(
    headers: list[tuple[str, str]], *, drop: frozenset[str] = frozenset()
) -> list[tuple[str, str]]:
    """``headers`` with the wish for an answer that can be read as it comes, and without ``drop`` (lower case). Shared
    ones of which nothing is dropped give the same each time.
    """
    if type(headers) is SharedFields and not drop:
        known: SharedFields | None = headers.derived.get(asking_plain)
        if known is None:
            known = headers.derived[asking_plain] = SharedFields(asking_plain([*headers]))
        return known
    unwanted = drop | {"accept-encoding"}
    plain = [field for field in headers if field[0].lower() not in unwanted]
    plain.append(("Accept-Encoding", "identity"))
    return plain


def silence_of(ask: ClientRequest, requests: list[Envelope]) -> float | None:
    """The longest silence (seconds) that any of the requests allows; None: for ever."""
    if len(requests) == 1:
        return ask.server.read_timeout_of(requests[0].method, requests[0].name)
    allowed = [ask.server.read_timeout_of(request.method, request.name) for request in requests]
    return None if None in allowed else max(seconds for seconds in allowed if seconds is not None)


def both(first: Callable[[], object], second: Callable[[], object]) -> Callable[[], None]:
    """One release out of two, in this order."""

    def release() -> None:
        first()
        second()

    return release
