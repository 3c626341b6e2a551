"""Connections of several processes, counted in memory that they share."""

from __future__ import annotations

import contextlib
import os
import socket

from adapter.edge.http.seats import EMPTY, Seats, open_sockets


def test_a_number_is_seen_by_all() -> None:
    """A child's number is there for its parent, also after the child has ended."""
    seats = Seats()
    seats.put(0, 7)
    child = os.fork()
    if child == 0:
        seats.put(1, seats[0] - 4)
        os._exit(0)
    os.waitpid(child, 0)
    assert (seats[0], seats[1], seats.fewest()) == (7, 3, 3)


def test_nobody_counts_who_accepts_nothing() -> None:
    """A process that starts or stops has fewer than all, and gets none."""
    seats = Seats()
    assert seats.fewest() == 0
    seats.put(5, 9)
    assert seats.fewest() == 9
    seats.put(5, EMPTY)
    assert seats.fewest() == 0


def test_every_address_of_a_name_is_opened() -> None:
    """As one process does: a name may have several, and families that this machine lacks are passed over."""
    opened = open_sockets("localhost", 0)
    try:
        assert {each.getsockname()[0] for each in opened} & {"127.0.0.1", "::1"}
        for each in opened:
            with contextlib.closing(socket.create_connection(each.getsockname()[:2], timeout=5)):
                pass
    finally:
        for each in opened:
            each.close()
