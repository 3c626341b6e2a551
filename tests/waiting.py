"""Waiting for what other tasks, threads or processes do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

FEW_TURNS = 0.01
"""Seconds in which tasks of this process do what only needs turns of the loop."""

LONGEST_PAUSE = 0.05
"""Seconds between two looks at something that takes long."""


@overload
async def until(condition: Callable[[], Awaitable[T]], within: float = ...) -> T: ...
@overload
async def until(condition: Callable[[], T], within: float = ...) -> T: ...
async def until(condition: Callable[[], object], within: float = 20.0) -> object:
    """Return what ``condition`` returns, as soon as that is true; it may be a coroutine.

    Raises TimeoutError when it is not in so many seconds.
    """
    now = asyncio.get_running_loop().time
    began = now()
    async with asyncio.timeout(within):
        while True:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            waited = now() - began
            await asyncio.sleep(0 if waited < FEW_TURNS else min(waited / 10, LONGEST_PAUSE))
