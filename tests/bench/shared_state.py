"""State that processes share beside state in memory: ``python -m tests.bench.shared_state [--quick]``.

Adapters with the same settings but for their state take turns: in memory, in SQLite, in SQLite shared by two workers,
and in Redis. Figures are the CPU time of the adapter's processes; the client, the upstream and Redis are not counted.
Ends with status 1 above a target.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from tests.bench.fronts import (
    FrontUnavailable,
    Running,
    adapter_settings,
    adapter_with,
    end,
    end_tidily_when_terminated,
    free_port,
    upstream_running,
)
from tests.bench.load import Address, Client
from tests.bench.report import table
from tests.bench.scenarios import SCENARIOS, Scenario, measure
from tests.e2e.replicas import redis_argv
from tests.missing import Missing

WORKERS = 2
MEMORY, SQLITE, REDIS = "memory", "SQLite", "Redis"
SHARED = f"SQLite, {WORKERS} workers"
STATES: dict[str, dict[str, Any]] = {
    MEMORY: {"type": "memory"},
    SQLITE: {"type": "disk"},
    SHARED: {"type": "disk"},
    REDIS: {"type": "redis"},
}

CALL, MANY, SESSION = "seq", "conc", "churn"

MOST_CALL = 1.05
"""Warm calls with state in memory that one with shared state may cost."""

MOST_SESSION = 0.5
"""Milliseconds that opening and ending a session may cost more than with state in memory."""

MOST_WORKERS = WORKERS / 1.7
"""Calls of one process that a call through workers may cost: with it, two serve 1.7 times as many on two cores."""

WAIT = 10.0
"""Seconds until Redis answers."""


class Extent(NamedTuple):
    """``share`` of each scenario's count in each of the ``rounds``; ``sessions`` to be open in Redis."""

    rounds: int
    share: float
    sessions: int


FULL = Extent(8, 0.5, 800)
QUICK = Extent(1, 0.02, 20)

Costs = dict[str, dict[str, list[float]]]
"""CPU µs of a unit by scenario and state, round by round."""


class Target(NamedTuple):
    """A bound, and the value of this run; None where it could not be measured."""

    measure: str
    most: float
    value: float | None

    def row(self) -> list[str]:
        value = "not measured" if self.value is None else f"{self.value:.2f}"
        return [self.measure, value, f"{self.most:.2f}"]


class Held(NamedTuple):
    """One open session in Redis: ``size`` in bytes, the ``steps`` (scripts) in which it was opened and ended, and the
    ``cpu`` µs that Redis needed for them.
    """

    size: float
    steps: float
    cpu: float


class Measured(NamedTuple):
    """``missing`` says for each state that could not be measured why. ``held`` is None without Redis."""

    costs: Costs
    missing: dict[str, str]
    held: Held | None


async def measured(extent: Extent) -> Measured:
    """Everything, in turns."""
    end_tidily_when_terminated()
    scenarios = [each for each in SCENARIOS if each.name in (CALL, MANY, SESSION)]
    with tempfile.TemporaryDirectory(prefix="bench-") as room:
        async with AsyncExitStack() as stack:
            fronts, missing, redis = await _fronts(stack, Path(room))
            costs: Costs = {each.name: {name: [] for name in fronts} for each in scenarios}
            for _ in range(extent.rounds):
                for scenario in scenarios:
                    for name, front in fronts.items():
                        costs[scenario.name][name].append(await _cost(scenario, front, extent))
            held = await _held_by_redis(fronts[REDIS], redis, extent.sessions) if REDIS in fronts else None
    return Measured(costs, missing, held)


async def _held_by_redis(front: Running, port: int, count: int) -> Held:
    before = await _info(port)
    clients = [await Client.connect(front.address) for _ in range(count)]
    try:
        for client in clients:
            await client.initialize()
        full = await _info(port)
        for client in clients:
            await client.delete()
    finally:
        for client in clients:
            client.close()
    after = await _info(port)
    size = full["used_memory"] - before["used_memory"]
    steps, cpu = (after[name] - before[name] for name in ("calls", "usec"))
    return Held(size / count, steps / count, cpu / count)


