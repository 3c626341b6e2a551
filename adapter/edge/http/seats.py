"""The sockets from which several processes accept connections, and in memory that they share the number of each."""

from __future__ import annotations

import contextlib
import errno
import mmap
import socket
from typing import Any

EMPTY = -1
"""The number of a process that accepts no connections."""

SEATS = mmap.PAGESIZE // 4


class Seats:
    """One number for each process, written by that process alone. Made before the processes are forked."""

    def __init__(self) -> None:
        # Never closed: it goes with the last process, as views into it do.
        self._numbers = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("i")
        for seat in range(SEATS):
            self._numbers[seat] = EMPTY

    def __repr__(self) -> str:
        return f"<Seats: {[number for number in self._numbers if number != EMPTY]} connections>"

    def __getitem__(self, seat: int) -> int:
        return self._numbers[seat]

    def put(self, seat: int, connections: int) -> None:
        """Say how many connections the process of that seat has, or EMPTY."""
        self._numbers[seat] = connections

    def fewest(self) -> int:
        """The smallest number of a process that accepts connections; 0 if there is none."""
        return min((number for number in self._numbers if number != EMPTY), default=0)


BACKLOG = 1024
"""Connections that wait until a process accepts them."""


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Listen on every address that the name ``host`` has, as a server of asyncio does. Raises OSError."""
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    missing: OSError | None = None
    with contextlib.ExitStack() as failing:
        for place in dict.fromkeys(places):
            try:
                opened.append(failing.enter_context(_listening(*place)))
            except OSError as error:
                # A name may have an address of a family that this machine does not have.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
        if missing is not None and not opened:
            raise missing
        failing.pop_all()
    return opened


def _listening(family: int, kind: int, protocol: int, _: str, address: tuple[Any, ...]) -> socket.socket:
    with contextlib.ExitStack() as failing:
        opened = failing.enter_context(socket.socket(family, kind, protocol))
        # Connections that have just ended hold nobody up.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
        failing.pop_all()
    return opened
