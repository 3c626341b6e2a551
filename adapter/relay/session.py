"""A session as the hot path knows it, and the limits of sessions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from adapter.relay.replays import Guarded
from adapter.upstream.port import UpstreamReply

KEPT = "kept-"
"""How keys of sessions begin that have no id."""


@dataclass(slots=True)
class Session:
    """A session as far as the hot path needs it. The record in the store has the rest.

    ``kept``: it has no id, and belongs to all requests of a principal that name none.
    ``asleep``: a tombstone that was asked for again; it needs a new upstream session before anything is sent.
    ``renewal`` is the one task that replaces its upstream session, while there is one. ``guarded`` are its calls whose
    answers have to pass stages. ``streams`` are the answers to its GETs, which end when the session does; ``over`` from
    then on.
    """

    key: str
    server: str
    principal: str
    upstream_session: str | None
    protocol_version: str
    generation: int
    last_seen: float
    created: float = 0.0
    asleep: bool = False
    kept: bool = False
    in_flight: int = 0
    touched: bool = False
    renewal: asyncio.Task[None] | None = field(default=None, repr=False)
    guarded: Guarded = field(default_factory=Guarded)
    over: bool = False
    # Most sessions hold one or none, and there may be very many of those.
    streams: tuple[UpstreamReply, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"<Session {self.key[:8]} of {self.server!r}: {self.in_flight} in flight>"

    def hold(self, stream: UpstreamReply) -> None:
        """Have a stream end with the session."""
        self.streams = (*self.streams, stream)

    def release(self, stream: UpstreamReply) -> None:
        """Let go of a stream that has ended by itself."""
        self.streams = tuple(each for each in self.streams if each is not stream)

    def end_streams(self) -> None:
        """End the session's streams; for their clients they end in good order."""
        self.over = True
        streams, self.streams = self.streams, ()
        for stream in streams:
            stream.abort()


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Every None means: no limit. Times in seconds."""

    max_active: int | None = None
    max_in_flight: int | None = None
    idle_ttl: float | None = None
    allow_revival: bool = True
    tombstone_ttl: float = 86400.0
