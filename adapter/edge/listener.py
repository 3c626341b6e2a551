"""The HTTP server on its socket."""

from __future__ import annotations

import asyncio

from aiohttp import web

from adapter.edge.front import Front

BACKLOG = 1024


class Listener:
    """Open until ``close`` (no new connections) and ``drop`` (no connections at all)."""

    def __init__(self, server: web.Server, listening: asyncio.Server) -> None:
        self._server = server
        self._listening = listening

    @classmethod
    async def open(cls, front: Front, host: str, port: int) -> Listener:
        """Listen on that address. Raises OSError when it cannot be bound."""
        # A body passes as it came, so it is not decompressed here; an exchange ends when its client goes.
        server = web.Server(front, handler_cancellation=True, access_log=None, auto_decompress=False)
        loop = asyncio.get_running_loop()
        return cls(server, await loop.create_server(server, host, port, backlog=BACKLOG, reuse_address=True))

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listening.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        self._listening.close()

    async def drop(self) -> None:
        await self._server.shutdown(0)
