"""What a run has measured, and how many rounds become one number.

Always the *median* over the rounds; ratios and differences are taken within each round first. Not the minimum:
what a wake-up costs depends on which core the scheduler puts whom on, that changes from round to round by a factor
of four for nginx, and the best round of one front would be divided by the best of another kind.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.figures import Figures
from tests.bench.machine import Machine
from tests.bench.scenarios import Sample

SUBJECT = "adapter"
BASELINE = "nginx"
BARE = "bare"
ENVOY = "envoy"
NO_PROXY = "direct"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that at least ``share`` of them do not exceed. At least one value."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def median(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return statistics.median(values) if values else None


@dataclass
class Results:
    """``samples`` by front and scenario, one a round. What could not be measured is absent.

    ``skipped`` says why by front, ``missing`` by part of the run. ``calls`` are those of Python, by road.
    """

    titles: dict[str, str]
    samples: dict[str, dict[str, list[Sample]]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    calls: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine.here)

    def add(self, front: str, scenario: str, sample: Sample) -> None:
        self.samples.setdefault(front, {}).setdefault(scenario, []).append(sample)

    def _of(self, front: str, scenario: str) -> list[Sample]:
        return self.samples.get(front, {}).get(scenario, [])

    def cpu(self, front: str, scenario: str) -> float | None:
        """µs of CPU time of the front's process tree per unit."""
        return median([sample.cpu for sample in self._of(front, scenario) if sample.cpu is not None])

    def times(self, front: str, scenario: str, other: str = BASELINE) -> list[float]:
        """How many times as much CPU as ``other``, round by round."""
        pairs = zip(self._of(front, scenario), self._of(other, scenario), strict=False)
        return [own.cpu / base.cpu for own, base in pairs if own.cpu is not None and base.cpu]

    def wait(self, front: str, scenario: str, share: float) -> float | None:
        """Milliseconds, of the latency's percentile ``share``."""
        return median([percentile(own.waits, share) * 1e3 for own in self._of(front, scenario) if own.waits])

    def added(self, front: str, scenario: str, share: float) -> list[float]:
        """Milliseconds above direct, round by round."""
        pairs = zip(self._of(front, scenario), self._of(NO_PROXY, scenario), strict=False)
        return [
            (percentile(own.waits, share) - percentile(bare.waits, share)) * 1e3
            for own, bare in pairs
            if own.waits and bare.waits
        ]

    def events(self, front: str) -> float | None:
        """Progress notifications that arrived per stream."""
        found = [sample.events for sample in self._of(front, "sse")]
        return min(found) if found else None

    def as_json(self) -> dict[str, object]:
        """Everything that was measured, in the units of the methods above. Lists: by round."""
        fronts: dict[str, object] = {}
        for front, by_scenario in self.samples.items():
            fronts[front] = {
                "cpu_us": {name: [sample.cpu for sample in rounds] for name, rounds in by_scenario.items()},
                "times_nginx": {name: self.times(front, name) for name in by_scenario},
                "times_bare_relay": {name: self.times(front, name, BARE) for name in by_scenario},
                "seq_ms": {"p50": self.wait(front, "seq", 0.5), "p99": self.wait(front, "seq", 0.99)},
                "first_event_ms": {"p50": self.wait(front, "first", 0.5)},
                "events_per_stream": self.events(front),
            }
        return {
            "machine": self.machine.as_json(),
            "fronts": fronts,
            "figures": self.figures.as_json(),
            "python_calls": self.calls,
            "missing": self.missing,
            "skipped": self.skipped,
        }
