"""A session as the hot path knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from adapter.errors import AdapterError, LimitReached, UpstreamBroken
from adapter.rules.access.sessions import SessionRecord, SessionState
from adapter.state.port import ABSENT, STALE
from adapter.wire.ambiguity import may_hold
from adapter.wire.envelope import Envelope, Kind, failure, parse, read_envelope

TABLE = "sessions"
"""The table of sessions in the state store."""

MOST = 4096
"""Ids of one session that are remembered; of a session with more every answer counts as guarded."""

SENTENCE = "The answer came after its call had ended, so it cannot be shown. Call the tool again."
LISTED_BEFORE = "The list came after its request had ended, so it cannot be shown. Request it again."


@dataclass(frozen=True, slots=True)
class Guarded:
    """The guarded calls of one session, by the ids that its client gave them.

    ``everything``: it is not known which they were, as for a session of an earlier process.
    """

    everything: bool = True
    _ids: set[str | int | float | None] | None = None

    def plus(self, number: str | int | float | None) -> Guarded:
        """The same calls and one that begins."""
        if self.everything:
            return self
        calls = Guarded(False, set()) if self._ids is None else self
        assert calls._ids is not None, "one without ids was replaced"
        calls._ids.add(number)
        return calls if len(calls._ids) <= MOST else ANY_GUARDED

    def withheld(self, data: bytes) -> bytes:
        """The part of a message on a GET stream that may leave: all but answers of guarded calls."""
        if not (self._ids or self.everything):
            return data
        try:
            message = read_envelope(data)
        except AdapterError:
            # Some client may find an answer in it all the same.
            return b""
        if isinstance(message, Envelope):
            return self._left(message)
        if not any(map(self._concerns, message.members)):
            return data
        return b"[" + b",".join(map(self._left, message.members)) + b"]"

    def _left(self, message: Envelope) -> bytes:
        return (
            failure(UpstreamBroken(SENTENCE), message.id_bytes) if self._concerns(message) else message.body
        )

    def _concerns(self, message: Envelope) -> bool:
        # A response without an id may be that of any call.
        return message.kind is Kind.RESPONSE and (
            self.everything or message.id is None or message.id in (self._ids or ())
        )


def without_lists(data: bytes) -> bytes:
    """The part of a message on a GET stream that may leave if tools are hidden.

    A list of tools that no request waits for may not leave.
    """
    if data.isascii() and b"\\" not in data and b"tools" not in data.lower().translate(None, b"_- \x7f"):
        # No member could be read as ``tools`` in any spelling.
        return data
    try:
        if not may_hold(parse(data), "result", "tools"):
            return data
        message = read_envelope(data)
    except AdapterError:
        # Some client may find a list in it all the same.
        return b""
    if isinstance(message, Envelope) and message.kind is Kind.RESPONSE:
        return failure(UpstreamBroken(LISTED_BEFORE), message.id_bytes)
    return b""


# Shared by most sessions, of which there may be very many.
ANY_GUARDED = Guarded()
NONE_GUARDED = Guarded(everything=False)

UNNAMED = "kept-"
"""How keys of sessions begin that have no id."""

AT_ONCE = 32
"""Streams of one session that are ended in one turn of the loop; each takes about 0.2 milliseconds."""


@dataclass(slots=True, weakref_slot=True)
class Session:
    """A session as far as the hot path needs it. The record in the store has the rest. Times are Unix seconds.

    A full garbage collection looks at each of these, of which there may be very many, and at each object in it that
    could be part of a cycle. So all members of most sessions are text, numbers, or shared.

    ``upstream_id``, ``protocol_version`` and ``generation`` are those of its UpstreamSession. ``version`` is that of
    the row that it was read from or written to; it was right in ``epoch`` (see SessionCache).

    ``idle`` is that of its record. ``asleep``: an idle session that was asked for again; it needs a new upstream
    session before anything is sent.
    ``unnamed``: it has no id, and belongs to all requests of a principal that name none. ``touched``: its ``last_seen``
    is not written yet. ``renewal`` is the one task that replaces its upstream session, while there is one. ``guarded``
    are the calls whose answers have to pass stages. ``streams`` end the answers to its GETs when the session does;
    ``over`` from then on. ``opening_streams`` of these answers are still asked for at the upstream.
    """

    key: str
    server: str
    principal: str
    upstream_id: str | None
    protocol_version: str
    generation: int
    last_seen: float
    created: float = 0.0
    asleep: bool = False
    version: int = ABSENT
    epoch: int = STALE
    unnamed: bool = False
    idle: float | None = None
    in_flight: int = field(default=0, init=False)
    touched: bool = field(default=False, init=False)
    renewal: asyncio.Task[None] | None = field(default=None, init=False, repr=False)
    guarded: Guarded = field(default=ANY_GUARDED, init=False)
    over: bool = field(default=False, init=False)
    opening_streams: int = field(default=0, init=False)
    # Most sessions hold none, and there may be very many of those.
    streams: set[Callable[[], None]] | None = field(default=None, init=False, repr=False)

    def __repr__(self) -> str:
        return f"<Session {self.key[:8]} of {self.server!r}: {self.in_flight} in flight>"

    @property
    def in_use(self) -> bool:
        """True for a session that this process may not forget: something of it is under way, or still to be written."""
        return bool(self.in_flight or self.listens or self.touched or self.renewal is not None)

    @property
    def listens(self) -> bool:
        """True while a GET stream of the session is open, or is being opened."""
        return bool(self.streams or self.opening_streams)

    def follow(self, record: SessionRecord, version: int) -> bool:
        """Be what the record in a row of that version says, which another process may have written; True: another
        upstream session is.
        """
        self.version, upstream = version, record.upstream
        is_renewed = upstream.generation != self.generation
        self.upstream_id, self.generation = upstream.id, upstream.generation
        self.protocol_version = upstream.protocol_version
        self.asleep, self.idle = record.state is SessionState.IDLE, record.times.idle
        return is_renewed

    def hold(self, end: Callable[[], None]) -> None:
        """Have a stream end with the session; ``end`` is idempotent."""
        if self.streams is None:
            self.streams = set()
        self.streams.add(end)

    def release(self, end: Callable[[], None]) -> None:
        """Let go of a stream that has ended by itself."""
        if self.streams is not None:
            self.streams.discard(end)

    def end_streams(self) -> None:
        """End the session's streams; for their clients they end in good order."""
        self.over = True
        if self.streams is not None:
            streams, self.streams = list(self.streams), None
            _end(streams)


