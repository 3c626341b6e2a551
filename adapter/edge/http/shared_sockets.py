"""Listening sockets that several processes accept from, so that none is refused when one of the processes ends.

A connection that nobody has accepted belongs to the socket, and waits for whichever process comes first. Left to
the system, that is often the same one, and its connections stay with it for hours: it leaves new ones to others for a
moment while it has more than another.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence, Sized

from adapter.edge.http.seats import EMPTY, Seats

YIELD_SECONDS = 0.002
"""Time for which a process with more connections leaves a new one to the others."""

TOLERANCE = 8
"""The eighth part by which a process may have more connections than another, and one beside."""

REST_SECONDS = 1.0
"""Time without accepting after the system had no descriptor or memory for one more."""

_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SharedSockets:
    """Accepts connections for one process. ``seat`` is its own among ``seats``."""

    def __init__(self, sockets: Sequence[socket.socket], seats: Seats, seat: int) -> None:
        self.sockets = tuple(sockets)
        self._seats = seats
        self._seat = seat
        self._waited = False
        self._loop: asyncio.AbstractEventLoop
        self._make: Callable[[], asyncio.Protocol]
        self._connections: Sized
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._connecting: set[asyncio.Task[object]] = set()

    def accept(self, make: Callable[[], asyncio.Protocol], connections: Sized) -> None:
        """Accept from now on. ``make`` makes the protocol of each connection; ``connections`` are all that are open."""
        self._loop = asyncio.get_running_loop()
        self._make, self._connections = make, connections
        self._seats.put(self._seat, len(connections))
        for listening in self.sockets:
            listening.setblocking(False)
            self._watch(listening)

    def close(self) -> None:
        """Accept no more. Others that have the sockets are not concerned. Idempotent."""
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        if self.sockets:
            self._seats.put(self._seat, EMPTY)
        for listening in self.sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self.sockets = ()

    def _watch(self, listening: socket.socket) -> None:
        self._resting.pop(listening, None)
        self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _rest(self, listening: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(listening.fileno())
        self._resting[listening] = self._loop.call_later(seconds, self._watch, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept one connection; the loop calls again while there are more."""
        count = len(self._connections) + len(self._connecting)
        self._seats.put(self._seat, count)
        if not self._waited and self._has_most(count):
            # If it is still there then, the others are busy, or stopped.
            self._waited = True
            self._rest(listening, YIELD_SECONDS)
            return
        self._waited = False
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # another process was first, or the client has gone
        except OSError as error:
            if error.errno not in _SCARCE:
                raise
            self._rest(listening, REST_SECONDS)
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(accepted))
        self._connecting.add(task)
        self._seats.put(self._seat, count + 1)
        task.add_done_callback(self._connecting.discard)

    def _has_most(self, count: int) -> bool:
        fewest = self._seats.fewest()
        return count > fewest + 1 + fewest // TOLERANCE

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, accepted)
        except OSError:
            accepted.close()  # the client has gone
