"""What a call over HTTP costs beside the same call over MCP: ``python -m tests.bench.console [--quick] [--rounds N]
[--placement …] [--json FILE]``.

Each figure is the CPU time of the adapter's process tree for one call, one at a time in a warm session. The two
entrances of one adapter take turns, a few calls each, so that a busy moment of the machine meets both. See
``tests.bench`` for ``--placement``. How much a browser loads for the page is printed too.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson
import uvloop

from adapter.edge.console.page_files import PageFiles
from tests.bench.fronts import adapter_with, end_tidily_when_terminated, free_port
from tests.bench.load import Address, Client, Connection, LoadFailed
from tests.bench.machine import Machine
from tests.bench.pipeline import CORES, TURNS, WARM, Extent, upstream
from tests.bench.process import cpu_seconds, ended_seconds, pin, tree
from tests.bench.report import table
from tests.bench.staging import PLAIN, Tokens, settings_of

MOST = 1.3
"""Calls over MCP that one over HTTP may cost at most."""

HEAVIEST = 152_000
"""Bytes of the page, without the plot libraries."""

PLOTS = ("vendor/echarts.min.js", "vendor/mermaid.tiny.js")
FULL = Extent(rounds=10, calls=400)
QUICK = Extent(rounds=1, calls=20)


class Row(NamedTuple):
    """A tool that is called both ways; ``server`` is the id under which the adapter has it."""

    title: str
    server: str
    tool: str


ROWS = (Row("SQLite statement, hosted", "hosted", "asked"), Row("piped, of an upstream", "bench", "echo"))


class Cost(NamedTuple):
    """CPU µs of a call over HTTP, and of one over MCP at the same time."""

    http: float
    mcp: float


@dataclass
class Measured:
    """``costs`` by row and round; ``page`` is in bytes as a browser gets them."""

    costs: dict[str, list[Cost]] = field(default_factory=lambda: {row.title: [] for row in ROWS})
    page: int = 0

    def times(self, row: Row) -> list[float]:
        """Calls over MCP that one over HTTP costs, round by round."""
        return [cost.http / cost.mcp for cost in self.costs[row.title]]


class Caller:
    """Calls one tool over HTTP on one connection."""

    def __init__(self, row: Row, address: Address, connection: Connection) -> None:
        self._connection = connection
        self._tool = row.tool
        lines = [
            f"POST /explorer/{row.server}/tools/{row.tool}/call HTTP/1.1",
            f"Host: 127.0.0.1:{address.port}",
            f"Authorization: Bearer {address.bearer}",
            "Accept: application/json",
            "Content-Type: application/json",
        ]
        self._head = "\r\n".join(lines).encode()

    async def call(self, **arguments: int) -> None:
        """Call it, and check that its result came. Raises LoadFailed."""
        body = orjson.dumps(arguments)
        request = b"%b\r\nContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)
        answer = await self._connection.exchange(request)
        if answer.status != 200 or b'"content"' not in answer.body:
            raise LoadFailed(f"{self._tool} was answered {answer.status}: {answer.body[:300]!r}")

    def close(self) -> None:
        self._connection.close()


@dataclass
class Pair:
    """One row's two clients."""

    row: Row
    mcp: Client
    http: Caller
    pid: int

    async def cost(self, calls: int) -> Cost:
        """Both in turns."""
        each = max(1, calls // TURNS)
        turns = [(await self.over_http(each), await self.over_mcp(each)) for _ in range(TURNS)]
        http, mcp = (sum(column) / TURNS * 1e6 for column in zip(*turns, strict=True))
        return Cost(http, mcp)

    async def over_http(self, count: int) -> float:
        """CPU seconds of each of so many calls."""
        before = self._spent()
        for _ in range(count):
            await self.http.call(a=1, b=2)
        return (self._spent() - before) / count

    async def over_mcp(self, count: int) -> float:
        """CPU seconds of each of so many calls."""
        before = self._spent()
        for _ in range(count):
            await self.mcp.call(self.row.tool, a=1, b=2)
        return (self._spent() - before) / count

    def _spent(self) -> float:
        return cpu_seconds(tree(self.pid)) + ended_seconds(self.pid)


async def measured(extent: Extent) -> Measured:
    """All rows, in rounds. Raises FrontUnavailable, LoadFailed."""
    end_tidily_when_terminated()
    found = Measured(page=await page_weight())
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        pairs = await _pairs(stack, place)
        for pair in pairs:
            await pair.cost(WARM * TURNS)
        for number in range(1, extent.rounds + 1):
            sys.stderr.write(f"round {number} of {extent.rounds}\n")
            for pair in pairs:
                found.costs[pair.row.title].append(await pair.cost(extent.calls))
    return found


async def _pairs(stack: AsyncExitStack, place: Path) -> list[Pair]:
    port = await stack.enter_async_context(upstream())
    address = Address(free_port(), "/mcp/bench", secrets.token_hex(16))
    settings = settings_of(PLAIN, port, address, place, Tokens())
    settings["console"] = {"enabled": True, "allow_execute": True}
    started = await stack.enter_async_context(adapter_with(settings, address, place))
    assert started.pid is not None
    pairs = []
    for row in ROWS:
        mcp = await Client.connect(Address(address.port, f"/mcp/{row.server}", address.bearer))
        stack.callback(mcp.close)
        await mcp.initialize()
        await mcp.list()
        http = Caller(row, address, await Connection.open(address.port))
        stack.callback(http.close)
        pairs.append(Pair(row, mcp, http, started.pid))
    return pairs


async def page_weight() -> int:
    """Bytes of the page and of all that it loads but the plot libraries, which are there for who plots."""
    page, asked = PageFiles(), {"Accept-Encoding": "gzip"}
    bodies = [(await page.page(asked))[2]]
    bodies += [
        (await page.file((page.version, *name.split("/")), asked))[2] for name in page if name not in PLOTS
    ]
    return sum(map(len, bodies))


# --- the report -----------------------------------------------------------------------------------------------


def report(found: Measured) -> Iterator[str]:
    """Blocks of text, to be parted by empty lines."""
    rows = [["one call at a time", "HTTP, CPU µs", "MCP, CPU µs", "HTTP × MCP (from – to)"]]
    for row in ROWS:
        times, costs = found.times(row), found.costs[row.title]
        span = f"{statistics.median(times):.2f} ({min(times):.2f} – {max(times):.2f})"
        http, mcp = (statistics.median(column) for column in zip(*costs, strict=True))
        rows.append([row.title, f"{http:,.0f}", f"{mcp:,.0f}", span])
    yield "CPU time of the adapter's process tree; median of the rounds\n" + table(rows)
    medians = [(row, statistics.median(found.times(row))) for row in ROWS]
    lines = [
        f"{row.title}: {ratio:.2f} × MCP (must: {MOST}): {_met(ratio <= MOST)}" for row, ratio in medians
    ]
    lines.append(
        f"page without plot libraries: {found.page:,} bytes (must: {HEAVIEST:,}): {_met(found.page < HEAVIEST)}"
    )
    yield "\n".join(lines)
    yield "Numbers of one run compare with each other only; another load on the machine makes them noisy."


def _met(met: bool) -> str:
    return "met" if met else "not met"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.console", description="Measure the tool API."
    )
    parser.add_argument("--quick", action="store_true", help="a few calls, to see that everything runs")
    parser.add_argument("--rounds", type=int, help="turns that each row has")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there too")
    parser.add_argument(
        "--placement", choices=("free", "together"), default="free", help="which cores run what"
    )
    given = parser.parse_args()
    if given.placement == "together":
        pin([os.getpid()], CORES[0])  # and so everything that is started from here
    extent = QUICK if given.quick else FULL
    found = uvloop.run(measured(Extent(given.rounds or extent.rounds, extent.calls)))
    sys.stdout.write("\n\n".join([*report(found), str(Machine.here())]) + "\n")
    if given.json:
        costs = {title: list(map(list, each)) for title, each in found.costs.items()}
        written = {"cpu_us": costs, "page_bytes": found.page}
        given.json.write_bytes(orjson.dumps(written, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
