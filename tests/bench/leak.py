"""What finished work leaves behind in the adapter: ``python -m tests.bench.leak [--sessions N] [--calls N]``.

Sessions are opened and deleted, then one session makes many calls; RSS, descriptors and the upstream's
sessions are read before, in the middle and after. What the first half leaves is warm-up (pools, arenas of the
allocator); what grows in the second half is a leak. Ends with status 1 when something grew.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop

from tests.bench.fronts import Running, adapter, end_tidily_when_terminated, upstream_running
from tests.bench.load import Client, upstream_census
from tests.bench.process import open_descriptors, rss_bytes, tree
from tests.bench.report import table
from tests.bench.targets import MIB

AT_ONCE = 8
WARM_UP = 10 * AT_ONCE
"""Units before the first reading: they fill the pool of connections to the upstream."""
SLACK_RSS = 2 * MIB
"""Bytes that RSS may move without a leak: arenas of the allocator, a log buffer, the pages SQLite keeps."""
SLACK_DESCRIPTORS = 4
CATCH_UP = 30.0
"""Seconds the adapter is given to close upstream what its clients have ended."""
SETTLE = 0.5


@dataclass(frozen=True)
class Holding:
    """What the adapter holds: RSS in bytes, descriptors, and sessions that are open at the upstream."""

    rss: int
    descriptors: int
    upstream_sessions: int

    def row(self, moment: str) -> list[str]:
        return [moment, f"{self.rss / MIB:.2f}", str(self.descriptors), str(self.upstream_sessions)]


class Watched:
    """An adapter and the upstream behind it."""

    def __init__(self, front: Running, upstream: int) -> None:
        assert front.pid is not None
        self.address = front.address
        self._pid = front.pid
        self._upstream = upstream

    async def holding(self, *, at_most: int) -> Holding:
        """What is held as soon as the upstream has no more than ``at_most`` sessions, or CATCH_UP is over."""
        deadline = time.monotonic() + CATCH_UP
        await asyncio.sleep(SETTLE)
        while True:
            upstream_sessions = (await upstream_census(self._upstream))["open"]
            if upstream_sessions <= at_most or time.monotonic() > deadline:
                pids = tree(self._pid)
                return Holding(rss_bytes(pids), open_descriptors(pids), upstream_sessions)
            await asyncio.sleep(SETTLE)

    async def open_and_delete(self, sessions: int) -> None:
        async def share(count: int) -> None:
            client = await Client.connect(self.address)
            for _ in range(count):
                await client.initialize()
                await client.call()
                await client.delete()
            client.close()

        await asyncio.gather(*(share(sessions // AT_ONCE) for _ in range(AT_ONCE)))

    async def call_on_one_session(self, calls: int) -> None:
        client = await Client.connect(self.address)
        await client.initialize()
        for number in range(calls):
            await client.call("stream" if number % 50 == 0 else "echo", events=3)
        await client.delete()
        client.close()


async def check(watched: Watched, title: str, work: Callable[[int], Awaitable[None]], units: int) -> bool:
    """Do the work in two halves and print what is held around them. True when nothing grew."""
    await work(WARM_UP)
    before = await watched.holding(at_most=1)
    await work(units // 2)
    middle = await watched.holding(at_most=before.upstream_sessions)
    await work(units // 2)
    after = await watched.holding(at_most=before.upstream_sessions)
    flat = (
        after.rss - middle.rss <= SLACK_RSS
        and after.descriptors - before.descriptors <= SLACK_DESCRIPTORS
        and after.upstream_sessions <= before.upstream_sessions
    )
    rows = [
        [f"{units} {title}", "RSS MiB", "descriptors", "upstream sessions"],
        before.row("before"),
        middle.row(f"after {units // 2}"),
        after.row(f"after {units}"),
    ]
    verdict = "nothing grew" if flat else "IT GREW"
    per_unit = (after.rss - middle.rss) / (units // 2)
    sys.stdout.write(f"{table(rows)}\n{verdict}: {per_unit:+.0f} bytes a unit in the second half\n\n")
    return flat


async def run(sessions: int, calls: int) -> bool:
    end_tidily_when_terminated()
    with tempfile.TemporaryDirectory(prefix="leak-") as name:
        place = Path(name)
        async with upstream_running(place) as upstream, adapter(upstream, place) as front:
            watched = Watched(front, upstream)
            closed = await check(watched, "sessions opened and deleted", watched.open_and_delete, sessions)
            answered = await check(watched, "calls on one session", watched.call_on_one_session, calls)
    return closed and answered


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.leak", description="Look for what grows.")
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=20_000)
    given = parser.parse_args()
    sys.exit(0 if uvloop.run(run(given.sessions, given.calls)) else 1)


if __name__ == "__main__":
    main()
