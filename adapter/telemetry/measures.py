"""Counts and durations of what calls do."""

from __future__ import annotations

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View

from adapter.rules.text.events import encodable, shortened

DURATION = "adapter.tool.duration"

# Milliseconds. A browser's tools take seconds, the longest the SDK's own buckets know is ten of them.
_BUCKETS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 300_000)

_LONGEST_NAME = 200

VIEWS = (View(instrument_name=DURATION, aggregation=ExplicitBucketHistogramAggregation(_BUCKETS)),)
"""How the durations are put into buckets; the meter's provider takes it."""


class CallMetrics:
    """The instruments. Every name that is passed in becomes a time series, so names are those the adapter offers,
    never what a client made up."""

    def __init__(self, meter: Meter) -> None:
        self._executions = meter.create_counter(
            "adapter.tool.executions", unit="{call}", description="Tool calls that ended."
        )
        self._durations = meter.create_histogram(DURATION, unit="ms", description="How long tool calls took.")
        self._hits = meter.create_counter(
            "adapter.cache.hits", unit="{call}", description="Calls answered from a tool's cache."
        )
        self._misses = meter.create_counter(
            "adapter.cache.misses", unit="{call}", description="Calls that a tool's cache could not answer."
        )
        self._refused = meter.create_counter(
            "adapter.auth.failures",
            unit="{call}",
            description="Calls that a tool's own authentication refused.",
        )

    def call(self, server: str, tool: str, success: bool, seconds: float) -> None:
        """A tool call ended. ``success``: its result is no error."""
        # A client may call a tool by any name.
        name = shortened(encodable(tool), _LONGEST_NAME)
        attributes: dict[str, str | bool] = {"tool.name": name, "server.id": server, "success": success}
        self._executions.add(1, attributes)
        self._durations.record(seconds * 1000, attributes)

    def cache(self, hit: bool) -> None:
        """A tool's cache was asked."""
        (self._hits if hit else self._misses).add(1)

    def auth_failed(self) -> None:
        """A tool's own authentication refused a call."""
        self._refused.add(1)
