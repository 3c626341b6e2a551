"""The process that started this one and holds the other end of its standard input: ``serve --watch``."""

from __future__ import annotations

import fcntl
import os
import signal
import sys


def end_with_watcher() -> None:
    """Get SIGTERM when the watcher is gone, however it ended: the system sends it, as nothing is ever written there.

    A thread that waits would forbid to fork. It holds for a program in the place of this one, and not for processes
    that are forked.
    """
    if sys.platform == "linux":
        fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGTERM)
    else:
        signal.signal(signal.SIGIO, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    try:
        gone = not os.read(0, 1)
    except BlockingIOError:
        return
    if gone:
        # It was before anybody could be told.
        os.kill(os.getpid(), signal.SIGTERM)
