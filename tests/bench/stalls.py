"""How long a front's loop is held at most: ``python -m tests.bench.stalls PORT``.

It asks ``/livez``, which waits for nothing but the loop, again and again until its standard input ends, and then
prints the longest and the median time of an answer, and the 99th percentile, in seconds. It is a process of its own,
so that what keeps the bench busy does not count.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.bench.fronts import ROOT
from tests.bench.load import Connection

PAUSE = 0.002


class Waits:
    """Seconds that the watcher waited for an answer, known when it has ended."""

    longest = median = p99 = 0.0


@asynccontextmanager
async def watched(port: int) -> AsyncIterator[Waits]:
    """Watch the front at a port while the block lasts."""
    argv = [sys.executable, "-m", "tests.bench.stalls", str(port)]
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    waits = Waits()
    try:
        await process.stdout.readline()
        yield waits
        process.stdin.close()
        waits.longest, waits.median, waits.p99 = map(float, (await process.stdout.read()).split())
    finally:
        process.stdin.close()
        await process.wait()


async def _watch(port: int) -> tuple[float, float, float]:
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    connection = await Connection.open(port)
    request = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port
    assert (await connection.exchange(request)).status == 200
    print("watching", flush=True)
    took: list[float] = []
    while len(took) < 2 or not over.done():
        began = time.perf_counter()
        await connection.exchange(request)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE)
    connection.close()
    return max(took), statistics.median(took), statistics.quantiles(took, n=100, method="inclusive")[98]


if __name__ == "__main__":
    print(*asyncio.run(_watch(int(sys.argv[1]))), flush=True)