async def _info(port: int) -> dict[str, int]:
    """Memory that Redis uses, and the number and CPU µs of the scripts that it has run."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"INFO everything\r\n")
    size = int((await reader.readline())[1:])
    text = (await reader.readexactly(size)).decode()
    writer.close()
    await writer.wait_closed()
    scripts = re.search(r"cmdstat_evalsha:calls=(\d+),usec=(\d+)", text)
    memory = re.search(r"used_memory:(\d+)", text)
    assert memory is not None
    calls, usec = (int(number) for number in scripts.groups()) if scripts is not None else (0, 0)
    return {"used_memory": int(memory[1]), "calls": calls, "usec": usec}


async def _cost(scenario: Scenario, front: Running, extent: Extent) -> float:
    sample = await measure(scenario, front, int(scenario.count * extent.share))
    assert sample.cpu is not None
    return sample.cpu


async def _fronts(stack: AsyncExitStack, place: Path) -> tuple[dict[str, Running], dict[str, str], int]:
    upstream = await stack.enter_async_context(upstream_running(place))
    fronts: dict[str, Running] = {}
    missing: dict[str, str] = {}
    port = 0
    for name, state in STATES.items():
        room = place / name.replace(" ", "-")
        room.mkdir()
        try:
            if name == REDIS:
                port, _ = await stack.enter_async_context(redis_running(room))
                state = {**state, "redis": {"host": "127.0.0.1", "port": port}}
            fronts[name] = await stack.enter_async_context(
                adapter_on(state, upstream, room, WORKERS if name == SHARED else 1)
            )
        except (FrontUnavailable, Missing) as reason:
            missing[name] = str(reason)
    return fronts, missing, port


@asynccontextmanager
async def adapter_on(
    state: dict[str, Any], upstream: int, place: Path, workers: int = 1, bearer: str = ""
) -> AsyncIterator[Running]:
    """The adapter as it is deployed, with this state; ``bearer`` is its token, by default one that nobody else has."""
    address = Address(free_port(), "/mcp/bench", bearer or secrets.token_hex(16))
    settings: dict[str, Any] = adapter_settings(upstream, address.port, address.bearer, place)
    settings["state_persistence"] = state
    if workers > 1:
        settings["core"]["workers"] = workers
    async with adapter_with(settings, address, place) as running:
        yield running


@asynccontextmanager
async def redis_running(place: Path) -> AsyncIterator[tuple[int, subprocess.Popen[bytes]]]:
    """A Redis of its own, its port and its process. Raises Missing."""
    port = free_port()
    with (place / "redis.log").open("wb") as log:
        process = subprocess.Popen(redis_argv(port, place), stdout=log, stderr=log)
    try:
        async with asyncio.timeout(WAIT):
            while not await _listens(port):
                await asyncio.sleep(0.05)  # there is no event to wait for: another process opens its port
        yield port, process
    finally:
        end(process)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


def targets(costs: Costs) -> list[Target]:
    """The bounds, with the median of the rounds beside each."""

    def times(scenario: str, state: str, base: str) -> float | None:
        own, other = costs[scenario].get(state), costs[scenario].get(base)
        if not own or not other:
            return None
        return statistics.median(a / b for a, b in zip(own, other, strict=True))

    def added(state: str) -> float | None:
        own, other = costs[SESSION].get(state), costs[SESSION].get(MEMORY)
        if not own or not other:
            return None
        return statistics.median(a - b for a, b in zip(own, other, strict=True)) / 1e3

    return [
        Target("warm call, SQLite shared, × memory", MOST_CALL, times(CALL, SHARED, MEMORY)),
        Target("warm call, Redis, × memory", MOST_CALL, times(CALL, REDIS, MEMORY)),
        Target("session opened and ended, Redis, ms more than memory", MOST_SESSION, added(REDIS)),
        Target(f"call, {WORKERS} workers, × one process", MOST_WORKERS, times(MANY, SHARED, SQLITE)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shared_state", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    costs, missing, held = uvloop.run(measured(QUICK if quick else FULL))
    titles = {each.name: each.title for each in SCENARIOS}
    names = list(next(iter(costs.values())))
    rows = [
        [titles[scenario], *(f"{statistics.median(of[name]):.0f}" for name in names)]
        for scenario, of in costs.items()
    ]
    found = targets(costs)
    print(table([["CPU µs", *names], *rows]))
    print()
    print(table([["", "median", "at most"], *(target.row() for target in found)]))
    if held is not None:
        print(
            f"\na session in Redis: {held.size:.0f} bytes while it is open; {held.steps:.1f} scripts from its begin "
            f"to its end, which take Redis {held.cpu:.0f} µs"
        )
    for name, reason in missing.items():
        print(f"not measured: {name}: {reason}")
    above = any(target.value is not None and target.value > target.most for target in found)
    return int(above and not quick)


if __name__ == "__main__":
    sys.exit(main())
