"""The time that exchanges under way get after a stop was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

IDLE_SECONDS = 0.5
"""Time without a request after which a connection is closed at a stop: its client is busy with something else."""


class Grace:
    """So many ``seconds`` from the first time that somebody waits, fewer once it is cut.

    Within it a connection without a request is closed after ``idle_seconds``.
    """

    def __init__(self, seconds: float) -> None:
        self.idle_seconds = IDLE_SECONDS
        self._seconds = seconds
        self._cut = asyncio.Event()
        self._end: float | None = None

    def __repr__(self) -> str:
        return f"<Grace of {self._seconds:g} s: {'over' if self.over else 'not over'}>"

    @property
    def left(self) -> float:
        """The seconds that are left; all of them before anybody waits."""
        if self._cut.is_set():
            return 0.0
        now = asyncio.get_running_loop().time()
        return self._seconds if self._end is None else max(0.0, self._end - now)

    @property
    def over(self) -> bool:
        return self.left <= 0

    def begin(self) -> None:
        """Count from now on, if nothing has been counted yet."""
        if self._end is None:
            self._end = asyncio.get_running_loop().time() + self._seconds

    def cut(self) -> None:
        """End it now."""
        self._cut.set()

    async def wait(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Wait until these have ended, or the time is over."""
        self.begin()
        ending = set(tasks)
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            while ending and not self.over:
                done, _ = await asyncio.wait(
                    {*ending, cut}, timeout=self.left, return_when=asyncio.FIRST_COMPLETED
                )
                ending -= done
        finally:
            cut.cancel()
