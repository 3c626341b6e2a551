"""The parts of the benchmark, each with a limit of its time, so that a run ends within a quarter of an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.bench import files
from tests.bench.eras import measure_eras
from tests.bench.fronts import FrontUnavailable
from tests.bench.load import LoadFailed
from tests.bench.memory import PART, measure_memory
from tests.bench.mounts import measure_mounts
from tests.bench.process import cores, pin, tree
from tests.bench.python_calls import count_python_calls
from tests.bench.results import BASELINE, ENVOY, SUBJECT
from tests.bench.run import Run, progress
from tests.bench.scenarios import SCENARIOS, measure
from tests.bench.switched import measure_switched
from tests.bench.tool_lists import measure_lists


@dataclass(frozen=True)
class Part:
    """``seconds`` after which the part is given up. Rounds that are over by then count."""

    measure: Callable[[Run], Awaitable[None]]
    seconds: float


async def measure_parts(run: Run, parts: Mapping[str, Part]) -> None:
    """Measure the parts one after another. The report says which could not be measured, and why."""
    for name, part in parts.items():
        try:
            async with asyncio.timeout(part.seconds):
                await part.measure(run)
        except TimeoutError:
            run.results.missing[name] = f"it was not over after {part.seconds:.0f} seconds"
        except (FrontUnavailable, LoadFailed, OSError) as reason:
            run.results.missing[name] = str(reason) or repr(reason)


async def _measure_calls(run: Run) -> None:
    """Every scenario through every front, round by round; a front that fails is left out from then on."""
    skipped, extent = run.results.skipped, run.extent
    async with run.started("calls", run.fronts) as running:
        if extent.placement == "apart":
            for started in running.values():
                if started.pid is not None:
                    pin(tree(started.pid), cores()[-1])
        for number in range(1, extent.rounds + 1):
            for scenario in SCENARIOS:
                progress(f"round {number} of {extent.rounds}: {scenario.title}")
                for front in [front for front in running if front.name not in skipped]:
                    count = int(scenario.count * extent.part * front.share)
                    try:
                        sample = await measure(scenario, running[front], count)
                    except (LoadFailed, OSError) as failure:
                        skipped[front.name] = f"{scenario.title}: {failure}"
                    else:
                        run.results.add(front.name, scenario.name, sample)


async def _measure_memory(run: Run) -> None:
    """Each front anew: one that has worked has free memory that would hide what a session takes."""
    for front in (front for front in run.fronts if front.name != ENVOY):
        progress(f"memory: {front.title}")
        idle = max(20, int(run.extent.idle * min(1, front.share * 2)))
        with run.noting("memory", front.name):
            async with front.start(run.upstream, run.room("memory", front.name)) as running:
                if running.pid is not None:
                    run.results.figures.add_all(PART, front.name, await measure_memory(running, idle))


async def _measure_files(run: Run) -> None:
    await files.measure_files(
        run.extent.files,
        run.upstream,
        run.room("files"),
        run.results.figures,
        run.results.missing,
        progress,
        beside_nginx=run.has(BASELINE),
    )


async def _count_calls(run: Run) -> None:
    progress("Python calls are counted")
    run.results.calls = await count_python_calls(run.room("counts"))


def _of_adapter(measure_part: Callable[[Run], Awaitable[None]]) -> Callable[[Run], Awaitable[None]]:
    """The part, for runs that have the adapter among their fronts."""

    async def measure_if_it_runs(run: Run) -> None:
        if run.has(SUBJECT):
            await measure_part(run)

    return measure_if_it_runs


PARTS = {
    "counts": Part(_of_adapter(_count_calls), 120),
    "calls": Part(_measure_calls, 250),
    "switched": Part(_of_adapter(measure_switched), 130),
    "memory": Part(_measure_memory, 60),
    "lists": Part(_of_adapter(measure_lists), 100),
    "mounts": Part(_of_adapter(measure_mounts), 60),
    "eras": Part(_of_adapter(measure_eras), 60),
    "files": Part(_of_adapter(_measure_files), 90),
}
