"""A million stored sessions: ``python -m tests.bench.million_sessions [--sessions N] [--rounds N]``.

An adapter that starts with them and one that starts with none take turns. Sessions are read when they are used, so
neither the start nor the memory nor a call may tell them apart. Ends with status 1 above a bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop

from tests.bench.fronts import compile_adapter, end_tidily_when_terminated, upstream_running
from tests.bench.load import LoadFailed
from tests.bench.report import table
from tests.bench.results import Results
from tests.bench.run import FULL, QUICK, Extent, Run
from tests.bench.stored_sessions import CALL, MEMORY, NONE, PART, START, measure_stored_sessions, stored
from tests.reaper import reaped

MOST_START = 1.0
"""CPU seconds of a start with all of them."""

MOST_TIMES = {START: 1.1, MEMORY: 1.1, CALL: 1.3}
"""How many times as much each may be with stored sessions as without."""


async def measured(extent: Extent) -> Results:
    """Start adapters with and without sessions, in turns. Raises LoadFailed where one could not be measured."""
    end_tidily_when_terminated()
    compile_adapter()
    results = Results({})
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        async with upstream_running(Path(place)) as upstream:
            await measure_stored_sessions(Run((), extent, upstream, Path(place), results))
    for part, reason in results.missing.items():
        raise LoadFailed(f"{part}: {reason}")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.million_sessions", description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few calls; no bound is judged")
    given = parser.parse_args()
    extent = QUICK if given.quick else FULL
    sizes = replace(extent.sizes, sessions=given.sessions, rounds=given.rounds)
    with reaped():
        figures = uvloop.run(measured(replace(extent, sizes=sizes))).figures
    full = stored(given.sessions)
    values = {"start, CPU s": (statistics.median(figures.of(PART, START, full)) / 1e3, MOST_START)}
    for measure, most in MOST_TIMES.items():
        times = statistics.median(figures.times(PART, measure, full, NONE))
        values[f"{measure.rpartition(', ')[0]}, × none stored"] = times, most
    rows = [[f"{given.sessions:,} stored sessions", "median", "at most"]]
    rows += [[name, f"{value:.2f}", f"{most:g}"] for name, (value, most) in values.items()]
    print(table(rows))
    return int(not given.quick and any(value > most for value, most in values.values()))


if __name__ == "__main__":
    sys.exit(main())
