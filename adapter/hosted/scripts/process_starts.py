"""The order in which programs begin, so that many calls at once hold up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

AT_ONCE = 64
"""Programs that run at the same time. Further calls wait for a place, within the time that they have."""


class Starts:
    """Places for ``at_once`` programs, which begin one in each turn of the loop: to start one takes it several
    milliseconds."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place and for a turn to begin; the place is free again when the block ends."""
        async with self._places:
            async with self._turn:
                await asyncio.sleep(0)
            yield
