"""Work that must not be left half done: a cancellation waits for its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(
    work: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]] | None = None
) -> T:
    """The work's result. A caller that is cancelled meanwhile is so when the work has ended – and is undone,
    since nobody will learn of its result. Both must end by themselves, and soon; ``undo`` handles its failures.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    ended: asyncio.Future[None] = loop.create_future()
    # What asyncio.shield does, without asking what kind of thing it was given: every file that is kept comes by here.
    task.add_done_callback(partial(_wake, ended))
    try:
        await ended
    except asyncio.CancelledError:
        await _ended(task)
        failed = task.cancelled() or task.exception() is not None  # looked at, so that nobody complains
        if undo is not None and not failed:
            await _ended(asyncio.ensure_future(undo(task.result())))
        raise
    return task.result()


def _wake(ended: asyncio.Future[None], _: asyncio.Future[Any]) -> None:
    if not ended.done():
        ended.set_result(None)


async def _ended(task: asyncio.Future[Any]) -> None:
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):  # the first one is raised afterwards
            await asyncio.wait([task])
