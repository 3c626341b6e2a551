"""The HTTP server on its socket."""

from __future__ import annotations

import asyncio

from adapter.edge.connection import ClientConnection, Handler

BACKLOG = 1024
LEAVING_SECONDS = 2.0
"""How long broken-off exchanges may take to notice."""


class Listener:
    """Open until ``close`` (no new connections) and ``drop`` (no connections at all)."""

    def __init__(self, listening: asyncio.Server, connections: set[ClientConnection]) -> None:
        self._listening = listening
        self._connections = connections

    def __repr__(self) -> str:
        return f"<Listener {self.address}: {len(self._connections)} connections>"

    @classmethod
    async def open(cls, handler: Handler, host: str, port: int) -> Listener:
        """Listen on that address. Raises OSError when it cannot be bound."""
        connections: set[ClientConnection] = set()
        listening = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(handler, connections), host, port, backlog=BACKLOG, reuse_address=True
        )
        return cls(listening, connections)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listening.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Take no new connection and let go of the idle ones."""
        self._listening.close()
        for connection in list(self._connections):
            connection.close_if_idle()

    async def drop(self) -> None:
        """Break off what is left, and give the exchanges on it a turn to notice."""
        connections = list(self._connections)
        running = [connection.task for connection in connections if connection.task is not None]
        for connection in connections:
            connection.abort()
        if running:
            await asyncio.wait(running, timeout=LEAVING_SECONDS)
