"""Which connection serves the next request: the one used last, else a new one, else a place in the queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from adapter.errors import UpstreamUnreachable
from adapter.upstream.connection import Connection
from adapter.upstream.port import unreachable

Open = Callable[[Callable[[Connection], None], Callable[[Connection], None]], Awaitable[Connection]]
"""Opens a connection that calls the first function when it is free again and the second when it is gone."""


class Pool:
    """At most ``limit`` connections, of which ``max_idle`` may wait for work, for ``idle_ttl`` seconds each.

    Last in, first out: what is not needed grows old at the other end and is closed there.
    """

    def __init__(self, open_: Open, *, limit: int, max_idle: int, idle_ttl: float, patience: float) -> None:
        self._open = open_
        self._limit = limit
        self._max_idle = max_idle
        self._idle_ttl = idle_ttl
        self._patience = patience
        self._taken = 0
        """Connections that exist or are being opened."""
        self._alive: set[Connection] = set()
        self._idle: deque[Connection] = deque()
        self._queue: deque[asyncio.Future[Connection | None]] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty: asyncio.Future[None] | None = None

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def active(self) -> int:
        return self._taken - len(self._idle)

    async def take(self, *, fresh: bool = False) -> Connection:
        """A connection for one exchange, one that was never used if ``fresh``.

        Raises UpstreamUnreachable when none can be opened, or none became free for ``patience`` seconds.
        """
        if not fresh and (kept := self.kept()) is not None:
            return kept
        if self._closed:
            raise _closed()
        if self._taken < self._limit:
            self._taken += 1
        else:
            if fresh and self._idle:
                self._idle.popleft().abort()
            given = await self._turn()
            if given is not None:
                return given
        return await self._opened()

    def kept(self) -> Connection | None:
        """The connection that was used last, for one exchange, if one is idle. Nearly every call finds one here."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def close(self) -> None:
        """Drop every connection and wait until their descriptors are free."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._idle.clear()
        for turn in self._queue:
            if not turn.done():
                turn.set_exception(_closed())
        self._queue.clear()
        for connection in tuple(self._alive):
            connection.abort()
        if self._alive:
            if self._empty is None:
                self._empty = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._empty)

    async def _opened(self) -> Connection:
        """A new connection in a place that is already counted as taken."""
        try:
            if self._closed:
                raise _closed()
            connection = await self._open(self._put_back, self._forget)
        except BaseException:
            self._free_place()
            raise
        if connection.gone:
            self._free_place()
            raise unreachable("it closed the connection as soon as it was open")
        self._alive.add(connection)
        if self._closed:
            connection.abort()
            raise _closed()
        return connection

    async def _turn(self) -> Connection | None:
        """Queue for a connection, or for a place to open one in (None)."""
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(self._patience):
                return await turn
        except TimeoutError as error:
            self._decline(turn)
            raise UpstreamUnreachable(
                f"All {self._limit} connections to the upstream server are busy (core.upstream.max_connections)."
            ) from error
        except BaseException:
            self._decline(turn)
            raise

    def _decline(self, turn: asyncio.Future[Connection | None]) -> None:
        """Leave the queue; what was given in the same moment goes to the next."""
        if turn in self._queue:
            self._queue.remove(turn)
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            connection = turn.result()
            if connection is None:
                self._free_place()
            elif connection.usable:
                self._put_back(connection)

    def _give(self, connection: Connection | None) -> bool:
        """Whether somebody in the queue took it."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    def _put_back(self, connection: Connection) -> None:
        if self._queue and self._give(connection):
            return
        if self._closed:
            connection.abort()
            return
        loop = connection.loop
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if len(self._idle) > self._max_idle:
            self._idle.popleft().abort()
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_ttl, self._close_aged)

    def _close_aged(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        while self._idle:
            age_out = self._idle[0].idle_since + self._idle_ttl
            if age_out > loop.time():
                self._sweep = loop.call_at(age_out, self._close_aged)
                return
            self._idle.popleft().abort()

    def _forget(self, connection: Connection) -> None:
        if connection not in self._alive:
            return
        self._alive.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._free_place()
        if not self._alive and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def _free_place(self) -> None:
        if not self._give(None):
            self._taken -= 1


def _closed() -> UpstreamUnreachable:
    return UpstreamUnreachable("The adapter is shutting down and opens no more connections to upstreams.")
