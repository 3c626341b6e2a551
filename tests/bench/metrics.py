"""What metrics cost: ``python -m tests.bench.metrics [--quick] [--json FILE]``.

Two adapters stand before one upstream, one of them with metrics. Callers of both make calls that are only forwarded,
in turn, each on a connection of its own. The cost of a call is CPU time of the adapter, and the ratio of a round is
that with metrics to that without. Rounds are short, so that both meet the same neighbours on a busy machine. A process
may be faster than another that does the same, by a twentieth and for as long as it runs; so there are many pairs. Where
there are two cores, one is for the adapters alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.bench.access import calls, cpu_seconds, opened
from tests.bench.machine import Machine
from tests.e2e.processes import START_TIMEOUT, Adapter, Running, start
from tests.edge.raw import RawClient

KINDS = ("off", "on")
CORES = sorted(os.sched_getaffinity(0))
TOKEN = "nobody-asks-for-it"


class Round(NamedTuple):
    """Microseconds of CPU for one call without metrics and with them."""

    off: float
    on: float

    @property
    def ratio(self) -> float:
        """With metrics to without."""
        return self.on / self.off


class PairCosts(NamedTuple):
    """All rounds of two adapters, and the milliseconds of CPU that one scrape takes."""

    rounds: tuple[Round, ...]
    scrape: float

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(each.ratio for each in self.rounds)


class MetricCosts(NamedTuple):
    """The costs that several pairs of adapters had."""

    pairs: tuple[PairCosts, ...]

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios."""
        return statistics.median(each.ratio for each in self.pairs)

    def report(self) -> str:
        """The figures as text."""
        rounds = [each for pair in self.pairs for each in pair.rounds]
        off, on = (statistics.median(getattr(each, kind) for each in rounds) for kind in KINDS)
        difference = statistics.median(each.on - each.off for each in rounds)
        ratios = [each.ratio for each in self.pairs]
        return "\n".join(
            (
                str(Machine.here()),
                f"call without metrics: {off:.1f} µs of CPU",
                f"call with metrics: {on:.1f} µs of CPU",
                f"with metrics to without: {self.ratio:.3f} ({difference:+.1f} µs), "
                f"{len(ratios)} pairs from {min(ratios):.3f} to {max(ratios):.3f}",
                f"one scrape: {statistics.median(each.scrape for each in self.pairs):.1f} ms of CPU",
            )
        )


@asynccontextmanager
async def fronts(place: Path, kinds: Sequence[str]) -> AsyncIterator[dict[str, Adapter]]:
    """The adapters without metrics and with them, started in that order, in front of the benchmark's upstream."""
    upstream = await start([sys.executable, "-m", "tests.bench.upstream"], place / "upstream.log")
    found: dict[str, Adapter] = {}
    try:
        # The adapters have a core of their own, where there are two.
        _put(upstream, CORES[1:] or CORES)
        os.sched_setaffinity(0, CORES[1:] or CORES)
        port = int(await upstream.line(START_TIMEOUT))
        entry = {"id": "bench", "mount_path": "/mcp", "upstream": {"url": f"http://127.0.0.1:{port}/mcp"}}
        for kind in kinds:
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
            _put(found[kind].running, CORES[:1])
        yield found
    finally:
        os.sched_setaffinity(0, CORES)
        for front in found.values():
            await front.stop()
        await upstream.stop()


def _put(running: Running | None, cores: Sequence[int]) -> None:
    """Have a process and its threads run on these cores only."""
    assert running is not None
    for task in Path(f"/proc/{running.process.pid}/task").iterdir():
        # A thread may have ended since.
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cores)


async def measured(pairs: int, rounds: int, number: int) -> MetricCosts:
    """Run ``rounds`` of ``number`` calls of each adapter, in each of ``pairs``."""
    # The other one starts first in the next pair, and begins in the next round, so that none is always first.
    return MetricCosts(
        tuple([await _pair(KINDS if each % 2 == 0 else KINDS[::-1], rounds, number) for each in range(pairs)])
    )


async def _pair(kinds: Sequence[str], rounds: int, number: int) -> PairCosts:
    with tempfile.TemporaryDirectory() as place:
        async with (
            fronts(Path(place), kinds) as adapters,
            RawClient(adapters["off"].port) as without,
            RawClient(adapters["on"].port) as counted,
        ):
            clients = {"off": without, "on": counted}
            for kind in kinds:
                await opened(clients[kind], TOKEN)
                await calls(clients[kind], TOKEN, number)
            found = []
            for each in range(rounds):
                spent = {}
                for kind in kinds if each % 2 == 0 else reversed(kinds):
                    before = cpu_seconds(adapters[kind])
                    await calls(clients[kind], TOKEN, number)
                    spent[kind] = (cpu_seconds(adapters[kind]) - before) / number * 1e6
                found.append(Round(**spent))
            return PairCosts(tuple(found), await _scrape(adapters["on"], counted))


async def _scrape(front: Adapter, client: RawClient) -> float:
    before = process_seconds(front)
    for _ in range(20):
        head, _ = await client.request("GET", path="/metrics")
        assert head.status == 200, head
    return (process_seconds(front) - before) / 20 * 1000


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
    costs = asyncio.run(measured(*((1, 2, 200) if asked.quick else (12, 21, 400))))
    print(costs.report())
    if asked.json is not None:
        pairs = [
            {
                "rounds": [each._asdict() for each in pair.rounds],
                "scrape_ms": pair.scrape,
                "ratio": pair.ratio,
            }
            for pair in costs.pairs
        ]
        asked.json.write_bytes(orjson.dumps({"pairs": pairs, "ratio": costs.ratio}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
