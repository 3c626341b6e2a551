"""What each stage of a planned call costs: ``python -m tests.bench.pipeline [--quick] [--rounds N] [--placement …]
[--json FILE]``.

Each figure is the CPU time of the adapter's process tree for one call, one at a time in a warm session. Every kind of
call takes turns with piped ones, a few of each, and is compared with those, so that a busy moment of the machine meets
both. See ``staging`` for the rows and ``tests.bench`` for ``--placement``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import uvloop

from adapter.pipeline.call import AuthRequest, Context, PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.pipeline.validation_stage import Validating
from adapter.rules.access.principals import NOBODY
from tests.bench.catalogue import ListingConnection
from tests.bench.fronts import ROOT, adapter_with, end, end_tidily_when_terminated, free_port
from tests.bench.load import Address, Client
from tests.bench.machine import Machine
from tests.bench.process import cpu_seconds, ended_seconds, pin, tree
from tests.bench.report import table
from tests.bench.staging import FRONTS, HIT, PIPED, ROWS, SCHEMA, Row, Tokens, definitions, settings_of
from tests.bench.upstream import Sessions, response
from tests.pipeline.walking import CHECKS

MOST_OF_A_HIT = 1.5
"""Piped calls that a hit in the cache of a SQLite tool may cost at most."""

CORES = sorted(os.sched_getaffinity(0))
WARM = 20
TURNS = 10
"""How often a kind of call and the piped one take turns in a round."""
CHECKED = 1000


@dataclass(frozen=True)
class Extent:
    """How much is measured: ``calls`` of each row in each round."""

    rounds: int
    calls: int


FULL = Extent(rounds=10, calls=200)
QUICK = Extent(rounds=1, calls=5)


class Cost(NamedTuple):
    """CPU µs of a call, and of a piped one at the same time."""

    own: float
    piped: float


@dataclass
class Measured:
    """``costs`` by row and round; ``compilations`` of two schemas for CHECKED calls."""

    costs: dict[str, list[Cost]] = field(default_factory=dict)
    compilations: int = 0

    def own(self, row: Row) -> list[float]:
        """CPU µs of a call, round by round."""
        return [cost.own for cost in self.costs[row.title]]

    def above(self, row: Row) -> list[float]:
        """µs above a piped call, round by round."""
        return [cost.own - cost.piped for cost in self.costs[row.title]]

    def times(self, row: Row) -> list[float]:
        """Piped calls that one of these costs, round by round."""
        return [cost.own / cost.piped for cost in self.costs[row.title]]


# --- the upstream ---------------------------------------------------------------------------------------------


class PlannedConnection(ListingConnection):
    """The bench's upstream under many names, which also takes what telemetry exports."""

    def on_message_complete(self) -> None:
        if self._url.startswith(b"/v1/"):
            self._write(response("200 OK", b"", "Content-Type: application/x-protobuf"))
        else:
            super().on_message_complete()


async def _serve() -> None:
    sessions = Sessions()
    ListingConnection.result = orjson.dumps({"tools": definitions()})
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: PlannedConnection(sessions), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@asynccontextmanager
async def upstream() -> AsyncIterator[int]:
    """The port of the bench's upstream, which lists the tools of every row."""
    argv = [sys.executable, "-m", "tests.bench.pipeline", "--serve"]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdout.close()
        end(process)


# --- measuring ------------------------------------------------------------------------------------------------


@dataclass
class Subject:
    """One row's client, in a session of its own."""

    row: Row
    client: Client
    pid: int

    async def call(self, count: int) -> float:
        """So many calls, at least one; the CPU seconds of each."""
        count = max(1, int(count * self.row.share))
        before = self._spent()
        for _ in range(count):
            await self.client.call(self.row.tool, a=1, b=2)
        return (self._spent() - before) / count

    def _spent(self) -> float:
        return cpu_seconds(tree(self.pid)) + ended_seconds(self.pid)


