"""The word of a change to many replicas: ``python -m tests.bench.words [--replicas N] [--sessions N]``.

One adapter opens and ends sessions on a Redis that nobody else listens to; then a second adapter and as many plain
subscribers listen as there are to be replicas. The figures are CPU time for one session: that of Redis in both cases,
and that of the second adapter, which hears of each session and has nothing to do with it.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import uvloop

from adapter.state.redis.layout import Layout
from tests.bench.fronts import Running, end_tidily_when_terminated, upstream_running
from tests.bench.load import Client
from tests.bench.process import cpu_seconds, tree
from tests.bench.report import table
from tests.bench.shared_state import REDIS, STATES, adapter_on, redis_running

BASE, PARTITIONS = "mcp_remote_adapter", 64
"""The defaults of the settings."""

WARM = 20
REST = 2.0
"""Seconds without sessions, whose cost is not that of sessions."""


class Costs(NamedTuple):
    """CPU µs for one session that was opened and ended."""

    redis: float
    other: float


async def measured(replicas: int, sessions: int) -> tuple[Costs, Costs]:
    """The costs with one other replica, and with so many in all."""
    end_tidily_when_terminated()
    with tempfile.TemporaryDirectory(prefix="bench-") as room:
        place = Path(room)
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(upstream_running(place))
            port, redis = await stack.enter_async_context(redis_running(place))
            state = {**STATES[REDIS], "redis": {"host": "127.0.0.1", "port": port}}
            fronts = []
            for name in ("one", "other"):
                (place / name).mkdir()
                start = adapter_on(state, upstream, place / name)
                fronts.append(await stack.enter_async_context(start))
            few = await _costs(fronts, redis, sessions)
            listening = [asyncio.create_task(_listen(port)) for _ in range(replicas - len(fronts))]
            await asyncio.sleep(1)  # until all have subscribed: what they are answered is of no interest
            many = await _costs(fronts, redis, sessions)
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)
    return few, many


async def _costs(fronts: list[Running], redis: subprocess.Popen[bytes], sessions: int) -> Costs:
    one, other = fronts
    assert other.pid is not None
    client = await Client.connect(one.address)
    await _open_and_end(client, WARM)
    others = tree(other.pid)
    idle = await _spent(redis.pid, others, asyncio.sleep(REST))
    begun = time.perf_counter()
    busy = await _spent(redis.pid, others, _open_and_end(client, sessions))
    rests = (time.perf_counter() - begun) / REST
    client.close()
    return Costs(*((own - rest * rests) * 1e6 / sessions for own, rest in zip(busy, idle, strict=True)))


async def _spent(redis: int, others: list[int], work: Awaitable[None]) -> tuple[float, float]:
    """CPU seconds of Redis and of the others while the work is done."""
    before = cpu_seconds([redis]), cpu_seconds(others)
    await work
    return cpu_seconds([redis]) - before[0], cpu_seconds(others) - before[1]


async def _open_and_end(client: Client, sessions: int) -> None:
    for _ in range(sessions):
        await client.initialize()
        await client.delete()


async def _listen(port: int) -> None:
    """Subscribe to everything that replicas tell each other, and read it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for channel in Layout(BASE, PARTITIONS).channels:
        writer.write(b"*2\r\n$10\r\nSSUBSCRIBE\r\n$%d\r\n%s\r\n" % (len(channel), channel))
    try:
        while await reader.read(65536):
            pass
    finally:
        writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.words", description=__doc__)
    parser.add_argument("--replicas", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=1000)
    given = parser.parse_args()
    few, many = uvloop.run(measured(given.replicas, given.sessions))
    told = many.redis - few.redis
    rows = [
        ["CPU µs of a session, open and end", "2 replicas", f"{given.replicas} replicas"],
        ["Redis", f"{few.redis:.0f}", f"{many.redis:.0f}"],
        ["each replica that only hears of it", f"{few.other:.0f}", f"{many.other:.0f}"],
    ]
    sys.stdout.write(
        f"{table(rows)}\n\nRedis, for each further replica: {told / max(1, given.replicas - 2):.2f} µs\n"
    )


if __name__ == "__main__":
    main()
