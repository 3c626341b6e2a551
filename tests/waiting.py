"""Waiting for what other tasks, threads or processes do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], within: float = 20.0) -> None:
    """Return as soon as it holds. Raises TimeoutError when it does not in so many seconds."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)
