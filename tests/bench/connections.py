"""The same calls over few and many client connections: what a call costs, and what it opens upstream."""

from __future__ import annotations

from tests.bench.fronts import Front, Running
from tests.bench.load import upstream_census
from tests.bench.run import Run, progress
from tests.bench.scenarios import Scenario, counted, one_call_at_a_time, warmed

PART = "connections"


def cost(connections: int) -> str:
    """The measure of a call's cost over so many connections."""
    return f"call over {connections:,}, CPU µs"


def opened(connections: int) -> str:
    """The measure of upstream connections that a call opens."""
    return f"upstream connections opened for a call, {connections:,}"


async def measure_connections(run: Run) -> None:
    """Compare the numbers of connections in turn. Each client calls again as soon as it has its answer."""
    sizes = run.extent.sizes
    async with run.started(PART, run.counted_fronts()) as running:
        for number in range(1, sizes.rounds + 1):
            for connections in sizes.connections:
                progress(f"round {number} of {sizes.rounds}: {connections:,} connections")
                for front, started in running.items():
                    with run.noting(PART, front.name):
                        await _measure(run, front, started, connections)


async def _measure(run: Run, front: Front, started: Running, connections: int) -> None:
    scenario = Scenario(PART, PART, one_call_at_a_time, 2000 + 4 * connections, clients=connections)
    async with warmed(scenario, started) as clients:
        before = await upstream_census(run.upstream)
        sample = await counted(scenario, clients, started, int(scenario.count * run.extent.part))
        after = await upstream_census(run.upstream)
    assert sample.cpu is not None
    figures = run.results.figures
    figures.add(PART, cost(connections), front.name, sample.cpu)
    new = after["connections"] - before["connections"] - 1  # without the one that asked
    figures.add(PART, opened(connections), front.name, new / len(sample.waits))
