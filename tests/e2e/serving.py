"""A server of the end-to-end tests as a process of its own: one line with its URL, then uvicorn."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette


def port_of(argv: list[str]) -> int:
    """The port named by the first argument; 0, also when there is none, lets the system choose."""
    return int(argv[1]) if len(argv) > 1 else 0


def serve(build: Callable[[], Starlette]) -> None:
    """Serves ``build()`` on 127.0.0.1 and the port of ``sys.argv``; first prints ``http://127.0.0.1:PORT/mcp``.

    The socket listens before the line is printed, so whoever reads it may connect at once.
    """
    listener = socket.socket()
    # A test kills this process and starts it again on the same port, while old connections are still closing.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port_of(sys.argv)))
    listener.listen(128)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    # Not httptools: it leaves the blanks after a header's value on it, and RFC 9110, 5.5, takes them off.
    config = uvicorn.Config(build(), http="h11", log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])