async def _cost(subject: Subject, piped: Subject, calls: int) -> Cost:
    """Both in turns."""
    each = max(1, calls // TURNS)
    turns = [(await subject.call(each), await piped.call(each)) for _ in range(TURNS)]
    own, beside = (sum(column) / TURNS * 1e6 for column in zip(*turns, strict=True))
    return Cost(own, beside)


async def measured(extent: Extent) -> Measured:
    """All rows, in rounds. Raises FrontUnavailable, LoadFailed."""
    end_tidily_when_terminated()
    found = Measured({row.title: [] for row in ROWS}, await compilations())
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        subjects = await _subjects(stack, place)
        for subject in subjects:
            await subject.call(WARM)
        piped = next(subject for subject in subjects if subject.row is PIPED)
        for number in range(1, extent.rounds + 1):
            sys.stderr.write(f"round {number} of {extent.rounds}\n")
            for subject in subjects:
                found.costs[subject.row.title].append(await _cost(subject, piped, extent.calls))
    return found


async def _subjects(stack: AsyncExitStack, place: Path) -> list[Subject]:
    port = await stack.enter_async_context(upstream())
    tokens = Tokens()
    running: dict[str, tuple[Address, int]] = {}
    for front in FRONTS:
        room = place / front
        room.mkdir()
        address = Address(free_port(), "/mcp/bench", secrets.token_hex(16))
        settings = settings_of(front, port, address, room, tokens)
        started = await stack.enter_async_context(adapter_with(settings, address, room))
        assert started.pid is not None
        running[front] = address, started.pid
    subjects = []
    for row in ROWS:
        address, pid = running[row.front]
        fields = tokens.fields(row, address.bearer)
        client = await Client.connect(Address(address.port, f"/mcp/{row.mount}"), fields)
        stack.callback(client.close)
        await client.initialize()
        await client.list()
        subjects.append(Subject(row, client, pid))
    return subjects


async def compilations() -> int:
    """How many schemas are compiled for CHECKED calls of a tool whose list comes anew each time, with two schemas in
    turns."""
    texts = cycle((orjson.dumps(SCHEMA), orjson.dumps({**SCHEMA, "title": "another"})))

    async def schema_of(_: PlannedCall) -> Mapping[str, Any]:
        schema: Mapping[str, Any] = orjson.loads(next(texts))
        return schema

    async def behind(_: PlannedCall) -> Outcome:
        return Outcome({})

    stage = Validating("tool", schema_of, CHECKS)
    for _ in range(CHECKED):
        context = Context.of(AuthRequest.of("bench", "tool", NOBODY))
        await stage(PlannedCall("bench", "tool", {"a": 1}, behind, context), behind)
    return stage.compilations


# --- the report -----------------------------------------------------------------------------------------------


def report(found: Measured) -> Iterator[str]:
    """Blocks of text, to be parted by empty lines."""
    rows = [["one call at a time", "CPU µs", "above piped", "× piped (from – to)"]]
    for row in ROWS:
        times = found.times(row)
        span = f"{statistics.median(times):.2f} ({min(times):.2f} – {max(times):.2f})"
        cost, above = statistics.median(found.own(row)), statistics.median(found.above(row))
        rows.append([row.title, f"{cost:,.0f}", f"{above:+,.0f}", span])
    yield "CPU time of the adapter's process tree; median of the rounds\n" + table(rows)
    hit = statistics.median(found.times(HIT))
    yield "\n".join(
        (
            f"{HIT.title}: {hit:.2f} piped calls (must: {MOST_OF_A_HIT}): {_met(hit <= MOST_OF_A_HIT)}",
            f"2 schemas in {CHECKED} validated calls: compiled {found.compilations} (must: 2): "
            f"{_met(found.compilations == 2)}",
        )
    )
    yield "Numbers of one run compare with each other only; another load on the machine makes them noisy."


def _met(met: bool) -> str:
    return "met" if met else "not met"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pipeline", description="Measure the stages.")
    parser.add_argument("--quick", action="store_true", help="a few calls, to see that everything runs")
    parser.add_argument("--rounds", type=int, help="turns that each kind of call has")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there too")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--placement", choices=("free", "together"), default="free", help="which cores run what"
    )
    given = parser.parse_args()
    if given.placement == "together":
        pin([os.getpid()], CORES[0])  # and so everything that is started from here
    if given.serve:
        uvloop.run(_serve())
        return
    extent = QUICK if given.quick else FULL
    found = uvloop.run(measured(Extent(given.rounds or extent.rounds, extent.calls)))
    sys.stdout.write("\n\n".join([*report(found), str(Machine.here())]) + "\n")
    if given.json:
        written = {
            "cpu_us": {title: list(map(list, costs)) for title, costs in found.costs.items()},
            "compilations": found.compilations,
        }
        given.json.write_bytes(orjson.dumps(written, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
