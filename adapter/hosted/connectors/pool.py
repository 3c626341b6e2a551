"""Connections that are kept for the next statement, for drivers whose own pool does not do what a pool must.

What it must: wait when all are in use, never hand out a connection that is known to be dead, and never take back
one whose statement did not come to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from adapter.hosted.connectors.port import QueryFailed

C = TypeVar("C")


class DriverPool(Generic[C]):
    """At most ``size`` connections, made when they are needed; the one used last is used next.

    ``usable`` is asked before a connection is handed out and before it is taken back: whoever leaves a statement
    unfinished closes the connection, and the pool sees that.
    """

    def __init__(
        self,
        size: int,
        *,
        connect: Callable[[], Awaitable[C]],
        usable: Callable[[C], bool],
        drop: Callable[[C], Awaitable[None]],
    ) -> None:
        self._free = asyncio.Semaphore(size)
        self._connect = connect
        self._usable = usable
        self._drop = drop
        self._idle: list[C] = []
        self._closed = False

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[C]:
        """A connection for one statement; waits for as long as all are in use."""
        async with self._free:
            connection = await self._taken()
            try:
                yield connection
            finally:
                await self._put_back(connection)

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._drop(self._idle.pop())

    async def _taken(self) -> C:
        if self._closed:
            raise QueryFailed("the connector is closed")
        while self._idle:
            connection = self._idle.pop()
            if self._usable(connection):
                return connection
            await self._drop(connection)
        return await self._connect()

    async def _put_back(self, connection: C) -> None:
        if not self._closed and self._usable(connection):
            self._idle.append(connection)
        else:
            # A caller that is cancelled once more must not leave a socket behind.
            await asyncio.shield(self._drop(connection))
