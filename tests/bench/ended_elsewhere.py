"""A session that ended elsewhere: ``python -m tests.bench.ended_elsewhere [--quick]``.

Two adapters share a Redis. A session that both have used is ended at one of them; the figure is the time from the
answer to that DELETE until the other one answers 404. First the other one hears of changes; then its subscription is
taken away, as by a network that fails, and ``state_persistence.cache_seconds`` (1) is the bound. The upstream goes on
with sessions that have ended, so that nobody but the adapter refuses them. Ends with status 1 above a bound.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import orjson
import uvloop

from tests.bench.fronts import Running, compile_adapter, end_tidily_when_terminated, upstream_running
from tests.bench.load import Client, LoadFailed
from tests.bench.report import table
from tests.bench.results import percentile
from tests.bench.shared_state import REDIS, STATES, adapter_on, redis_running
from tests.bench.upstream import LASTING

MOST_HEARD, MOST_UNHEARD = 100.0, 1000.0
"""Milliseconds until 404 at the most, where the replica hears of changes and where it cannot."""

LISTENER, PASSWORD = "listener", "bench"
PATIENCE = 30.0
"""Seconds after which a session that is still served makes the run fail."""


class Waits(NamedTuple):
    """Milliseconds from the end of a session to the first 404 elsewhere, one for each session."""

    heard: list[float]
    unheard: list[float]


async def measured(sessions: int) -> Waits:
    """Both kinds of waits, for so many sessions each. Raises LoadFailed, FrontUnavailable, Missing."""
    end_tidily_when_terminated()
    compile_adapter()
    with tempfile.TemporaryDirectory(prefix="bench-") as room:
        place = Path(room)
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(upstream_running(place, LASTING))
            port, _ = await stack.enter_async_context(redis_running(place))
            await _command(port, "ACL", "SETUSER", LISTENER, "on", f">{PASSWORD}", "~*", "+@all", "&*")
            address = {"host": "127.0.0.1", "port": port}
            bearer = secrets.token_hex(16)
            fronts: list[Running] = []
            for login in (address, {**address, "username": LISTENER, "password": PASSWORD}):
                own = place / f"adapter-{len(fronts)}"
                own.mkdir()
                start = adapter_on({**STATES[REDIS], "redis": login}, upstream, own, bearer=bearer)
                fronts.append(await stack.enter_async_context(start))
            heard = [await _wait(*fronts) for _ in range(sessions)]
            await _command(port, "ACL", "SETUSER", LISTENER, "resetchannels")
            # Subscriptions that were there stay until they end; a new one is refused.
            await _command(port, "CLIENT", "KILL", "TYPE", "pubsub")
            return Waits(heard, [await _wait(*fronts) for _ in range(sessions)])


async def _wait(here: Running, elsewhere: Running) -> float:
    """End a session here; the milliseconds until it is 404 elsewhere."""
    one, other = await Client.connect(here.address), await Client.connect(elsewhere.address)
    try:
        await one.initialize()
        other.session = one.session
        await other.call()
        await one.delete()
        ended = time.perf_counter()
        while await _is_served(other):
            if time.perf_counter() - ended > PATIENCE:
                raise LoadFailed(f"A session is served {PATIENCE:.0f} s after its end.")
        return (time.perf_counter() - ended) * 1e3
    finally:
        one.close()
        other.close()


async def _is_served(client: Client) -> bool:
    status = await client.call_status()
    if status not in (200, 404):
        raise LoadFailed(f"A session that ended was answered {status}.")
    return status == 200


async def _command(port: int, *words: str) -> None:
    """Send a command to Redis. Raises LoadFailed if it answers with an error."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in words))
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    if not answer.startswith((b"+", b":")):
        raise LoadFailed(f"Redis answered {answer!r}.")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ended_elsewhere", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few sessions; no bound is judged")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there too")
    given = parser.parse_args()
    waits = uvloop.run(measured(3 if given.quick else 50))
    bounds = (
        ("the replica hears of it", waits.heard, MOST_HEARD),
        ("it cannot hear", waits.unheard, MOST_UNHEARD),
    )
    rows = [["404 after the end elsewhere, ms", "median", "longest", "at most"]]
    rows += [
        [name, f"{percentile(each, 0.5):.1f}", f"{max(each):.1f}", f"{most:.0f}"]
        for name, each, most in bounds
    ]
    print(table(rows))
    if given.json is not None:
        given.json.write_bytes(orjson.dumps(waits._asdict()))
    return int(not given.quick and any(max(each) > most for _, each, most in bounds))


if __name__ == "__main__":
    sys.exit(main())
