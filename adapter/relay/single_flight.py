"""One computation for all who ask for the same at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
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
