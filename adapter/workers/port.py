"""The port that workers share, opened before the first of them."""

from __future__ import annotations

import errno
import socket
from typing import Any

BACKLOG = 1024
"""Connections that wait until a worker accepts them."""


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Listen on every address that the name ``host`` has, as a server of asyncio does. Raises OSError."""
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for place in dict.fromkeys(places):
            try:
                opened.append(_listening(*place))
            except OSError as error:
                # A name may have an address of a family that this machine does not have.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
        if missing is not None and not opened:
            raise missing
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


def _listening(family: int, kind: int, protocol: int, _: str, address: tuple[Any, ...]) -> socket.socket:
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened
