"""The kinds of traffic, and one measurement of one of them through one front."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.bench.fronts import Running
from tests.bench.load import Client
from tests.bench.process import cpu_seconds, tree
from tests.bench.upstream import EVENTS_IN_STREAM

SETTLE = 0.15
"""Seconds after the last answer that count too: write-behind and buffered lines are part of the cost."""


@dataclass
class Sample:
    """One measurement. ``cpu`` is µs per unit or None without a process, ``waits`` are seconds."""

    cpu: float | None
    waits: list[float] = field(default_factory=list)
    events: float = 0.0


@dataclass
class Observed:
    """What the load client saw: the seconds it waited per unit and the events it received in all."""

    waits: list[float] = field(default_factory=list)
    events: int = 0


Drive = Callable[[Client, int, Observed], Awaitable[None]]


async def one_call_at_a_time(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        begun = time.perf_counter()
        await client.call("echo", a=1, b=2)
        observed.waits.append(time.perf_counter() - begun)


async def streams(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        answer = await client.call("stream", pause_ms=1)
        observed.events += answer.body.count(b"notifications/progress")


async def paced_streams(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        answer = await client.call("stream", events=5, pause_ms=4)
        observed.waits.append(answer.first_event)


async def big_answers(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        await client.call("big")


async def sessions(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        await client.initialize()
        await client.call()
        await client.delete()


@dataclass(frozen=True)
class Scenario:
    """``count`` units over ``clients`` connections, on each at least ``least``.

    ``cpu_counts`` is False where only the waiting is of interest.
    """

    name: str
    title: str
    drive: Drive
    count: int
    clients: int = 1
    least: int = 2
    makes_sessions: bool = False
    cpu_counts: bool = True


SCENARIOS = (
    Scenario("seq", "call", one_call_at_a_time, 2000),
    Scenario("conc", "call, 8 at once", one_call_at_a_time, 4000, clients=8),
    Scenario("sse", f"stream of {EVENTS_IN_STREAM}", streams, 320, clients=8),
    Scenario("big", "1 MiB answer", big_answers, 150),
    Scenario("churn", "session", sessions, 400, makes_sessions=True),
    Scenario("first", "first event, 8 streams", paced_streams, 240, clients=8, cpu_counts=False),
)


async def measure(scenario: Scenario, front: Running, count: int) -> Sample:
    """Run ``count`` units (rounded up to the same number for every client) on warm sessions.

    Opening and closing the sessions is not counted, except where that is the scenario.
    """
    clients = [await Client.connect(front.address) for _ in range(scenario.clients)]
    each = max(scenario.least, -(-count // scenario.clients))
    observed = Observed()
    try:
        if not scenario.makes_sessions:
            for client in clients:
                await client.initialize()
        await asyncio.gather(*(scenario.drive(client, scenario.least, Observed()) for client in clients))
        pids = tree(front.pid) if front.pid is not None else []
        before = cpu_seconds(pids)
        await asyncio.gather(*(scenario.drive(client, each, observed) for client in clients))
        await asyncio.sleep(SETTLE)
        spent = cpu_seconds(pids) - before
        if not scenario.makes_sessions:
            for client in clients:
                await client.delete()
    finally:
        for client in clients:
            client.close()
    units = each * scenario.clients
    return Sample(spent * 1e6 / units if pids else None, observed.waits, observed.events / units)
