"""What traces cost: ``python -m tests.bench.traces [--quick] [--json FILE]``.

Three adapters stand before one upstream: without telemetry, with telemetry that samples no call, and with telemetry
that samples every call and exports to a collector. Calls that are only forwarded go to each in turn, from a client
without a trace and from one that sends ``traceparent`` in the header and in ``_meta``, another one with every call. The
cost of a call is CPU time of all threads of the adapter, so that of its exports too. Telemetry brings metrics as well,
so what traces cost is what sampling adds. Rounds are short, so that all meet the same neighbours on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.bench.machine import Machine
from tests.e2e.processes import START_TIMEOUT, Adapter, start
from tests.edge.raw import INITIALIZE, RawClient, call_body
from tests.telemetry.collectors import Collector, http_collector

FRONTS = ("off", "unsampled", "sampled")
CLIENTS = ("untraced", "traced")

MUST = 1.30
"""Times the cost of a call without telemetry that a call may cost to which spans are added."""

Round = dict[str, dict[str, float]]
"""Microseconds of CPU for one call, by client and adapter."""


class TraceCosts(NamedTuple):
    """All rounds, and the spans of the last one that reached the collector."""

    rounds: tuple[Round, ...]
    spans: int

    def ratio(self, client: str, front: str) -> float:
        """The median of the rounds' ratios to the adapter without telemetry."""
        return statistics.median(each[client][front] / each[client]["off"] for each in self.rounds)

    def added(self, client: str) -> float:
        """1 and the part of a call without telemetry that its spans cost, in the median round."""
        parts = (
            (each[client]["sampled"] - each[client]["unsampled"]) / each[client]["off"]
            for each in self.rounds
        )
        return 1 + statistics.median(parts)

    def report(self) -> str:
        """The figures as text."""
        lines = [str(Machine.here())]
        for client in CLIENTS:
            for front in FRONTS:
                cost = statistics.median(each[client][front] for each in self.rounds)
                lines.append(
                    f"{client} client, {front}: {cost:.1f} µs of CPU, {self.ratio(client, front):.3f} × off"
                )
            lines.append(f"{client} client, with spans: {self.added(client):.3f} × off")
        lines.append(f"{len(self.rounds)} rounds, at most {MUST:.2f} allowed; {self.spans} spans arrived")
        return "\n".join(lines)


@asynccontextmanager
async def adapters(place: Path, collector: Collector) -> AsyncIterator[dict[str, Adapter]]:
    """The three adapters, in front of the benchmark's upstream."""
    upstream = await start([sys.executable, "-m", "tests.bench.upstream"], place / "upstream.log")
    found: dict[str, Adapter] = {}
    try:
        port = int(await upstream.line(START_TIMEOUT))
        for name in FRONTS:
            found[name] = _front(place / name, port, collector, name)
            await found[name].start()
        yield found
    finally:
        for each in found.values():
            await each.stop()
        await upstream.stop()


def _front(place: Path, port: int, collector: Collector, name: str) -> Adapter:
    place.mkdir()
    entry = {"id": "bench", "mount_path": "/mcp", "upstream": {"url": f"http://127.0.0.1:{port}/mcp"}}
    settings = {
        "core": {"upstream_ping": {"enabled": False}},
        "storage": {"root": str(place / "data")},
        "telemetry": {
            "enabled": name != "off",
            "transport": "http",
            "endpoint": collector.url,
            "export_interval_seconds": 3600,
        },
        "servers": [entry],
    }
    sampler = "parentbased_always_on" if name == "sampled" else "always_off"
    return Adapter(place, settings, launcher=("env", f"OTEL_TRACES_SAMPLER={sampler}"))


async def opened(client: RawClient) -> None:
    """Begin a session."""
    head, _ = await client.request("POST", INITIALIZE)
    assert head.status == 200, head
    client.session = head.get("mcp-session-id")


async def calls(client: RawClient, kind: str, number: int) -> None:
    """Make calls one after the other."""
    body = call_body("small", 1)
    for _ in range(number):
        fields = {}
        if kind == "traced":
            parent = f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}-01"
            fields["traceparent"] = parent
            meta = orjson.dumps({"progressToken": 1, "traceparent": parent})
            body = call_body("small", 1).replace(b'"arguments"', b'"_meta":' + meta + b',"arguments"')
        head, _ = await client.request("POST", body, **fields)
        assert head.status == 200, head


def cpu_seconds(front: Adapter) -> float:
    """Time that all threads of the adapter have had on a processor; to the nanosecond, unlike that in ``stat``."""
    assert front.running is not None
    threads = Path(f"/proc/{front.running.process.pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


async def measured(rounds: int, number: int) -> TraceCosts:
    """Run ``rounds`` of ``number`` calls with each client to each adapter."""
    with tempfile.TemporaryDirectory() as place:
        async with (
            http_collector() as collector,
            adapters(Path(place), collector) as fronts,
            AsyncExitStack() as stack,
        ):
            clients = {
                name: await stack.enter_async_context(RawClient(front.port)) for name, front in fronts.items()
            }
            for client in clients.values():
                await opened(client)
                for kind in CLIENTS:
                    await calls(client, kind, number)
            found = []
            for each in range(rounds):
                collector.deliveries.clear()
                spent: Round = {kind: {} for kind in CLIENTS}
                # Another one begins in the next round, so that none is always first.
                for name in (*FRONTS[each % 3 :], *FRONTS[: each % 3]):
                    for kind in CLIENTS:
                        before = cpu_seconds(fronts[name])
                        await calls(clients[name], kind, number)
                        spent[kind][name] = (cpu_seconds(fronts[name]) - before) / number * 1e6
                found.append(spent)
            return TraceCosts(tuple(found), len(collector.spans()))


def main() -> int:
    """Measure, print, and write the rounds as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few calls, whose figures mean nothing")
    parser.add_argument("--json", type=Path, help="file for the rounds")
    asked = parser.parse_args()
    costs = asyncio.run(measured(*((3, 200) if asked.quick else (61, 400))))
    print(costs.report())
    if asked.json is not None:
        added = {client: costs.added(client) for client in CLIENTS}
        asked.json.write_bytes(orjson.dumps({"rounds": list(costs.rounds), "added": added}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
