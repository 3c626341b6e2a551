"""The benchmark: what a call costs through the adapter, beside nginx, FastMCP's proxy and no proxy at all.

``python -m tests.bench [--quick] [--only calls|files] [--fronts direct,nginx,…] [--rounds N] [--placement …]
[--json FILE]``, or ``make bench``.

``upstream`` answers and ``load`` asks, both as cheaply as Python can, neither in a process that is counted.
``fronts`` are the proxies, ``process`` reads what the kernel says a process tree has used, ``scenarios`` are
the kinds of traffic; ``memory``, ``hotpath`` and ``files`` (uploads, downloads and calls with files, by
``transfers``, beside their ``limits``) are measurements of their own. ``results`` and
``costs`` make one number of many rounds, ``targets`` judges and ``report`` prints. In every round each scenario goes
through each front before the next scenario begins, so that a busy minute of the machine meets them all.
``tests.bench.leak`` is a check of its own.

Where the scheduler puts client, front and upstream decides what a wake-up costs and so moves every ratio. The default
leaves it free, as the targets were set. ``--placement apart`` gives the front a core of its own, as on a
machine of its own; ``together`` puts all on one core, where no wake-up crosses cores and only the work is left.
Both repeat far better than ``free`` and serve to compare two states of the code, not to judge the targets.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import uvloop

from tests.bench import files
from tests.bench.files import FileExtent
from tests.bench.fronts import (
    FRONTS,
    Front,
    FrontUnavailable,
    Running,
    end_tidily_when_terminated,
    upstream_running,
)
from tests.bench.hotpath import state_microseconds
from tests.bench.load import LoadFailed
from tests.bench.memory import measure_memory
from tests.bench.process import pin, tree
from tests.bench.report import report
from tests.bench.results import BASELINE, Results
from tests.bench.scenarios import SCENARIOS, measure
from tests.bench.targets import SUBJECT


@dataclass(frozen=True)
class Extent:
    """How much is measured. ``part`` is the share of each scenario's count that every round takes."""

    rounds: int
    part: float
    idle: int
    held: int
    files: FileExtent
    placement: str = "free"
    only: str | None = None


CORES = sorted(os.sched_getaffinity(0))
FULL = Extent(rounds=5, part=1.0, idle=2000, held=300, files=files.FULL)
QUICK = Extent(rounds=1, part=0.02, idle=50, held=10, files=files.QUICK)


async def run(fronts: list[Front], extent: Extent) -> Results:
    """Measure everything; a front that cannot start or answers wrongly is noted and left out."""
    end_tidily_when_terminated()
    results = Results({front.name: front.title for front in fronts})
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        async with upstream_running(Path(place)) as upstream:
            if extent.only != "files":
                await _measure_rounds(fronts, extent, upstream, Path(place), results)
                await _measure_memory(fronts, extent, upstream, Path(place), results)
                results.lookup = state_microseconds()
            if extent.only != "calls" and any(front.name == SUBJECT for front in fronts):
                await _measure_files(fronts, extent, upstream, Path(place), results)
    return results


async def _measure_rounds(
    fronts: list[Front], extent: Extent, upstream: int, place: Path, results: Results
) -> None:
    async with AsyncExitStack() as stack:
        running: dict[Front, Running] = {}
        for front in fronts:
            try:
                started = await stack.enter_async_context(front.start(upstream, _room(place, front)))
            except FrontUnavailable as reason:
                results.skipped[front.name] = str(reason)
                continue
            running[front] = started
            if started.pid is not None and extent.placement == "apart":
                pin(tree(started.pid), CORES[-1])
        for number in range(1, extent.rounds + 1):
            for scenario in SCENARIOS:
                _progress(f"round {number} of {extent.rounds}: {scenario.title}")
                for front in [front for front in running if front.name not in results.skipped]:
                    count = int(scenario.count * extent.part * front.share)
                    try:
                        sample = await measure(scenario, running[front], count)
                    except (LoadFailed, OSError) as failure:
                        results.skipped[front.name] = f"{scenario.title}: {failure}"
                    else:
                        results.add(front.name, scenario.name, sample)


async def _measure_memory(
    fronts: list[Front], extent: Extent, upstream: int, place: Path, results: Results
) -> None:
    """Each front anew: one that has worked has free memory that would hide what a session takes."""
    for front in fronts:
        if front.name in results.skipped:
            continue
        _progress(f"memory: {front.title}")
        idle, held = (max(20, int(count * min(1, front.share * 2))) for count in (extent.idle, extent.held))
        try:
            async with front.start(upstream, _room(place, front, "memory")) as running:
                if running.pid is not None:
                    results.memory[front.name] = await measure_memory(running, idle=idle, held=held)
        except (FrontUnavailable, LoadFailed, OSError) as reason:
            results.skipped[front.name] = f"memory: {reason}"


async def _measure_files(
    fronts: list[Front], extent: Extent, upstream: int, place: Path, results: Results
) -> None:
    room = place / "files"
    room.mkdir()
    beside_nginx = any(front.name == BASELINE for front in fronts)
    try:
        await files.measure_files(
            extent.files, upstream, room, results.files, _progress, beside_nginx=beside_nginx
        )
    except (FrontUnavailable, LoadFailed, OSError) as reason:
        results.files.skipped[SUBJECT] = str(reason)


def _room(place: Path, front: Front, purpose: str = "rounds") -> Path:
    room = place / f"{front.name}-{purpose}"
    room.mkdir()
    return room


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _fronts(names: str) -> list[Front]:
    chosen = [name.strip() for name in names.split(",")]
    if unknown := [name for name in chosen if name not in FRONTS]:
        known = ", ".join(FRONTS)
        raise argparse.ArgumentTypeError(f"no front is called {unknown[0]!r}; there are {known}")
    return [FRONTS[name] for name in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure the adapter.")
    parser.add_argument("--quick", action="store_true", help="a few calls, to see that everything runs")
    parser.add_argument("--only", choices=("calls", "files"), help="leave the other part out")
    parser.add_argument("--rounds", type=int, help="rounds of every scenario through every front")
    parser.add_argument(
        "--fronts", type=_fronts, default=list(FRONTS.values()), help=f"of {','.join(FRONTS)}, with commas"
    )
    parser.add_argument(
        "--placement", choices=("free", "apart", "together"), default="free", help="which cores run what"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there too")
    given = parser.parse_args()
    extent = QUICK if given.quick else FULL
    extent = replace(extent, placement=given.placement, only=given.only)
    if given.rounds:
        extent = replace(extent, rounds=given.rounds, files=replace(extent.files, rounds=given.rounds))
    if given.placement != "free":
        pin([os.getpid()], CORES[0])  # and so everything that is started from here
    results = uvloop.run(run(given.fronts, extent))
    sys.stdout.write("\n\n".join(report(results)) + "\n")
    if given.json:
        given.json.write_bytes(orjson.dumps(results.as_json(), option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
