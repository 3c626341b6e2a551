"""The benchmark: what a call costs through the adapter, beside nginx, Envoy, a bare relay, FastMCP and no proxy.

``python -m tests.bench [--quick] [--only PART,…] [--fronts direct,nginx,…] [--rounds N] [--placement …]
[--json FILE] [--record [FILE]] [--accept REASON]``, or ``make bench``. ``--record`` is ``make bench-record``.

``upstream`` answers and ``load`` asks, both as cheaply as Python can, neither in a process that is counted.
``fronts`` are the proxies, ``process`` reads what the kernel says a process tree has used, ``scenarios`` are
the kinds of traffic. ``parts`` are the measurements that a ``run`` consists of, each with a limit of its time:
``switched`` is what people switch on; ``tool_lists``, ``mounts``, ``eras``, ``memory``, ``python_calls`` and ``files``
(uploads and downloads, by ``transfers``, beside their ``limits``) measure something else. ``results``,
``figures`` and ``costs`` make one number of many rounds, ``targets`` judges and ``report`` prints.
``recording`` makes a line of ``history`` of a run. In every round each scenario goes through each front before
the next scenario begins, so that a busy minute of the machine meets them all.

Where the scheduler puts client, front and upstream decides what a wake-up costs and so moves every ratio. The default
leaves it free, as the targets were set. ``--placement apart`` gives the front a core of its own, as on a
machine of its own; ``together`` puts all on one core, where no wake-up crosses cores and only the work is left.
Both repeat far better than ``free`` and serve to compare two states of the code, not to judge the targets.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import uvloop

from tests.bench import history
from tests.bench.fronts import FRONTS, Front, compile_adapter, end_tidily_when_terminated, upstream_running
from tests.bench.history import FILE, HistoryDamaged
from tests.bench.parts import PARTS, measure_parts
from tests.bench.process import cores, pin
from tests.bench.recording import NotRecordable, commit_to_record, record_of
from tests.bench.report import report
from tests.bench.results import Results
from tests.bench.run import FULL, QUICK, Extent, Run
from tests.reaper import reaped


async def run(fronts: Sequence[Front], extent: Extent) -> Results:
    """Measure the chosen parts; a front that cannot start or answers wrongly is noted and left out."""
    end_tidily_when_terminated()
    compile_adapter()
    results = Results({front.name: front.title for front in fronts})
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        async with upstream_running(Path(place)) as upstream:
            chosen = {name: PARTS[name] for name in extent.parts or PARTS}
            await measure_parts(Run(fronts, extent, upstream, Path(place), results), chosen)
    return results


def _fronts(names: str) -> list[Front]:
    return [FRONTS[name] for name in _known(names, FRONTS, "front")]


def _parts(names: str) -> tuple[str, ...]:
    return tuple(_known(names, PARTS, "part"))


def _known(names: str, all_: Collection[str], noun: str) -> list[str]:
    chosen = [name.strip() for name in names.split(",")]
    if unknown := [name for name in chosen if name not in all_]:
        raise argparse.ArgumentTypeError(f"no {noun} is called {unknown[0]!r}; there are {', '.join(all_)}")
    return chosen


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure the adapter.")
    parser.add_argument("--quick", action="store_true", help="a few calls, to see that everything runs")
    parser.add_argument("--only", type=_parts, default=(), help=f"of {','.join(PARTS)}, with commas")
    parser.add_argument("--rounds", type=int, help="rounds of every measurement")
    parser.add_argument(
        "--fronts", type=_fronts, default=list(FRONTS.values()), help=f"of {','.join(FRONTS)}, with commas"
    )
    parser.add_argument(
        "--placement", choices=("free", "apart", "together"), default="free", help="which cores run what"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there too")
    parser.add_argument(
        "--record", type=Path, nargs="?", const=FILE, metavar="FILE", help="add the run to the history"
    )
    parser.add_argument(
        "--accept", default="", metavar="REASON", help="why worse figures are right; recorded"
    )
    given = parser.parse_args()
    if given.record and given.quick:
        parser.error("a quick run means nothing and is not recorded")
    if given.record and os.environ.get("BENCH_ADAPTER"):
        parser.error("BENCH_ADAPTER names another adapter than that of this commit")
    return given


def _extent(given: argparse.Namespace) -> Extent:
    extent = replace(QUICK if given.quick else FULL, placement=given.placement, parts=given.only)
    if given.rounds:
        extent = replace(extent, rounds=given.rounds, files=replace(extent.files, rounds=given.rounds))
    return extent


def main() -> None:
    given = _arguments()
    try:
        commit = commit_to_record() if given.record else ""
        if given.record:
            history.load(given.record)  # one that is damaged is found before the machine has worked for it
        if given.placement != "free":
            pin([os.getpid()], cores()[0])  # and so everything that is started from here
        with reaped():
            results = uvloop.run(run(given.fronts, _extent(given)))
        sys.stdout.write("\n\n".join(report(results)) + "\n")
        if given.json:
            given.json.write_bytes(orjson.dumps(results.as_json(), option=orjson.OPT_INDENT_2))
        if given.record:
            record = record_of(results, commit, placement=given.placement, accepted=given.accept)
            history.add(given.record, record)
            raise SystemExit(history.tell(given.record))
    except (NotRecordable, HistoryDamaged) as reason:
        raise SystemExit(str(reason)) from reason


if __name__ == "__main__":
    main()
