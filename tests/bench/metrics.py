"""What metrics cost: ``python -m tests.bench.metrics [--quick] [--json FILE]``.

Two adapters stand before one upstream, one of them with metrics. Callers of both make calls that are only forwarded,
in turn, each on a connection of its own. The cost of a call is CPU time of the adapter, and the ratio of a round is
that with metrics to that without. Rounds are short, so that both meet the same neighbours on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.bench.access import calls, cpu_seconds, opened
from tests.bench.machine import Machine
from tests.e2e.processes import START_TIMEOUT, Adapter, start
from tests.edge.raw import RawClient

KINDS = ("off", "on")
TOKEN = "nobody-asks-for-it"


class Round(NamedTuple):
    """Microseconds of CPU for one call without metrics and with them."""

    off: float
    on: float

    @property
    def ratio(self) -> float:
        """With metrics to without."""
        return self.on / self.off


class MetricCosts(NamedTuple):
    """All rounds, and the milliseconds of CPU that one scrape takes."""

    rounds: tuple[Round, ...]
    scrape: float

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(each.ratio for each in self.rounds)

    def report(self) -> str:
        """The figures as text."""
        off, on = (statistics.median(getattr(each, kind) for each in self.rounds) for kind in KINDS)
        difference = statistics.median(each.on - each.off for each in self.rounds)
        return "\n".join(
            (
                str(Machine.here()),
                f"call without metrics: {off:.1f} µs of CPU",
                f"call with metrics: {on:.1f} µs of CPU",
                f"with metrics to without: {self.ratio:.3f} ({difference:+.1f} µs), {len(self.rounds)} rounds",
                f"one scrape: {self.scrape:.1f} ms of CPU",
            )
        )


@asynccontextmanager
async def fronts(place: Path) -> AsyncIterator[dict[str, Adapter]]:
    """The adapters without metrics and with them, in front of the benchmark's upstream."""
    upstream = await start([sys.executable, "-m", "tests.bench.upstream"], place / "upstream.log")
    found: dict[str, Adapter] = {}
    try:
        port = int(await upstream.line(START_TIMEOUT))
        entry = {"id": "bench", "mount_path": "/mcp", "upstream": {"url": f"http://127.0.0.1:{port}/mcp"}}
        for kind in KINDS:
            own = place / kind
            own.mkdir()
            settings = {
                "core": {"upstream_ping": {"enabled": False}},
                "telemetry": {"prometheus": {"enabled": kind == "on"}},
                "storage": {"root": str(own / "data")},
                "servers": [entry],
            }
            found[kind] = Adapter(own, settings)
            await found[kind].start()
        yield found
    finally:
        for front in found.values():
            await front.stop()
        await upstream.stop()


async def measured(rounds: int, number: int) -> MetricCosts:
    """Run ``rounds`` of ``number`` calls of each adapter."""
    with tempfile.TemporaryDirectory() as place:
        async with (
            fronts(Path(place)) as adapters,
            RawClient(adapters["off"].port) as without,
            RawClient(adapters["on"].port) as counted,
        ):
            clients = {"off": without, "on": counted}
            for kind in KINDS:
                await opened(clients[kind], TOKEN)
                await calls(clients[kind], TOKEN, number)
            found = []
            for each in range(rounds):
                spent = {}
                # The other one begins in the next round, so that none is always first.
                for kind in KINDS if each % 2 == 0 else reversed(KINDS):
                    before = cpu_seconds(adapters[kind])
                    await calls(clients[kind], TOKEN, number)
                    spent[kind] = (cpu_seconds(adapters[kind]) - before) / number * 1e6
                found.append(Round(**spent))
            before = process_seconds(adapters["on"])
            for _ in range(20):
                head, _ = await counted.request("GET", path="/metrics")
                assert head.status == 200, head
            scrape = (process_seconds(adapters["on"]) - before) / 20 * 1000
    return MetricCosts(tuple(found), scrape)


def process_seconds(front: Adapter) -> float:
    """Time that all threads of the adapter have had on a processor: a scrape is written in one of its own."""
    assert front.running is not None
    tasks = Path(f"/proc/{front.running.process.pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in tasks) / 1e9


def main() -> int:
    """Measure, print, and write the rounds as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few calls, whose figures mean nothing")
    parser.add_argument("--json", type=Path, help="file for the rounds")
    asked = parser.parse_args()
    costs = asyncio.run(measured(*((2, 200) if asked.quick else (101, 400))))
    print(costs.report())
    if asked.json is not None:
        rounds = [each._asdict() for each in costs.rounds]
        asked.json.write_bytes(
            orjson.dumps({"rounds": rounds, "scrape_ms": costs.scrape, "ratio": costs.ratio})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
