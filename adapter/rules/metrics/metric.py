"""One metric, its name, kind, labels and meaning; and the port that counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds, from one millisecond to five minutes."""

OPERATIONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds, as OpenTelemetry's conventions for MCP have them."""


# Equal by identity: each metric exists once, and is looked up in every call.
@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric of the catalogue.

    ``name`` is the one that a scrape shows, ``attributes`` and ``exported`` are the names of its labels and of itself
    over OTLP; by default they are the same. ``buckets`` are the upper bounds of a histogram. ``merged`` is what becomes
    of the numbers of several workers: a gauge whose sum means nothing is the largest one.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    unit: str = ""
    buckets: tuple[float, ...] = ()
    merged: Literal["sum", "max"] = "sum"
    exported: str = ""
    attributes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"<Metric {self.name}>"

    @property
    def name_over_otlp(self) -> str:
        """The name of the exported metric."""
        return self.exported or self.name

    def attribute(self, label: str) -> str:
        """The name of a label's attribute over OTLP."""
        return self.attributes[self.labels.index(label)] if self.attributes else label


def counter(name: str, *labels: str, meaning: str, unit: str = "") -> Metric:
    """A number that only grows; ``name`` ends with ``_total``."""
    return Metric(name, "counter", labels, meaning, unit)


def gauge(
    name: str, *labels: str, meaning: str, unit: str = "", merged: Literal["sum", "max"] = "sum"
) -> Metric:
    """A number that goes up and down."""
    return Metric(name, "gauge", labels, meaning, unit, merged=merged)


def histogram(
    name: str, *labels: str, meaning: str, unit: str = "s", buckets: tuple[float, ...] = DURATIONS
) -> Metric:
    """Values by their size; ``buckets`` are upper bounds."""
    return Metric(name, "histogram", labels, meaning, unit, buckets)


class MetricSink(Protocol):
    """Counts. A room holds one, or None where nothing is counted.

    Labels are given in the order of ``metric.labels``. Each has few values: never an argument, token, session id,
    principal or path, nor a name that a stranger may invent.
    """

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Add to a counter."""

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""

    def observe_all(
        self, metric: Metric, values: Sequence[float], *labels: str, traces: Sequence[str] = ()
    ) -> None:
        """Add values to a histogram, which costs little more than one.

        ``traces`` are the ids of the traces that the values belong to, in hexadecimal digits: one for each,
        "" outside of any; or nothing at all.
        """

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""
