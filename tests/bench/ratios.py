"""The ratios of a run: what a report shows and a history keeps. Of all of them less is better."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench import switched, tool_lists
from tests.bench.figures import Figures
from tests.bench.results import BARE, BASELINE, ENVOY, SUBJECT, Results
from tests.bench.scenarios import SCENARIOS

ANCHORS = {BASELINE: "nginx", BARE: "bare relay", ENVOY: "Envoy"}
"""Fronts with which the adapter is compared, and their names in a ratio."""

Named = Iterator[tuple[str, list[float]]]


def ratios(results: Results) -> dict[str, list[float]]:
    """Each ratio by its name, round by round; those that were measured."""
    found = (*_calls(results), *_switched(results.figures), *_lists(results.figures))
    return {name: values for name, values in found if values}


def _calls(results: Results) -> Named:
    for scenario in SCENARIOS:
        if scenario.cpu_counts:
            for anchor, name in ANCHORS.items():
                yield f"{scenario.title} × {name}", results.times(SUBJECT, scenario.name, anchor)


def _switched(figures: Figures) -> Named:
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


def _lists(figures: Figures) -> Named:
    part, first, warm, guarded = tool_lists.PART, tool_lists.FIRST, tool_lists.WARM, tool_lists.GUARDING
    tools = tool_lists.TOOLS
    yield f"first list of {tools}, guarded × piped", figures.times(part, first, guarded, SUBJECT)
    for anchor, name in ANCHORS.items():
        each = figures.times(part, tool_lists.OF_SESSION, guarded, anchor)
        yield f"first list of {tools} of a session, guarded × {name}", each
        yield f"list of {tools}, piped × {name}", figures.times(part, warm, SUBJECT, anchor)
        yield f"list of {tools}, guarded × {name}", figures.times(part, warm, guarded, anchor)
