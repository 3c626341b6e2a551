"""Work that must not be left half done: a cancellation waits for its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def unbroken(
    work: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]] | None = None
) -> T:
    """The work's result. A caller that is cancelled meanwhile is so when the work has ended – and is undone,
    since nobody will learn of its result. Both must end by themselves, and soon; ``undo`` handles its failures.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _ended(task)
        if undo is not None and not task.cancelled() and task.exception() is None:
            await _ended(asyncio.ensure_future(undo(task.result())))
        raise


async def _ended(task: asyncio.Future[Any]) -> None:
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):  # the first one is raised afterwards
            await asyncio.wait([task])
