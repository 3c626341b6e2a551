"""Signals to the supervisor, as numbers that a selector waits for."""

from __future__ import annotations

import signal
import socket
from types import FrameType, TracebackType

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


class SignalInbox:
    """The watched signals from ``__enter__`` to ``__exit__``; they do nothing by themselves."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)

    def __enter__(self) -> SignalInbox:
        self._before = {number: signal.signal(number, _noted) for number in WATCHED}
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.close()

    def fileno(self) -> int:
        """A descriptor that can be read when a signal has come."""
        return self._reader.fileno()

    def take(self) -> list[int]:
        """The signals that have come since the last time."""
        try:
            return list(self._reader.recv(4096))
        except BlockingIOError:
            return []

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def forget(self) -> None:
        """Leave the signals of a child to itself: those that a terminal sends to all end nobody before it listens."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self.close()


def _noted(_: int, __: FrameType | None) -> None:
    """Be called by a signal that the inbox has taken."""
