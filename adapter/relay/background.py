"""Small work that no client waits for, such as telling an upstream of a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


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
