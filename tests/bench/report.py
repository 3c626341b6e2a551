"""The tables that a run prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.bench import eras, files, memory, mounts, switched, tool_lists
from tests.bench.figures import Spread
from tests.bench.ratios import ratios
from tests.bench.results import BASELINE, NO_PROXY, Results, median
from tests.bench.scenarios import SCENARIOS
from tests.bench.targets import TARGETS
from tests.bench.upstream import EVENTS_IN_STREAM


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header row, the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def report(results: Results) -> Iterator[str]:
    """Blocks of text, to be parted by empty lines."""
    if results.samples:
        yield from _call_tables(results)
    if found := ratios(results):
        yield "Ratios of the adapter; median of the rounds (from – to)\n" + table(list(_ratio_rows(found)))
    for part in results.figures.parts():
        yield f"{TITLES.get(part, part)}; median of the rounds (from – to)\n" + table(
            list(_figure_rows(results, part))
        )
    if results.calls:
        yield "Python calls of one exchange, which are the same on every machine\n" + table(
            list(_count_rows(results))
        )
    if notes := list(_notes(results)):
        yield "\n".join(notes)
    yield "Targets, for the adapter\n" + table(list(_target_rows(results)))
    yield str(results.machine)
    yield "Numbers of one run compare with each other only; another load on the machine makes them noisy."


def _call_tables(results: Results) -> Iterator[str]:
    yield "CPU time of the front's process tree, µs per unit (× nginx); median of the rounds\n" + table(
        list(_cpu_rows(results))
    )
    yield (
        "Latency of one call at a time and of a stream's first event, ms (added to direct); "
        "median of the rounds\n" + table(list(_latency_rows(results)))
    )


TITLES = {
    switched.PART: 'What people switch on, answers with "isError":false',
    tool_lists.PART: "Lists of tools",
    mounts.PART: f"A mount of {mounts.SERVERS} servers",
    eras.PART: "Calls between eras of MCP",
    memory.PART: "Resident memory",
    **{kind: f"Files: {kind}" for kind in files.KINDS},
}


def _ratio_rows(found: Mapping[str, Sequence[float]]) -> Iterator[list[str]]:
    yield ["", "median (from – to)"]
    for name, values in found.items():
        yield [name, _span(values, 2)]


def _figure_rows(results: Results, part: str) -> Iterator[list[str]]:
    fronts = results.figures.fronts(part)
    yield ["", *(results.titles.get(front, front) for front in fronts)]
    for measure in results.figures.measures(part):
        spans = [results.figures.of(part, measure, front) for front in fronts]
        digits = 2 if min(min(values, default=0.0) for values in spans) < 10 else 0
        yield [measure, *(_span(values, digits) for values in spans)]


def _count_rows(results: Results) -> Iterator[list[str]]:
    yield ["", "Python calls"]
    for road, calls in results.calls.items():
        yield [road, f"{calls:,}"]


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _cpu_rows(results: Results) -> Iterator[list[str]]:
    counted = [scenario for scenario in SCENARIOS if scenario.cpu_counts]
    yield ["", *(scenario.title for scenario in counted)]
    for front in results.samples:
        if front == NO_PROXY:
            continue
        cells = []
        for scenario in counted:
            times = results.times(front, scenario.name)
            ratio = "" if not times or front == BASELINE else f" ({_number(median(times), 1)})"
            cells.append(_number(results.cpu(front, scenario.name)) + ratio)
        yield [results.titles[front], *cells]


def _latency_rows(results: Results) -> Iterator[list[str]]:
    yield ["", "call p50", "call p99", "first event p50"]
    for front in results.samples:
        cells = []
        for scenario, share in (("seq", 0.5), ("seq", 0.99), ("first", 0.5)):
            added = median(results.added(front, scenario, share))
            above = "" if added is None or front == NO_PROXY else f" ({added:+.2f})"
            cells.append(_number(results.wait(front, scenario, share), 2) + above)
        yield [results.titles[front], *cells]


def _span(values: Sequence[float], digits: int = 0) -> str:
    """Median, and the range where there is one."""
    return Spread.of(values).text(digits) if values else "–"


def _notes(results: Results) -> Iterator[str]:
    for front, reason in results.skipped.items():
        yield f"{results.titles[front]} is missing: {reason}"
    for part, reason in results.missing.items():
        yield f"Missing of {part}: {reason}."
    for front in results.samples:
        events = results.events(front)
        if events is not None and events < EVENTS_IN_STREAM:
            yield f"{results.titles[front]} loses progress: {events:.0f} of {EVENTS_IN_STREAM} events arrive."


def _target_rows(results: Results) -> Iterator[list[str]]:
    yield ["measure", "no.", "measured", "unit", "must", "goal", "met", "rounds from", "to"]
    for target in TARGETS:
        values = target.read(results)
        value = median(values)
        bound = "≥ " if target.at_least else "≤ "
        yield [
            target.measure,
            target.number,
            _number(value, 2),
            target.unit,
            f"{bound}{target.must:g}",
            f"{bound}{target.goal:g}",
            target.verdict(value),
            *((_number(min(values), 2), _number(max(values), 2)) if len(values) > 1 else ("", "")),
        ]
