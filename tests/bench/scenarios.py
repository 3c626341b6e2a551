"""The kinds of traffic, and one measurement of one of them through one front."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.bench.fronts import Running
from tests.bench.load import Client
from tests.bench.process import cpu_seconds, tree
from tests.bench.upstream import BIG_TEXT, EVENTS_IN_STREAM

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


async def tool_lists(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        await client.list()


async def big_requests(client: Client, count: int, observed: Observed) -> None:
    for _ in range(count):
        await client.call("reply", text=BIG_TEXT)


async def sessions(client: Client, count: int, observed: Observed) -> None:
    """As the official SDKs send them: the GET stream has a connection of its own, which ends with the session."""
    for _ in range(count):
        await client.initialize()
        stream = await client.held()
        await client.list()
        await client.delete()
        stream.close()


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
    Scenario("request", "1 MiB request", big_requests, 100),
    Scenario("churn", "SDK session", sessions, 400, makes_sessions=True),
    Scenario("first", "first event, 8 streams", paced_streams, 240, clients=8, cpu_counts=False),
)


AT_ONCE = 50
"""Sessions that are opened or ended at the same time, before and after what is counted."""


async def measure(scenario: Scenario, front: Running, count: int) -> Sample:
    """Run ``count`` units (rounded up to the same number for every client) on warm sessions.

    Opening and closing the sessions is not counted, except where that is the scenario.
    """
    async with warmed(scenario, front) as clients:
        return await counted(scenario, clients, front, count)


@asynccontextmanager
async def warmed(scenario: Scenario, front: Running) -> AsyncIterator[list[Client]]:
    """Connect the clients of the scenario, open their sessions, and let each do ``least`` units."""
    clients = [await Client.connect(front.address) for _ in range(scenario.clients)]
    try:
        if not scenario.makes_sessions:
            for some in batched(clients):
                await asyncio.gather(*(client.initialize() for client in some))
        await asyncio.gather(*(scenario.drive(client, scenario.least, Observed()) for client in clients))
        yield clients
        if not scenario.makes_sessions:
            for some in batched(clients):
                await asyncio.gather(*(client.delete() for client in some))
    finally:
        for client in clients:
            client.close()


def batched(clients: Sequence[Client]) -> Iterator[Sequence[Client]]:
    """``AT_ONCE`` of them after another."""
    for start in range(0, len(clients), AT_ONCE):
        yield clients[start : start + AT_ONCE]


async def counted(scenario: Scenario, clients: Sequence[Client], front: Running, count: int) -> Sample:
    """Run ``count`` units on clients that are warm; what the process tree of the front used for one."""
    each = max(scenario.least, -(-count // scenario.clients))
    observed = Observed()
    pids = tree(front.pid) if front.pid is not None else []
    before = cpu_seconds(pids)
    await asyncio.gather(*(scenario.drive(client, each, observed) for client in clients))
    await asyncio.sleep(SETTLE)
    spent = cpu_seconds(pids) - before
    units = each * scenario.clients
    return Sample(
        cpu=spent * 1e6 / units if pids else None, waits=observed.waits, events=observed.events / units
    )
