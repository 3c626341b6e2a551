"""The port through which rooms count: numbers by metric and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from adapter.rules.metrics.metric import Metric


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
