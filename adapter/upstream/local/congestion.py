"""Clients that read more slowly than their server writes: the server is not read until they have caught up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from adapter.upstream.local.replies import EventStream

CROWDED = 256 << 10
"""Unread bytes of a stream from which on its server has to wait."""

OF_CALLS = 30.0
"""Seconds for which the reader of a call's stream may keep the server waiting. Then the call is given up."""

OF_LISTENERS = 10.0
"""The same of a GET stream, which ends then. Its client comes back with the id of the last event."""


class Congestion:
    """Pauses a server while a stream is crowded. ``pause`` and ``resume`` are those of its line.

    Where a server speaks to several clients none may keep the others waiting, so it is never paused: there a stream
    ends when it is full.
    """

    def __init__(
        self,
        pause: Callable[[], None],
        resume: Callable[[], None],
        *,
        pauses: bool,
    ) -> None:
        self._pause = pause
        self._resume = resume
        self._pauses = pauses
        self._crowded: dict[EventStream, asyncio.TimerHandle] = {}

    def watch(self, stream: EventStream | None, give_up: Callable[[], None], patience: float) -> None:
        """Look at a stream to which something was added. ``give_up`` ends one that was crowded for ``patience``
        seconds.
        """
        if not self._pauses or stream is None or stream.over or stream.unread_size < CROWDED:
            return
        if stream in self._crowded:
            return
        if not self._crowded:
            self._pause()
        stream.emptied = partial(self._emptied, stream)
        loop = asyncio.get_running_loop()
        self._crowded[stream] = loop.call_later(patience, give_up)

    def close(self) -> None:
        """Forget all streams."""
        for alarm in self._crowded.values():
            alarm.cancel()
        self._crowded.clear()

    def _emptied(self, stream: EventStream) -> None:
        alarm = self._crowded.pop(stream, None)
        if alarm is not None:
            alarm.cancel()
            stream.emptied = None
            if not self._crowded:
                self._resume()
