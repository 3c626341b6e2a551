"""A client with a session of its own that does nothing wrong, and how long each of its calls took.

``python -m tests.attacks.bystander URL BYTES [TOKEN]`` calls ``echo`` there until its standard input ends, one call at
a time, then prints ``{"calls": N, "failed": N, "worst": S, "median": S, "machine": S}``, in seconds. It is a process of
its own, so that what is measured is the adapter's loop and not the attacker's; ``machine`` is how long the machine
itself stood still during calls, which is no part of ``worst``.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from urllib.parse import urlsplit

import orjson

from tests.attacks.metronome import Metronome
from tests.edge.raw import INITIALIZE, RawClient, call_body

PAUSE = 0.005
"""Seconds between two calls: enough calls to meet any stall, few enough to leave the machine to the attack."""

FEWEST_CALLS = 10
"""Calls to make in any case: an attack may be over before as many were made."""


async def watch(url: str, padding: int, token: str | None = None) -> dict[str, float]:
    """Calls until standard input ends, each with so many bytes more than it needs."""
    loop = asyncio.get_running_loop()
    over = loop.run_in_executor(None, sys.stdin.buffer.read)
    place = urlsplit(url)
    assert place.port is not None
    took: list[float] = []
    failed = 0
    machine = 0.0
    known = {} if token is None else {"authorization": f"Bearer {token}"}
    with Metronome() as metronome:
        async with RawClient(place.port) as client:
            head, _ = await client.request("POST", INITIALIZE, place.path, **known)
            client.session = head["mcp-session-id"]
            print("watching", flush=True)
            while not over.done() or len(took) < FEWEST_CALLS:
                began = time.perf_counter()
                message = call_body("echo", len(took) + 1) + b" " * padding
                head, body = await client.request("POST", message, place.path, **known)
                ended = time.perf_counter()
                stalled = metronome.stalled(began, ended)
                took.append(ended - began - stalled)
                machine += stalled
                failed += head.status != 200 or "result" not in orjson.loads(body)
                await asyncio.sleep(PAUSE)
    return {
        "calls": len(took),
        "failed": failed,
        "worst": max(took, default=0.0),
        "median": statistics.median(took) if took else 0.0,
        "machine": machine,
    }


if __name__ == "__main__":
    print(orjson.dumps(asyncio.run(watch(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))).decode(), flush=True)
