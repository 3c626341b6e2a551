"""How long a front's loop is held at most: ``python -m tests.bench.stalls PORT``.

It asks ``/livez``, which waits for nothing but the loop, again and again until its standard input ends, and then
prints the longest and the median time of an answer, in seconds. It is a process of its own, so that what keeps the
bench busy does not count.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from tests.bench.load import Connection

PAUSE = 0.002


async def watch(port: int) -> tuple[float, float]:
    """The longest and the median time of an answer."""
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    connection = await Connection.open(port)
    request = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port
    assert (await connection.exchange(request)).status == 200
    print("watching", flush=True)
    took: list[float] = []
    while not over.done():
        began = time.perf_counter()
        await connection.exchange(request)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE)
    connection.close()
    return max(took), statistics.median(took)


if __name__ == "__main__":
    print(*asyncio.run(watch(int(sys.argv[1]))), flush=True)
