"""The HTTP server on its socket."""

from __future__ import annotations

import asyncio

from adapter.edge.connection import PATIENCE, ClientConnection, Handler, Patience

BACKLOG = 1024
LEAVING_SECONDS = 2.0
"""How long last answers may take to leave, and broken-off exchanges to notice."""

FLUSH_SECONDS = 0.02
"""Time between two looks for last answers that have not left yet."""


class Listener:
    """Open until ``close`` (no new connections) and ``drop`` (no connections at all)."""

    def __init__(self, listening: asyncio.Server, connections: set[ClientConnection]) -> None:
        self._listening = listening
        self._connections = connections

    def __repr__(self) -> str:
        return f"<Listener {self.address}: {len(self._connections)} connections>"

    @classmethod
    async def open(cls, handler: Handler, host: str, port: int, patience: Patience = PATIENCE) -> Listener:
        """Listen on that address. Raises OSError when it cannot be bound."""
        connections: set[ClientConnection] = set()
        listening = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(handler, connections, patience),
            host,
            port,
            backlog=BACKLOG,
            reuse_address=True,
        )
        return cls(listening, connections)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listening.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Take no new connection, let go of the idle ones, and of the others after their answers."""
        self._listening.close()
        for connection in list(self._connections):
            connection.retire()

    async def drop(self) -> None:
        """Give last answers a moment to leave, break off what is left, wait until the exchanges on it have ended."""
        for _ in range(round(LEAVING_SECONDS / FLUSH_SECONDS)):
            if not any(each.leaving for each in self._connections):
                break
            await asyncio.sleep(FLUSH_SECONDS)
        for connection in list(self._connections):
            connection.abort()
        running = [each.task for each in self._connections if each.task is not None]
        # The transports tell their connections in the loop's next turn; only then is anything cancelled.
        await asyncio.sleep(0)
        if running:
            await asyncio.wait(running, timeout=LEAVING_SECONDS)
