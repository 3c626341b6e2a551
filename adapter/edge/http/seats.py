"""The number of connections that each of several processes has, in memory that they share."""

from __future__ import annotations

import mmap

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
