"""Many connections of one attacker, opened and kept."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.edge.raw import RawClient

AT_ONCE = 50
"""Connections that are being opened at the same time."""


@asynccontextmanager
async def crowd(client: Callable[[], RawClient], size: int) -> AsyncIterator[list[RawClient]]:
    """``size`` connections, all closed at the end."""
    _allow_descriptors(size)
    clients: list[RawClient] = []
    turn = asyncio.Semaphore(AT_ONCE)

    async def connect() -> None:
        async with turn:
            clients.append(await client().__aenter__())

    try:
        async with asyncio.TaskGroup() as opening:
            for _ in range(size):
                opening.create_task(connect())
        yield clients
    finally:
        for each in clients:
            each.close()


def _allow_descriptors(size: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = size + 256
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
