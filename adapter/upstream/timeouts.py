"""Read timeouts: waiting for bytes of a peer, at most so many seconds without one."""

from __future__ import annotations

import asyncio
from math import inf


class ReadTimer:
    """Lets one task at a time wait for an event on a connection.

    The alarm outlives the waits: it is set when a wait could end before it rings, and looks at the latest
    deadline when it does. So a call on a warm connection pays for one look at the clock and for no timer.
    """

    __slots__ = ("_alarm", "_alarm_at", "_deadline", "_loop", "_read_timeout", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[bool] | None = None
        self._read_timeout: float | None = None
        self._deadline = inf
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf

    def start(self, read_timeout: float | None) -> asyncio.Future[bool]:
        """Begin a wait, which ends with True when woken, with False after ``read_timeout`` seconds without a byte; None
        waits for ever.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        self._read_timeout = read_timeout
        if read_timeout is None:
            self._deadline = inf
        else:
            self._deadline = self._loop.time() + read_timeout
            if self._deadline < self._alarm_at:
                self._set_alarm()
        return waiter

    def wake(self, arrived: bool = True) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(arrived)

    def extend(self) -> None:
        """Start the timeout anew: bytes came that wake nobody yet."""
        if self._read_timeout is not None:
            self._deadline = self._loop.time() + self._read_timeout

    def stop(self) -> None:
        """Cancel the alarm: no wait will follow."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self) -> None:
        self.stop()
        self._alarm_at = self._deadline
        self._alarm = self._loop.call_at(self._deadline, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, inf
        if self._waiter is None or self._deadline == inf:
            return
        if self._deadline > self._loop.time():
            self._set_alarm()
        else:
            self.wake(False)
