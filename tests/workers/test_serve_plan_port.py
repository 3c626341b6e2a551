"""The port that workers share."""

from __future__ import annotations

import contextlib
import socket

import pytest

from adapter.workers.serve_plan import open_sockets


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


def test_a_port_that_is_taken_is_refused() -> None:
    """And nothing is left open."""
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="Address already in use"),
    ):
        open_sockets("127.0.0.1", taken.getsockname()[1])


def test_a_name_without_an_address_is_refused() -> None:
    """Nothing can listen there."""
    with pytest.raises(OSError):
        open_sockets("no.such.name.invalid", 0)
