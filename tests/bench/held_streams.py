"""Many open GET streams: the memory of one, and what a call costs beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.bench import fronts
from tests.bench.fronts import Front, Running
from tests.bench.load import Client
from tests.bench.memory import settled_rss, warm_up
from tests.bench.process import allow_open_files
from tests.bench.results import SUBJECT
from tests.bench.run import Run, progress
from tests.bench.scenarios import Scenario, batched, measure, one_call_at_a_time

PART = "streams"
KIB = 1024
RESERVED_FILES = 500
"""Open files of a front beside the two that a stream needs."""

CALL = Scenario("seq", "call", one_call_at_a_time, 2000)

WITHOUT, BESIDE = "call without streams, CPU µs", "call beside them, CPU µs"
MEMORY = "RSS of a stream and its session, KiB"


async def measure_streams(run: Run) -> None:
    """Measure each front anew in every round, with as many streams as the system has open files for."""
    count = min(run.extent.sizes.streams, (allow_open_files() - RESERVED_FILES) // 2)
    if count < run.extent.sizes.streams:
        run.results.missing[PART] = f"the system allows open files for {count:,} streams only"
    for number in range(1, run.extent.sizes.rounds + 1):
        for front in run.counted_fronts():
            progress(f"round {number} of {run.extent.sizes.rounds}: {count:,} streams, {front.title}")
            with run.noting(PART, front.name):
                async with _roomy(front, count).start(
                    run.upstream, run.room(PART, front.name, number)
                ) as running:
                    await _measure(run, front, running, count)


def _roomy(front: Front, streams: int) -> Front:
    """The front with settings that allow so many streams; the other fronts allow them already."""
    if front.name != SUBJECT:
        return front
    core = {"max_connections": 2 * streams + 100, "upstream": {"max_connections": streams}}
    return replace(front, start=lambda upstream, place: fronts.adapter(upstream, place, core=core))


async def _measure(run: Run, front: Front, running: Running, count: int) -> None:
    assert running.pid is not None
    calls = int(CALL.count * run.extent.part)
    figures = run.results.figures
    await warm_up(running, min(count, 100))
    without = await measure(CALL, running, calls)
    rest = await settled_rss(running.pid)
    async with _held(running, count):
        resident = await settled_rss(running.pid)
        beside = await measure(CALL, running, calls)
    assert without.cpu is not None and beside.cpu is not None
    figures.add(PART, WITHOUT, front.name, without.cpu)
    figures.add(PART, BESIDE, front.name, beside.cpu)
    figures.add(PART, MEMORY, front.name, (resident - rest) / count / KIB)


@asynccontextmanager
async def _held(running: Running, count: int) -> AsyncIterator[None]:
    """Keep so many streams open, each of a session of its own, while the block lasts."""
    holders = [await Client.connect(running.address) for _ in range(count)]
    try:
        for some in batched(holders):
            await asyncio.gather(*(_open(holder) for holder in some))
        yield
    finally:
        for holder in holders:
            holder.close()


async def _open(holder: Client) -> None:
    await holder.initialize()
    await holder.hold()
