"""Connections for the next exchange: the one used last, else a new one, else a place in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from adapter.errors import UpstreamUnreachable
from adapter.upstream.connection import Connection
from adapter.upstream.port import unreachable
from adapter.upstream.timeouts import ExchangeLimit

Open = Callable[[Callable[[Connection], None], Callable[[Connection], None]], Awaitable[Connection]]
"""Opens a connection that calls the first function when it is free again and the second when it is gone."""

LONG_CALL = 10.0
"""Seconds after which an answer that is still coming in counts as a stream, where calls need its place."""

SWEEP = 1.0
"""Seconds between two looks for idle connections that are too old."""


@dataclass(eq=False, repr=False, slots=True)
class Pool:
    """Connections for exchanges of several kinds, each with places of its own.

    A connection is opened only where none is idle, so there are never more than all places together. How many lie idle
    follows from use: each goes when its server keeps it no longer, after ``idle_ttl`` seconds at the latest. Last in,
    first out: what is not needed grows old at the other end.

    Calls whose answers have been coming in for ``long_call`` seconds move to the places of ``streams`` where those of
    calls are all taken.
    """

    connect: Open
    idle_ttl: float = field(kw_only=True)
    streams: ExchangeLimit[Connection] = field(kw_only=True)
    long_call: float = field(default=LONG_CALL, kw_only=True)
    _moved_at: float = field(default=0.0, init=False)
    _alive: set[Connection] = field(default_factory=set, init=False)
    _idle: dict[Connection, None] = field(default_factory=dict, init=False)
    """Those that wait for work, the one used last at the end."""
    opened: int = field(default=0, init=False)
    """Connections that were opened."""
    kept: int = field(default=0, init=False)
    """Exchanges that found a connection of an earlier one."""
    _sweep: asyncio.TimerHandle | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)
    _empty: asyncio.Future[None] | None = field(default=None, init=False)

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def active(self) -> int:
        return len(self._alive) - len(self._idle)

    async def take(self, places: ExchangeLimit[Connection], *, fresh: bool = False) -> Connection:
        """A connection for one exchange in one of ``places``, one that was never used if ``fresh``.

        Raises UpstreamUnreachable when none can be opened, and LimitReached when no place became free in time.
        """
        if not fresh and (idle := self.idle_connection(places)) is not None:
            return idle
        if self._closed:
            raise closed()
        if places.taken >= places.limit and places is not self.streams:
            self._move_long_calls(places)
        if places.taken < places.limit:
            places.taken += 1
        elif (given := await places.turn(self._put_back)) is not None:
            self.kept += 1
            return given
        if fresh and self._idle:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.abort()
        return await self._opened(places)

    def idle_connection(self, places: ExchangeLimit[Connection]) -> Connection | None:
        """The connection that was used last, for one exchange, if one is idle. Nearly every call finds one here."""
        while self._idle and places.taken < places.limit:
            connection, _ = self._idle.popitem()
            now = connection.loop.time()
            if connection.usable(now):
                places.taken += 1
                self.kept += 1
                connection.places, connection.taken_at = places, now
                return connection
            connection.abort()
        return None

    async def close(self) -> None:
        """Drop every connection and wait until their descriptors are free."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._idle.clear()
        for connection in tuple(self._alive):
            connection.abort()
        if self._alive:
            if self._empty is None:
                self._empty = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._empty)

    async def _opened(self, places: ExchangeLimit[Connection]) -> Connection:
        """A new connection in a place that is already counted as taken."""
        try:
            if self._closed:
                raise closed()
            connection = await self.connect(self._put_back, self._forget)
        except BaseException:
            places.free()
            raise
        if connection.gone:
            places.free()
            raise unreachable("it closed the connection as soon as it was open")
        connection.places, connection.taken_at = places, connection.loop.time()
        self._alive.add(connection)
        self.opened += 1
        if self._closed:
            connection.abort()
            raise closed()
        return connection

    def _move_long_calls(self, places: ExchangeLimit[Connection]) -> None:
        """Count calls whose answers have been coming in for long as streams, as far as those have places."""
        now = asyncio.get_running_loop().time()
        if now < self._moved_at + SWEEP:
            return
        self._moved_at = now
        streams = self.streams
        for connection in tuple(self._alive):
            if streams.taken >= streams.limit:
                return
            long = connection.streams and now - connection.taken_at > self.long_call
            if long and connection.places is places:
                connection.places = streams
                streams.taken += 1
                places.free()

    def _put_back(self, connection: Connection) -> None:
        places, loop = connection.places, connection.loop
        assert places is not None, "only a connection that was taken is put back"
        now = loop.time()
        keeps = connection.keeps
        connection.stale_at = now + (keeps if keeps < self.idle_ttl else self.idle_ttl)
        if self._closed or now >= connection.stale_at:
            connection.abort()
            return
        if places.queue and places.give(connection):
            connection.taken_at = now
            return
        connection.places = None
        places.taken -= 1
        self._idle[connection] = None
        if self._sweep is None:
            self._sweep = loop.call_later(SWEEP, self._close_aged)

    def _close_aged(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [each for each in self._idle if each.stale_at <= now]:
            del self._idle[connection]
            connection.abort()
        self._sweep = loop.call_later(SWEEP, self._close_aged) if self._idle else None

    def _forget(self, connection: Connection) -> None:
        if connection not in self._alive:
            return
        self._alive.discard(connection)
        if connection.places is not None:
            connection.places.free()
            connection.places = None
        self._idle.pop(connection, None)
        if not self._alive and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)


def closed() -> UpstreamUnreachable:
    """The failure of a request that comes when the pool is closed."""
    return UpstreamUnreachable("The adapter is shutting down and opens no more connections to upstreams.")
