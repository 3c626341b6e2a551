"""The ratios of a run: what a report shows and a history keeps. Of all of them less is better."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench import connections, held_streams, stored_sessions, switched, tool_lists
from tests.bench.figures import Figures
from tests.bench.results import BARE, BASELINE, ENVOY, SUBJECT, Results
from tests.bench.scenarios import SCENARIOS
from tests.bench.sizes import Sizes

ANCHORS = {BASELINE: "nginx", BARE: "bare relay", ENVOY: "Envoy"}
"""Fronts with which the adapter is compared, and their names in a ratio."""

Named = Iterator[tuple[str, list[float]]]


def ratios(results: Results) -> dict[str, list[float]]:
    """Each ratio by its name, round by round; those that were measured."""
    found = dict(_calls(results))
    if results.sizes is not None:
        for part in (_switched, _connections, _lists, _sessions, _streams):
            found |= dict(part(results.figures, results.sizes))
    return {name: values for name, values in found.items() if values}


def _calls(results: Results) -> Named:
    for scenario in SCENARIOS:
        if scenario.cpu_counts:
            for anchor, name in ANCHORS.items():
                yield f"{scenario.title} × {name}", results.times(SUBJECT, scenario.name, anchor)


def _switched(figures: Figures, sizes: Sizes) -> Named:
    part = switched.PART
    for measure in (switched.CALL, switched.SESSION):
        title = measure.removesuffix(switched.UNIT)
        for on in switched.SWITCHES:
            if on != SUBJECT:
                yield f"{title}, {on} × without", figures.times(part, measure, on, SUBJECT)
        for anchor, name in ANCHORS.items():
            yield f"{title}, all on × {name}", figures.times(part, measure, switched.ALL, anchor)
    for measure in (switched.UP, switched.DOWN):
        calls = figures.growth(part, measure, switched.CALL, switched.FILES)
        yield f"{measure.removesuffix(switched.UNIT)} × call", calls


def _connections(figures: Figures, sizes: Sizes) -> Named:
    part, (one, few, *many) = connections.PART, sizes.connections
    for count in sizes.connections:
        for anchor, name in ANCHORS.items():
            cost = connections.cost(count)
            yield f"call over {count:,} × {name}", figures.times(part, cost, SUBJECT, anchor)
    for count in many:
        for base in (one, few):
            growth = figures.growth(part, connections.cost(count), connections.cost(base), SUBJECT)
            yield f"call over {count:,} × over {base:,}", growth


def _lists(figures: Figures, sizes: Sizes) -> Named:
    part, guarded = tool_lists.PART, tool_lists.GUARDING
    for tools in sizes.tools:
        first, warm = tool_lists.first(tools), tool_lists.warm(tools)
        yield f"first list of {tools:,}, guarded × piped", figures.times(part, first, guarded, SUBJECT)
        for anchor, name in ANCHORS.items():
            each = figures.times(part, tool_lists.of_session(tools), guarded, anchor)
            yield f"first list of {tools:,} of a session, guarded × {name}", each
            yield f"list of {tools:,}, piped × {name}", figures.times(part, warm, SUBJECT, anchor)
            yield f"list of {tools:,}, guarded × {name}", figures.times(part, warm, guarded, anchor)


def _sessions(figures: Figures, sizes: Sizes) -> Named:
    full = stored_sessions.stored(sizes.sessions)
    for title, measure in (
        ("start", stored_sessions.START),
        ("memory after the start", stored_sessions.MEMORY),
        ("call", stored_sessions.CALL),
    ):
        values = figures.times(stored_sessions.PART, measure, full, stored_sessions.NONE)
        yield f"{title}, {sizes.sessions:,} stored sessions × none", values


def _streams(figures: Figures, sizes: Sizes) -> Named:
    part, streams = held_streams.PART, f"{sizes.streams:,} streams"
    growth = figures.growth(part, held_streams.BESIDE, held_streams.WITHOUT, SUBJECT)
    yield f"call beside {streams} × without", growth
    yield f"memory of {streams} × bare relay", figures.times(part, held_streams.MEMORY, SUBJECT, BARE)
