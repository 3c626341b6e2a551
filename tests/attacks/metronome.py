"""The machine's own stalls: times at which nobody on it could go on, or nobody could write to its disk.

They excuse no call that took too long, because an adapter that uses up the whole machine causes them too. They are in
the message of the failure, as a hint where to look for the cause.
"""

from __future__ import annotations

import tempfile
import threading
import time
from types import TracebackType

BEAT = 0.005
"""Seconds between two looks."""

LATE = 0.02
"""Seconds that a look may come late before that counts as a stall."""


class Metronome:
    """A thread that sleeps, writes a byte, and remembers each time at which that took too long."""

    def __init__(self) -> None:
        self._stalls: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="metronome")

    def __enter__(self) -> Metronome:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            while not self._over.is_set():
                due = time.perf_counter() + BEAT
                time.sleep(BEAT)
                file.write(b".")
                now = time.perf_counter()
                if now - due > LATE:
                    self._stalls.append((due, now))

    def stalled(self, since: float, until: float) -> float:
        """The seconds of stalls between two times of ``time.perf_counter``."""
        return sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in self._stalls)
