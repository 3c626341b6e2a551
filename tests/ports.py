"""Ports for servers that have to be told theirs before they start."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that the system chooses for nobody else within a minute.

    Between this call and the start of the server other tests, also those of another run, ask the system for ports.
    A port through which a connection was just closed is only given to a server that names it and sets SO_REUSEADDR,
    as all servers here do.
    """
    with socket.socket() as listener, socket.socket() as client:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        client.connect(listener.getsockname())
        # The end that closes first, here the server's, is the one whose port waits.
        listener.accept()[0].close()
        return int(listener.getsockname()[1])
