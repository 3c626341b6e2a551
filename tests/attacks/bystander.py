"""A client with a session of its own that does nothing wrong, and how long each of its calls took.

``python -m tests.attacks.bystander URL ADAPTER BYTES [TOKEN]`` calls ``echo`` there until its standard input ends, one
call at a time, then prints ``{"calls": N, "failed": N, "median": S, "worst": S, …}``, in seconds. It is a process of
its own, so that what is measured is the adapter's loop and not the attacker's.

The other members describe the worst call. ``ran`` is how long the adapter's loop computed during that call, and
``waited`` how long it waited for a processor; the loop is the main thread of the process ADAPTER. ``faults`` is how
many pages that process read from disk, and ``machine`` how long the machine itself stood still. If these do not explain
the wait, another thread of the adapter held the interpreter lock.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson

from tests.attacks.metronome import Metronome
from tests.edge.raw import INITIALIZE, RawClient, call_body

PAUSE = 0.005
"""Seconds between two calls: enough calls to meet any stall, few enough to leave the machine to the attack."""

FEWEST_CALLS = 10
"""Calls that have to begin during an attack. A bystander with fewer calls proves nothing."""


class LoopTimes(NamedTuple):
    """Seconds that the main thread of a process ran and waited for a processor, and its major page faults."""

    ran: float
    waited: float
    faults: int

    @classmethod
    def of(cls, pid: int) -> LoopTimes:
        """Read the figures of ``pid`` from ``/proc``."""
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls(int(ran) / 1e9, int(waited) / 1e9, int(fields[9]))

    def since(self, before: LoopTimes) -> dict[str, float]:
        """Differences to an earlier reading, by name."""
        return {name: getattr(self, name) - getattr(before, name) for name in self._fields}


async def watch(url: str, adapter: int, padding: int, token: str | None = None) -> dict[str, float]:
    """Calls until standard input ends, each with so many bytes more than it needs."""
    loop = asyncio.get_running_loop()
    over = loop.run_in_executor(None, sys.stdin.buffer.read)
    place = urlsplit(url)
    assert place.port is not None
    took: list[float] = []
    failed = 0
    worst: dict[str, float] = {"worst": 0.0}
    known = {} if token is None else {"authorization": f"Bearer {token}"}
    with Metronome() as metronome:
        async with RawClient(place.port) as client:
            head, _ = await client.request("POST", INITIALIZE, place.path, **known)
            client.session = head["mcp-session-id"]
            print("watching", flush=True)
            while not over.done():
                before, began = LoopTimes.of(adapter), time.perf_counter()
                message = call_body("echo", len(took) + 1) + b" " * padding
                head, body = await client.request("POST", message, place.path, **known)
                ended = time.perf_counter()
                took.append(ended - began)
                if took[-1] > worst["worst"]:
                    worst = {"worst": took[-1], **LoopTimes.of(adapter).since(before)}
                    worst["machine"] = metronome.stalled(began, ended)
                failed += head.status != 200 or "result" not in orjson.loads(body)
                await asyncio.sleep(PAUSE)
    return {"calls": len(took), "failed": failed, "median": statistics.median(took or [0.0]), **worst}


if __name__ == "__main__":
    url, adapter, padding, *token = sys.argv[1:]
    print(orjson.dumps(asyncio.run(watch(url, int(adapter), int(padding), *token))).decode(), flush=True)
