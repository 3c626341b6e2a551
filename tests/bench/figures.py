"""Figures of the parts of a benchmark that compare sizes: for each front and measure one value a round."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """The median of some rounds and their range."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    def text(self, digits: int) -> str:
        """The median, and the range where there is one."""
        if self.rounds < 2:
            return f"{self.median:,.{digits}f}"
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f} – {self.high:,.{digits}f})"


class Figures:
    """Values by part, measure and front. A measure has its unit in its name."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, dict[str, list[float]]]] = {}

    def add(self, part: str, measure: str, front: str, value: float) -> None:
        self._values.setdefault(part, {}).setdefault(measure, {}).setdefault(front, []).append(value)

    def add_all(self, part: str, front: str, found: Mapping[str, float]) -> None:
        """Add a value to each of these measures."""
        for measure, value in found.items():
            self.add(part, measure, front, value)

    def of(self, part: str, measure: str, front: str) -> list[float]:
        """One value a round; none where it was not measured."""
        return self._values.get(part, {}).get(measure, {}).get(front, [])

    def parts(self) -> Iterator[str]:
        yield from self._values

    def measures(self, part: str) -> list[str]:
        return list(self._values.get(part, {}))

    def fronts(self, part: str) -> list[str]:
        """Those of the part, in the order in which they were measured."""
        return list(dict.fromkeys(front for row in self._values.get(part, {}).values() for front in row))

    def times(self, part: str, measure: str, front: str, other: str) -> list[float]:
        """The value of ``front`` divided by that of ``other``, round by round."""
        pairs = zip(self.of(part, measure, front), self.of(part, measure, other), strict=False)
        return [own / base for own, base in pairs if base]

    def growth(self, part: str, measure: str, base: str, front: str) -> list[float]:
        """The value of ``measure`` divided by that of the measure ``base``, of one front, round by round."""
        pairs = zip(self.of(part, measure, front), self.of(part, base, front), strict=False)
        return [own / small for own, small in pairs if small]

    def as_json(self) -> dict[str, dict[str, dict[str, list[float]]]]:
        return self._values
