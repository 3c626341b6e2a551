"""Lists of many tools: what the first and the next ones cost, and how long others wait for the first."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.bench.catalogue import GUARDED, OPEN, Stage, stage_with, watched_first_list
from tests.bench.fronts import FRONTS, Running
from tests.bench.load import Client
from tests.bench.process import cpu_seconds, tree
from tests.bench.results import BARE, BASELINE, SUBJECT
from tests.bench.run import Run, progress
from tests.bench.scenarios import SETTLE, Scenario, measure, tool_lists, warmed

PART = "lists"
SESSIONS = 100
GUARDING = "adapter, guarded"
"""The adapter with all policies of tools; the front ``adapter`` of this part pipes its lists."""


def first(tools: int) -> str:
    """The measure of a session that asks for so many tools before anybody else did."""
    return f"session and first list of {tools:,}, CPU ms"


def warm(tools: int) -> str:
    """The measure of a later list."""
    return f"next list of {tools:,}, CPU µs"


def of_session(tools: int) -> str:
    """The measure of the first list of a session that is not the first of its process."""
    return f"first list of a later session, {tools:,}, CPU µs"


def wait(tools: int) -> str:
    """The measure of the longest time that somebody else waited during the first list."""
    return f"others wait for the first of {tools:,}, ms"


async def measure_lists(run: Run) -> None:
    """Start every front anew in each round, since a list is the first one only once."""
    sizes = run.extent.sizes
    for number in range(1, sizes.rounds + 1):
        for tools in sizes.tools:
            progress(f"round {number} of {sizes.rounds}: {tools:,} tools")
            async with stage_with(run.room(PART, number, tools), tools) as stage:
                for name in (BASELINE, BARE):
                    if run.has(name):
                        with run.noting(PART, name):
                            await _measure_anchor(run, stage, name, tools)
                for name, core in ((SUBJECT, OPEN), (GUARDING, GUARDED)):
                    with run.noting(PART, name):
                        await _measure_adapter(run, stage, name, core, tools)


async def _measure_anchor(run: Run, stage: Stage, name: str, tools: int) -> None:
    front = await stage.front(FRONTS[name])
    assert front.pid is not None
    before = cpu_seconds(tree(front.pid))
    client = await Client.connect(front.address)
    await client.initialize()
    await client.list()
    spent = cpu_seconds(tree(front.pid)) - before
    client.close()
    run.results.figures.add(PART, first(tools), name, spent * 1e3)
    await _measure_next(run, front, name, tools)


async def _measure_adapter(run: Run, stage: Stage, name: str, core: dict[str, Any], tools: int) -> None:
    """The adapter has a second server, because its start asks the first one for a session. What the watcher asks it
    for meanwhile is in the cost of the first list: a few percent.
    """
    front, address = await stage.adapter_of_two(core)
    assert front.pid is not None
    before = cpu_seconds(tree(front.pid))
    longest, _ = await watched_first_list(address)
    spent = cpu_seconds(tree(front.pid)) - before
    run.results.figures.add(PART, first(tools), name, spent * 1e3)
    run.results.figures.add(PART, wait(tools), name, longest * 1e3)
    await _measure_next(run, Running(address, front.pid), name, tools)


async def _measure_next(run: Run, front: Running, name: str, tools: int) -> None:
    lists = Scenario(PART, PART, tool_lists, max(10, 100_000 // tools))
    sample = await measure(lists, front, int(lists.count * run.extent.part))
    assert sample.cpu is not None
    run.results.figures.add(PART, warm(tools), name, sample.cpu)
    if tools == run.extent.sizes.tools[0]:
        run.results.figures.add(PART, of_session(tools), name, await _first_of_sessions(front))


async def _first_of_sessions(front: Running) -> float:
    """µs of CPU for the first list of a session, one session after another."""
    assert front.pid is not None
    pids = tree(front.pid)
    async with warmed(
        Scenario(PART, PART, tool_lists, SESSIONS, clients=SESSIONS, least=0), front
    ) as clients:
        before = cpu_seconds(pids)
        for client in clients:
            await client.list()
        await asyncio.sleep(SETTLE)
        return (cpu_seconds(pids) - before) * 1e6 / len(clients)
