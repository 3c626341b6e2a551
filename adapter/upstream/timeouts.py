"""Read timeouts: waiting for a peer to go on with its answer, at most so many seconds without a message of it."""

from __future__ import annotations

import asyncio
import re
from math import inf

SLOW = 10
"""Timeouts that one message may take which comes in pieces, where it is short."""

SLOW_BYTES = 1024
"""Bytes of such a message that allow it one timeout more."""

_FIELD = 16
"""Bytes of a line's beginning that tell whether it has data."""

# The line is one of an event stream. A comment, a blank line, an id and a time to come back in tell nothing.
_TELLS = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])data:[ \t]*[^\s]")


class ReadTimer:
    """Lets one task at a time wait for an event on a connection.

    The alarm outlives the waits: it is set when a wait could end before it rings, and looks at the latest
    deadline when it does. So a call on a warm connection needs no timer.

    ``silent`` are the seconds that were waited since the last message or part of one. ``line`` is the beginning of the
    event stream's line that is coming in; None for an answer that is no event stream or cannot be read as one, of
    which all bytes count. Of a message in pieces, ``size`` bytes have come and ``waited`` seconds have passed.
    """

    __slots__ = (
        "_alarm", "_alarm_at", "_deadline", "_loop", "_read_timeout", "_since", "_waiter", "line", "silent", "size",
        "waited",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[bool] | None = None
        self._read_timeout: float | None = None
        self._since = 0.0
        self._deadline = inf
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf
        self.line: bytes | None = None
        self.silent = self.waited = 0.0
        self.size = 0

    def start(self, read_timeout: float | None) -> asyncio.Future[bool]:
        """Begin a wait, which ends with True when woken, with False after ``read_timeout`` seconds of silence, those of
        earlier waits included; None waits for ever.
        """
        waiter: asyncio.Future[bool] = self._loop.create_future()
        self._waiter = waiter
        self._read_timeout = read_timeout
        if read_timeout is None:
            self._deadline = inf
        else:
            self._since = self._loop.time()
            self._deadline = self._since + read_timeout - self.silent
            if self._deadline < self._alarm_at:
                self._set_alarm()
        return waiter

    def wake(self, arrived: bool = True) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if self._read_timeout is not None:
                self.silent += self._loop.time() - self._since
            if not waiter.done():
                waiter.set_result(arrived)

    def hear(self, piece: bytes) -> None:
        """Count what came of an answer. A message, or a part of one, ends the silence; what only keeps the connection
        alive does not, nor does a message that hardly goes on.
        """
        read_timeout, is_waiting = self._read_timeout, self._waiter is not None
        if read_timeout is None:
            return
        if is_waiting:
            now = self._loop.time()
            self.silent += now - self._since
            self._since = now
        is_whole = False
        if self.line is not None:
            text = self.line + piece if self.line else piece
            told = _TELLS.search(text) if b"data:" in text else None
            end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            self.line = text[end : end + _FIELD]
            if told is None:
                return
            is_whole = end > told.end()
        if is_whole:
            self.waited, self.size = 0.0, 0
        else:
            self.waited += self.silent
            self.size += len(piece)
            if self.waited > read_timeout * (SLOW + self.size / SLOW_BYTES):
                return
        self.silent = 0.0
        if is_waiting:
            self._deadline = self._since + read_timeout

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
            # Who asks again waits again.
            self.silent = 0.0
