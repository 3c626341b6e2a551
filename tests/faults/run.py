"""One run: a deployment under load, faults, a last look, and the verdict on its history."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.checker import Promises, Violation, excerpt, violations
from tests.faults.clients import SILENCE, Recorder
from tests.faults.history import Execution, History
from tests.faults.injection import JUMPS, Injection
from tests.faults.load import Load
from tests.faults.nodes import rerun
from tests.faults.topology import QUOTA, TTL, Deployment, Shape, deployed

SLACK = 5.0
"""Seconds that a request may take longer than the bound: the machine may be busy with other things."""

SHOWN = 3
"""Violations of one rule that are printed in full."""


@dataclass(frozen=True)
class Verdict:
    """The history of a run, and the rules that it breaks."""

    shape: Shape
    seed: int
    history: History
    violations: list[Violation]
    seconds: float
    left_out: tuple[str, ...] = ()

    def report(self) -> str:
        """Counts of all that happened; below it each broken rule with the shortest history that shows it."""
        history = self.history
        told = Counter(f"{each.verb} {each.told}" for each in history.operations)
        kinds = Counter(f"{fault.kind} of {fault.target}" for fault in history.faults)
        lines = [
            f"{self.shape}, seed {self.seed}: {len(history.faults)} faults, {len(history.operations)} requests, "
            f"{len(history.executions)} executions in {self.seconds:.0f} s",
            *(f"  {count:>5}  {name}" for name, count in sorted(kinds.items())),
            *(f"  {count:>5}  {name}" for name, count in sorted(told.items())),
            *(f"  left out: {reason}" for reason in self.left_out),
        ]
        shown: Counter[str] = Counter()
        for violation in self.violations:
            shown[violation.rule] += 1
            if shown[violation.rule] <= SHOWN:
                lines += ["", excerpt(history, violation)]
        broken = ", ".join(f"{rule} ({count})" for rule, count in shown.items())
        lines.append(f"\nbroken: {broken}; --seed {self.seed}" if broken else "every rule was kept")
        return "\n".join(lines)


async def run(
    shape: Shape, faults: int, seed: int, place: Path, progress: Callable[[str], None] = lambda _: None
) -> Verdict:
    """Let so many faults happen to a deployment of this shape. ``place`` is an empty directory."""
    begun, chance = time.monotonic(), random.Random(seed)
    recorder = Recorder()
    async with deployed(shape, place) as deployment:
        load = Load(deployment.port, seed, recorder)
        injection = Injection(deployment, recorder.history, chance)
        progress(f"{shape}: serving after {time.monotonic() - begun:.1f} s")
        async with load.running():
            await injection.run(faults)
        progress(f"{len(recorder.history.faults)} faults after {time.monotonic() - begun:.1f} s")
        await settle(deployment)
        await load.last_look()
    recorder.history.executions = executions(deployment.journal)
    promises = Promises(SILENCE + SLACK, shape.grace, TTL - 2 * max(JUMPS), QUOTA)
    broken = violations(recorder.history, promises)
    return Verdict(shape, seed, recorder.history, broken, time.monotonic() - begun, _left_out(deployment))


async def settle(deployment: Deployment) -> None:
    """End what half-open connections have left, and wait until everything is ready."""
    for wire in (*deployment.fronts.values(), *deployment.backs.values()):
        wire.cut()
    for node in deployment.adapters:
        # It has failed after it listened, because another fault met it in its start.
        if node.has_ended:
            await rerun(node, 0, politely=False)
    await deployment.ready()


def executions(journal: Path) -> list[Execution]:
    """What the upstream has recorded."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    return [Execution(*line.split(" ", 1)) for line in lines]


def _left_out(deployment: Deployment) -> tuple[str, ...]:
    reasons = []
    if deployment.clocks.library is None:
        reasons.append("jumps of the clock, for which a C compiler is needed")
    if deployment.disk.holder is None:
        reasons.append("full disks, because nothing may be mounted here")
    return tuple(reasons)
