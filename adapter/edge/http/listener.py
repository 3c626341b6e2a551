"""The HTTP server on its socket, and the time that exchanges under way get after a stop was asked for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from adapter.edge.http.bodies import TERMS, BodyLimits
from adapter.edge.http.connection import ClientConnection
from adapter.edge.http.limits import PATIENCE, ConnectionLimit, Handler, Patience
from adapter.edge.http.seats import BACKLOG

if TYPE_CHECKING:
    # Only processes that share a port have any.
    from adapter.edge.http.shared_sockets import SharedSockets


IDLE_SECONDS = 0.5
"""Time without a request after which a connection is closed at a stop: its client is busy with something else."""


class Grace:
    """So many ``seconds`` from the first time that somebody waits, fewer once it is cut.

    Within it a connection without a request is closed after ``idle_seconds``.
    """

    def __init__(self, seconds: float) -> None:
        self.idle_seconds = IDLE_SECONDS
        self._seconds = seconds
        self._cut = asyncio.Event()
        self._end: float | None = None

    def __repr__(self) -> str:
        return f"<Grace of {self._seconds:g} s: {'over' if self.over else 'not over'}>"

    @property
    def left(self) -> float:
        """The seconds that are left; all of them before anybody waits."""
        if self._cut.is_set():
            return 0.0
        now = asyncio.get_running_loop().time()
        return self._seconds if self._end is None else max(0.0, self._end - now)

    @property
    def over(self) -> bool:
        return self.left <= 0

    def begin(self) -> None:
        """Count from now on, if nothing has been counted yet."""
        if self._end is None:
            self._end = asyncio.get_running_loop().time() + self._seconds

    def cut(self) -> None:
        """End it now."""
        self._cut.set()

    async def wait(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Wait until these have ended, or the time is over."""
        self.begin()
        ending = set(tasks)
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            while ending and not self.over:
                done, _ = await asyncio.wait(
                    {*ending, cut}, timeout=self.left, return_when=asyncio.FIRST_COMPLETED
                )
                ending -= done
        finally:
            cut.cancel()


# A client that vanished without a word would hold its place for ever on a stream on which nothing is said: it is
# noticed within three minutes. Connections have these options from the socket they were accepted on.
_PROBES = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 6))

LEAVING_SECONDS = 2.0
"""How long last answers may take to leave, and broken-off exchanges to notice."""

FLUSH_SECONDS = 0.02
"""Time between two looks for last answers that have not left yet."""

ARRIVING_SECONDS = 1.0
"""Time for a request that has begun to arrive at a stop."""


class ListeningSockets(Protocol):
    """The sockets that connections come from."""

    @property
    def sockets(self) -> Sequence[Any]: ...

    def close(self) -> None: ...


class Listener:
    """Open until ``close`` (no new connections), ``close_idle`` and ``drop`` (no connections at all)."""

    def __init__(self, listening: ListeningSockets, connections: ConnectionLimit) -> None:
        self._listening = listening
        self._connections = connections

    def __repr__(self) -> str:
        return f"<Listener {self.address}: {len(self._connections)} connections>"

    @classmethod
    async def open(
        cls,
        handler: Handler | ConnectionLimit,
        host: str,
        port: int,
        patience: Patience = PATIENCE,
        terms: BodyLimits = TERMS,
        *,
        shared: bool = False,
    ) -> Listener:
        """Listen on that address. A ``handler`` serves any number of connections. ``shared``: other processes listen
        there too. Raises OSError when it cannot be bound.
        """
        places = handler if isinstance(handler, ConnectionLimit) else ConnectionLimit(handler)
        listening = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(places, patience, terms),
            host,
            port,
            backlog=BACKLOG,
            reuse_address=True,
            reuse_port=shared,
        )
        _notice_dead_peers(listening.sockets)
        return cls(listening, places)

    @classmethod
    def share(
        cls, places: ConnectionLimit, door: SharedSockets, patience: Patience, terms: BodyLimits
    ) -> Listener:
        """Accept connections from sockets that other processes accept from too."""
        _notice_dead_peers(door.sockets)
        listener = cls(door, places)
        door.accept(lambda: ClientConnection(places, patience, terms), places)
        return listener

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listening.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Accept no new connection, and none but one more request on each that is open."""
        self._listening.close()
        self._connections.retire()

    async def close_idle(self, grace: Grace) -> set[asyncio.Task[None]]:
        """Close the connections that are idle, one that was used a moment ago after a moment (``grace.idle_seconds``).
        Returns the tasks that answer requests on the others.

        Its client is about to send its next request, and learns from the answer that the connection ends. A request
        that crosses a plain close on its way is lost, and clients do not repeat a POST (RFC 9110, 9.2.2).
        """
        loop = asyncio.get_running_loop()
        began = now = loop.time()
        while now < began + grace.idle_seconds + ARRIVING_SECONDS and not grace.over:
            silent = [each for each in self._connections if each.silent]
            if not silent:
                break
            patient = now < began + grace.idle_seconds
            for connection in silent:
                connection.close_if_idle(now - grace.idle_seconds if patient else now)
            await asyncio.sleep(FLUSH_SECONDS)
            now = loop.time()
        return {each.task for each in self._connections if each.task is not None}

    async def drop(self) -> None:
        """Give last answers a moment to leave, break off what is left, wait until the exchanges on it have ended."""
        for connection in self._connections:
            connection.close_if_idle(asyncio.get_running_loop().time())
        for _ in range(round(LEAVING_SECONDS / FLUSH_SECONDS)):
            if not any(each.leaving for each in self._connections):
                break
            await asyncio.sleep(FLUSH_SECONDS)
        for connection in self._connections:
            connection.abort()
        running = [each.task for each in self._connections if each.task is not None]
        # The transports tell their connections in the loop's next turn; only then is anything cancelled.
        await asyncio.sleep(0)
        if running:
            await asyncio.wait(running, timeout=LEAVING_SECONDS)


def _notice_dead_peers(sockets: Iterable[Any]) -> None:
    for sock in sockets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBES:
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
