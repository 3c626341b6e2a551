"""A client with a session of its own that does nothing wrong, and how long each of its calls took.

``python -m tests.attacks.bystander URL BYTES [TOKEN]`` calls ``echo`` there until its standard input ends, one call at
a time, then prints ``{"calls": N, "failed": N, "worst": S, "median": S, "machine": S}``, in seconds. It is a process of
its own, so that what is measured is the adapter's loop and not the attacker's; ``machine`` is how long of ``worst`` the
machine itself stood still, for whoever looks for the reason.
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
"""Calls that have to begin while an attack lasts; whoever was asked less often has shown nothing."""


async def watch(url: str, padding: int, token: str | None = None) -> dict[str, float]:
    """Calls until standard input ends, each with so many bytes more than it needs."""
    loop = asyncio.get_running_loop()
    over = loop.run_in_executor(None, sys.stdin.buffer.read)
    place = urlsplit(url)
    assert place.port is not None
    took: list[float] = []
    failed, worst, machine = 0, 0.0, 0.0
    known = {} if token is None else {"authorization": f"Bearer {token}"}
    with Metronome() as metronome:
        async with RawClient(place.port) as client:
            head, _ = await client.request("POST", INITIALIZE, place.path, **known)
            client.session = head["mcp-session-id"]
            print("watching", flush=True)
            while not over.done():
                began = time.perf_counter()
                message = call_body("echo", len(took) + 1) + b" " * padding
                head, body = await client.request("POST", message, place.path, **known)
                ended = time.perf_counter()
                took.append(ended - began)
                if took[-1] > worst:
                    worst, machine = took[-1], metronome.stalled(began, ended)
                failed += head.status != 200 or "result" not in orjson.loads(body)
                await asyncio.sleep(PAUSE)
    return {
        "calls": len(took),
        "failed": failed,
        "worst": worst,
        "median": statistics.median(took) if took else 0.0,
        "machine": machine,
    }


if __name__ == "__main__":
    print(orjson.dumps(asyncio.run(watch(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))).decode(), flush=True)
