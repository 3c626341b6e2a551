"""Small work that no client waits for, such as telling an upstream of a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """Whoever asks while the answer is being found waits for it; whoever leaves does not take it from the others."""

    def __init__(self) -> None:
        self._under_way: dict[K, asyncio.Task[T]] = {}

    def __repr__(self) -> str:
        return f"<SingleFlight: {len(self._under_way)} under way>"

    async def get(self, key: K, find: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return or raise what ``find``, called by the first who asks, returns or raises."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(find())
            task.add_done_callback(lambda done: self._landed(key, done))
        return await asyncio.shield(task)

    def _landed(self, key: K, task: asyncio.Task[T]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            # They may all have left, and then nobody would ask for it.
            task.exception()


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


class BackgroundTasks:
    """Keeps each task until it is done, since the loop itself holds tasks only weakly."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<BackgroundTasks: {len(self._running)} running>"

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Start ``work``, which handles its own failures."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Stop what still runs."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
