"""The faults: which there are, drawn by chance from a seed, and done to the parts of a deployment one by one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.faults.history import Fault, History
from tests.faults.nodes import Node, rerun
from tests.faults.topology import CALL_TIMEOUT, Deployment
from tests.faults.wire import Wire

SHORT = (0.05, 0.6)
"""Seconds that a process is paused or away."""

LONG = CALL_TIMEOUT + 0.5
"""Seconds of the few pauses that are longer than the adapter waits for anybody."""

LONG_SHARE = 0.08

GAP = (0.02, 0.6)
"""Seconds between the beginnings of two faults."""

AT_ONCE = 2
"""Faults that overlap at most: a system with everything down proves little."""

JUMPS = (-120.0, -5.0, 1.5, 5.0, 120.0)
"""Seconds by which a clock is wrong: more than any lease, less than files and links are kept."""


class Target(NamedTuple):
    """One kind of fault at one place. ``part`` is what it occupies: a part has one fault at a time."""

    kind: str
    part: str
    weight: float
    strike: Callable[[float], Awaitable[None]]


@dataclass
class Injection:
    """Faults at a deployment, the same ones for the same seed."""

    deployment: Deployment
    history: History
    chance: random.Random
    _busy: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def run(self, number: int) -> None:
        """Inject so many faults; return when the last one is over and everything runs."""
        targets = self._targets()
        turn = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(number):
                target = self.chance.choices(targets, [each.weight for each in targets])[0]
                seconds = LONG if self.chance.random() < LONG_SHARE else self.chance.uniform(*SHORT)
                await turn.acquire()
                tasks.create_task(self._strike(target, seconds, turn))
                await asyncio.sleep(self.chance.uniform(*GAP))  # the moment is the point

    async def _strike(self, target: Target, seconds: float, turn: asyncio.Semaphore) -> None:
        try:
            async with self._busy.setdefault(target.part, asyncio.Lock()):
                begun = time.monotonic()
                await target.strike(seconds)
                self.history.faults.append(Fault(target.kind, target.part, begun, time.monotonic()))
        finally:
            turn.release()

    # --- what can fail ----------------------------------------------------------------------------------------

    def _targets(self) -> list[Target]:
        deployment, targets = self.deployment, []
        each = 1 / len(deployment.adapters)
        for node in deployment.adapters:
            of_one_host = deployment.shape.workers > 1
            # A fault of the whole host leaves nobody to prove anything with; most are those of single workers.
            targets += self._process(node, 0.3 if of_one_host else 3 * each)
            if of_one_host:
                targets += self._workers(node)
            if deployment.clocks.library is not None:
                targets.append(Target("jump of the clock", node.name, 2 * each, self._jump(node)))
        for node in deployment.others:
            targets += self._process(node, 2)
        for name, wire in deployment.fronts.items():
            targets.append(
                Target("half-open peer", f"clients of {name}", 1.5 * each, self._freeze(wire, cut=True))
            )
        for name, wire in deployment.backs.items():
            targets.append(Target("half-open peer", name, 1.5 * each, self._freeze(wire, cut=False)))
            targets.append(Target("reset connections", name, each, self._cut(wire)))
        if deployment.disk.holder is not None:
            targets.append(Target("full disk", "disk", 1, self._fill))
        return targets

    def _process(self, node: Node, weight: float) -> list[Target]:
        async def kill(seconds: float) -> None:
            await rerun(node, min(seconds, SHORT[1]), politely=False)

        async def restart(seconds: float) -> None:
            await rerun(node, 0, politely=True)

        async def pause(seconds: float) -> None:
            node.pause()
            try:
                await asyncio.sleep(seconds)
            finally:
                node.resume()

        return [
            Target("kill -9", node.name, weight, kill),
            Target("restart", node.name, weight / 3, restart),
            Target("pause", node.name, weight, pause),
        ]

    def _workers(self, node: Node) -> list[Target]:
        """Faults of single workers, which their supervisor replaces."""

        def one(number: signal.Signals) -> int | None:
            workers = node.children()
            if not workers:
                return None
            pid = self.chance.choice(workers)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            return pid

        async def kill(seconds: float) -> None:
            one(signal.SIGKILL)

        async def pause(seconds: float) -> None:
            pid = one(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        return [
            Target("kill -9 of a worker", node.name, 3, kill),
            Target("pause of a worker", node.name, 3, pause),
        ]

    def _jump(self, node: Node) -> Callable[[float], Awaitable[None]]:
        async def jump(seconds: float) -> None:
            self.deployment.clocks.jump(node.name, self.chance.choice(JUMPS))
            await asyncio.sleep(seconds)
            if self.chance.random() < 0.5:
                self.deployment.clocks.jump(node.name, 0.0)

        return jump

    def _freeze(self, wire: Wire, *, cut: bool) -> Callable[[float], Awaitable[None]]:
        """``cut``: end the silence of old connections too. Clients of these runs wait for an answer, not for a time."""

        async def freeze(seconds: float) -> None:
            wire.freeze()
            await asyncio.sleep(seconds)
            wire.thaw()
            if cut:
                wire.cut()

        return freeze

    def _cut(self, wire: Wire) -> Callable[[float], Awaitable[None]]:
        async def cut(seconds: float) -> None:
            wire.cut()

        return cut

    async def _fill(self, seconds: float) -> None:
        disk = self.deployment.disk
        disk.fill()
        try:
            await asyncio.sleep(seconds)
        finally:
            disk.free()
