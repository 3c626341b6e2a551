"""The processes of a run, each of which can be killed, stopped, paused and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.process import tree
from tests.e2e.processes import START_TIMEOUT, Running, listens, start
from tests.faults.wire import Wire

RETRY = 0.2
"""Seconds after which a process that could not start is started again, as every supervisor of services does."""


@dataclass
class Node:
    """A process that listens on ``port``. ``command`` and ``environment`` are asked for at each start.

    ``front``: the wire to it, which refuses connections while it is away.
    """

    name: str
    port: int
    log: Path
    command: Callable[[], Sequence[str | Path]]
    environment: Callable[[], Mapping[str, str]] = dict
    front: Wire | None = None
    running: Running | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"<Node {self.name}: port {self.port}>"

    @property
    def pid(self) -> int:
        assert self.running is not None
        return self.running.process.pid

    @property
    def has_ended(self) -> bool:
        """Tell whether the process has ended, whoever ended it."""
        return self.running is not None and self.running.process.returncode is not None

    async def start(self) -> None:
        """Return when it listens."""
        self.running = await start(self.command(), self.log, self.environment())
        await listens(self.port, self.running)

    async def kill(self) -> None:
        """SIGKILL to the process and to all that it has started."""
        assert self.running is not None
        await self.running.kill()

    async def stop(self) -> None:
        """SIGTERM; SIGKILL if that is not enough."""
        if self.running is not None:
            await self.running.stop()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def children(self) -> list[int]:
        """The processes below this one."""
        return tree(self.pid)[1:]

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


async def rerun(node: Node, pause: float, *, politely: bool) -> None:
    """End a process, by force or politely, and start it again after so many seconds.

    Raises TimeoutError with its log if it cannot start for a long time.
    """
    await (node.stop() if politely else node.kill())
    if node.front is not None:
        await node.front.refuse()
    await asyncio.sleep(pause)
    deadline = asyncio.get_running_loop().time() + START_TIMEOUT
    while True:
        try:
            await node.start()
            break
        except TimeoutError:
            # Among the reasons is a full disk, which the next fault may end.
            if asyncio.get_running_loop().time() > deadline:
                raise
            await node.kill()
            await asyncio.sleep(RETRY)
    if node.front is not None:
        await node.front.start()
