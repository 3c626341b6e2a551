"""One run: load without faults, in two halves, and what is held before, between and after them."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.clients import Recorder, Visitor
from tests.faults.history import Told
from tests.faults.load import Load
from tests.faults.topology import Deployment, Shape, deployed
from tests.soak.holding import Holding, grown, holding, settled, shown

WARM_UP = 0.15
"""Share of the time before the first reading: it fills pools, and starts all threads."""

CATCH_UP = 30.0
"""Seconds in which everything that clients have ended has to be gone, upstream, on disk and in the state."""

SOON = 1
"""Seconds that things are kept after their end: long enough to meet the cleanup, short beside the run."""

UNUSED = 15
"""Seconds that an upload is kept without use: more than lie between two steps of a client."""

STDIO = "/stdio"
STDIO_PAUSE = 0.5
"""Seconds between two sessions of the server over stdio, each of which is a process."""

STDIO_CALLS = 4


@dataclass(frozen=True)
class Verdict:
    """``holdings``: three moments. ``requests``: those of both halves;
    ``failed``: those without an answer that a client could understand. ``grown``: names of what should not have."""

    shape: Shape
    holdings: dict[str, Holding]
    requests: int
    failed: int
    seconds: float
    grown: list[str]

    def report(self) -> str:
        _, middle, after = self.holdings.values()
        per_request = (after.rss - middle.rss) / max(1, self.requests / 2)
        done = (
            f"{self.shape}: {self.requests} requests, {self.failed} of them failed, in {self.seconds:.0f} s"
        )
        verdict = f"grown: {', '.join(self.grown)}" if self.grown else "nothing grew"
        memory = f"{per_request:+.0f} bytes of memory for each request of the second half"
        return f"{done}\n\n{shown(self.holdings)}\n\n{verdict}; {memory}"


async def run(
    shape: Shape, seconds: float, seed: int, place: Path, progress: Callable[[str], None] = lambda _: None
) -> Verdict:
    """Load a deployment of this shape for so many seconds. ``place`` is an empty directory."""
    begun = time.monotonic()
    async with deployed(shape, place, _short_lived) as deployment:
        await _work(deployment, seed, seconds * WARM_UP)
        holdings = {"before": await _drained(deployment)}
        requests = failed = 0
        for number, moment in enumerate(("in the middle", "at the end"), 1):
            progress(f"{time.monotonic() - begun:.0f} s: half {number}")
            told = await _work(deployment, seed + number, seconds * (1 - WARM_UP) / 2)
            requests += len(told)
            failed += sum(each not in (Told.DONE, Told.GONE, Told.REFUSED) for each in told)
            holdings[moment] = await _drained(deployment, *holdings.values())
    found = grown(*holdings.values())
    return Verdict(shape, holdings, requests, failed, time.monotonic() - begun, found)


async def _work(deployment: Deployment, seed: int, seconds: float) -> list[Told]:
    """Mixed load, whose sessions all end."""
    recorder = Recorder()
    load = Load(deployment.port, seed, recorder, kept=0)
    async with load.running(), asyncio.TaskGroup() as tasks:
        stop = asyncio.Event()
        tasks.create_task(_use_processes(deployment, recorder, seed, stop))
        await asyncio.sleep(seconds)  # the time is the point
        stop.set()
    return [operation.told for operation in recorder.history.operations]


async def _use_processes(deployment: Deployment, recorder: Recorder, seed: int, stop: asyncio.Event) -> None:
    visitor = Visitor("stdio", deployment.port, recorder, random.Random(seed))
    while not stop.is_set():
        session = await visitor.open(STDIO)
        if session is not None:
            for _ in range(STDIO_CALLS):
                await visitor.count(session)
            await visitor.end(session)
        await asyncio.sleep(STDIO_PAUSE)  # load has a pace
    visitor.close()


async def _drained(deployment: Deployment, *earlier: Holding) -> Holding:
    """The holding as soon as all that was ended is gone, or as it is when that takes too long."""
    deadline = time.monotonic() + CATCH_UP
    last = await holding(deployment)
    while time.monotonic() < deadline:
        await asyncio.sleep(2 * SOON)  # the cleanup, and times to live, are what is waited for
        now = await holding(deployment)
        if settled(earlier, last, now):
            return now
        last = now
    return last


def _short_lived(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with which nothing outlives its session for long, and with a server over stdio."""
    settings["core"]["auth"]["signed_upload_ttl_seconds"] = SOON
    settings["sessions"]["tombstone_ttl_seconds"] = SOON
    # What was uploaded by a link outlives its session, for as long as it lives unused.
    settings["uploads"] |= {"page_ttl_seconds": SOON, "ttl_seconds": UNUSED}
    program = ["-S", "-m", "tests.soak.stdio_server"]
    server = {"transport": "stdio", "command": sys.executable, "args": program, "cwd": str(Path.cwd())}
    settings["servers"].append({"id": "stdio", "mount_path": STDIO, "upstream": server})
    return settings
