"""Ports for servers that get their port as an argument."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of 127.0.0.1 without a listener, which the system gives to nobody else for a minute.

    Other tests, also of other runs, ask the system for ports before the server here has started. A port on which a
    connection was just closed is in TIME_WAIT: only a server that names the port and sets SO_REUSEADDR gets it, as all
    servers here do.
    """
    with socket.socket() as listener, socket.socket() as client:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        client.connect(listener.getsockname())
        # The end that closes first keeps its port in TIME_WAIT.
        listener.accept()[0].close()
        return int(listener.getsockname()[1])