def _end(streams: list[Callable[[], None]]) -> None:
    """End some streams, and the others when everybody else had a turn: each wakes who reads it."""
    for _ in range(min(AT_ONCE, len(streams))):
        streams.pop()()
    if streams:
        asyncio.get_running_loop().call_soon(_end, streams)


class RequestsInFlight:
    """The requests in flight in this process. ``limit`` is how many one session may have here; None sets none."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._of_principals: dict[str, int] = {}

    def enter(self, session: Session | None, principal: str, requests: int) -> None:
        """Count requests in flight until ``leave`` is called for them. Raises LimitReached.

        Modern requests have no session and count by principal.
        """
        in_flight = session.in_flight if session else self._of_principals.get(principal, 0)
        if self._limit is not None and in_flight + requests > self._limit:
            raise LimitReached(
                f"{in_flight} calls are running in this session, and sessions.max_in_flight_per_session allows "
                f"{self._limit}; wait until one ends.",
                data={
                    "limit": self._limit,
                    "setting": "sessions.max_in_flight_per_session",
                    "retry_after": 1,
                },
                retry_after=1,
            )
        if session is not None:
            session.in_flight += requests
        else:
            self._of_principals[principal] = in_flight + requests

    def leave(self, session: Session | None, principal: str, requests: int) -> None:
        """Count requests no longer that ``enter`` has counted."""
        if session is not None:
            session.in_flight -= requests
            return
        counts = self._of_principals
        counts[principal] -= requests
        if counts[principal] <= 0:
            del counts[principal]
