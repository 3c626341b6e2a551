"""What a front's memory holds: at rest, per idle session and per open stream."""

from __future__ import annotations

import asyncio

from tests.bench.fronts import Running
from tests.bench.load import Client
from tests.bench.process import rss_bytes, tree

KIB = 1024
SETTLE = 0.3
"""Seconds for a front to finish what it does behind an answer before its memory is read."""
AT_ONCE = 10
FIRST = 500
"""Idle sessions at most that are opened before those that are measured."""
STREAMS = 200
"""Open GET streams at most."""


PART = "memory"
BASE, IDLE, HELD = "RSS at rest, MiB", "RSS per idle session, KiB", "RSS per held stream, KiB"


async def measure_memory(front: Running, idle: int) -> dict[str, float]:
    """Measure a front that has just started: ``idle`` sessions without a connection, then streams of other ones.

    Base is read after a warm-up, since the first calls load code and fill pools that the thousandth finds.
    """
    assert front.pid is not None
    await warm_up(front, min(idle, 200))
    base = await settled_rss(front.pid)
    # The first sessions of many connections also fill pools and caches, once: 3 KiB each where there are 50 of them.
    await _leave_idle(front, min(idle, FIRST))
    with_first = await settled_rss(front.pid)
    await _leave_idle(front, idle)
    with_idle = await settled_rss(front.pid)
    streams = min(idle, STREAMS)
    holders = [await _holder(front) for _ in range(streams)]
    with_streams = await settled_rss(front.pid)
    for holder in holders:
        holder.close()
    return {
        BASE: base / KIB / KIB,
        IDLE: (with_idle - with_first) / idle / KIB,
        HELD: (with_streams - with_idle) / streams / KIB,
    }


async def settled_rss(pid: int) -> int:
    """Bytes of the process tree when it has done what it does behind an answer."""
    await asyncio.sleep(SETTLE)
    return rss_bytes(tree(pid))


async def warm_up(front: Running, rounds: int) -> None:
    """Let the front load its code and fill its pools: sessions one after another, then a few streams at once."""
    client = await Client.connect(front.address)
    for _ in range(rounds):
        await client.initialize()
        await client.call()
        await client.delete()
    client.close()
    holders = await asyncio.gather(*(_holder(front) for _ in range(AT_ONCE)))
    for holder in holders:
        holder.close()


async def _leave_idle(front: Running, count: int) -> None:
    """Open ``count`` sessions and let go of every connection, without a DELETE."""

    async def leave(share: int) -> None:
        client = await Client.connect(front.address)
        for _ in range(share):
            await client.initialize()
        client.close()

    await asyncio.gather(*(leave(count // AT_ONCE) for _ in range(AT_ONCE)))


async def _holder(front: Running) -> Client:
    client = await Client.connect(front.address)
    await client.initialize()
    await client.hold()
    return client
