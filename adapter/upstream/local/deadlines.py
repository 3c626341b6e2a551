"""The deadlines of replies that are waited for, under one timer: to set and cancel one for each call takes 2 µs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property

_APART = 0.05
"""Seconds between two looks at all deadlines, at least: each look takes time for every reply that is waited for."""


class Deadlines:
    """Calls ``late`` functions when their time is over, at most 50 ms after it.

    The timer outlives the waits: it is set when a wait could end before it rings, and looks at what is left then.
    """

    def __init__(self) -> None:
        self._waits: dict[Callable[[], None], float] = {}
        self._alarm: asyncio.TimerHandle | None = None

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, asked for once: in Python 3.11 each look for it is a system call."""
        return asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._waits)

    def set(self, late: Callable[[], None], seconds: float) -> None:
        """Call ``late`` once when so many seconds have passed, unless it is dropped before."""
        when = self._waits[late] = self.loop.time() + seconds
        if self._alarm is None or when < self._alarm.when():
            self._ring_at(when)

    def drop(self, late: Callable[[], None]) -> None:
        """Call it no more. Idempotent."""
        self._waits.pop(late, None)

    def close(self) -> None:
        """Forget all deadlines."""
        self._waits.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring_at(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self.loop.time()
        for late in [late for late, when in self._waits.items() if when <= now]:
            self.drop(late)
            late()
        if self._waits:
            self._ring_at(max(min(self._waits.values()), now + _APART))
