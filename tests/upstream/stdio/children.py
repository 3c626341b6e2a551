"""Children for tests: small Python programs, an owner that keeps what it was told, and a look at the system."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from structlog import get_logger

from adapter.upstream.stdio.child import ChildProcess, ChildSpec, child_environment
from adapter.upstream.stdio.failures import ChildExit
from adapter.upstream.stdio.pipes import MessagePipe
from adapter.upstream.stdio.supervisor import Supervisor
from adapter.wire.line_messages import Line, LongLine

ROOT = Path(__file__).parents[3]

ENVIRONMENT = child_environment(os.environ)

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
"""Says what it was told."""

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
inner = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
def begin(**how):
    process = subprocess.Popen([sys.executable, '-S', '-c', inner], stdout=subprocess.PIPE, **how)
    process.stdout.readline()
    return process.pid
print(os.getpid(), begin(), begin(start_new_session=True), flush=True)
time.sleep(600)
"""
"""Ignores TERM and the end of its input, and says its process id and those of two children that do so too: one in its
group, one in a session of its own."""


class Witness:
    """An owner that keeps everything."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.long: list[LongLine] = []
        self.exits: list[ChildExit] = []
        self.outgoing = MessagePipe("test")
        self._news = asyncio.Event()

    def received(self, line: Line) -> None:
        assert not self.exits
        if isinstance(line, LongLine):
            self.long.append(line)
        else:
            self.lines.append(line)
        self._news.set()

    def exited(self, child_exit: ChildExit) -> None:
        self.exits.append(child_exit)
        self._news.set()

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until something it was told makes ``met`` true."""
        async with asyncio.timeout(120):
            while not met():
                self._news.clear()
                await self._news.wait()

    async def line(self) -> bytes:
        """Wait for a line and take it."""
        await self.until(lambda: bool(self.lines))
        return self.lines.pop(0)

    async def end(self) -> ChildExit:
        """Wait for the end."""
        await self.until(lambda: bool(self.exits))
        return self.exits[0]


class Start(Protocol):
    async def __call__(
        self,
        program: str,
        owner: Witness,
        *,
        environment: Mapping[str, str] = ...,
        line_bytes: int = ...,
        stop_grace: float = ...,
        cwd: str | None = None,
    ) -> ChildProcess: ...


def starting(supervisor: Supervisor) -> Start:
    """The function that starts a Python program as a child."""

    async def start(
        program: str,
        owner: Witness,
        *,
        environment: Mapping[str, str] = ENVIRONMENT,
        line_bytes: int = 16 << 20,
        stop_grace: float = 5.0,
        cwd: str | None = None,
    ) -> ChildProcess:
        argv = (sys.executable, "-S", "-c", program)
        spec = ChildSpec(argv, environment, cwd, line_bytes, stop_grace)
        return await ChildProcess.start(supervisor, spec, owner, get_logger())

    return start


def lives(pid: int) -> bool:
    """Tell whether a process exists, where one that waits for its supervisor to be reaped does too.

    One that waits for the first process of the system does not: that is slow where much is going on.
    """
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    return not (state in "ZX" and parent == "1")


async def vanished(pids: list[int], seconds: float = 3.0) -> bool:
    """Wait until none of these processes exists. Returns False if that takes longer."""
    end = asyncio.get_running_loop().time() + seconds
    while any(map(lives, pids)):
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(0.02)
    return True


def descriptors(pid: int | str = "self") -> int:
    """The number of open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
