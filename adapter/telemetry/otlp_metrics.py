"""The numbers of the registry as OTLP has them, added to what the SDK exports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family

from adapter.rules.metrics.metric import Metric as Entry
from adapter.telemetry.metric_registry import MetricRegistry

SCOPE = "mcp-adapter.metrics"
"""The name under which they are exported, which no meter has."""

_CUMULATIVE = AggregationTemporality.CUMULATIVE


class RegistryExporter(MetricExporter):
    """An exporter that adds the metrics of ``registry``, counted since ``began`` (nanoseconds of Unix time), to what
    ``exporter`` exports.
    """

    def __init__(self, exporter: MetricExporter, registry: MetricRegistry, began: int) -> None:
        super().__init__()
        self._exporter = exporter
        self._registry = registry
        self._scope = InstrumentationScope(SCOPE)
        self._began = began

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any
    ) -> MetricExportResult:
        """Export both."""
        return self._exporter.export(self.joined(metrics_data), timeout_millis, **options)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """As the exporter."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **options: Any) -> None:
        """As the exporter."""
        self._exporter.shutdown(timeout_millis, **options)

    def joined(self, batch: MetricsData) -> MetricsData:
        """An export of the SDK with the metrics of the registry behind its own."""
        now = time.time_ns()
        found = [metric for metric in (self._metric(*each, now) for each in self._registry.own()) if metric]
        added = ScopeMetrics(self._scope, found, "")
        # Exporters keep one entry for each resource, and in it one for each scope.
        return MetricsData(
            [
                ResourceMetrics(each.resource, [*each.scope_metrics, added], each.schema_url)
                for each in batch.resource_metrics
            ]
        )

    def _metric(self, entry: Entry, family: Family, now: int) -> Metric | None:
        """One metric; None where nothing was counted yet."""
        data: Sum | Gauge | Histogram
        if entry.kind == "histogram":
            data = Histogram(list(self._distributions(entry, family, now)), _CUMULATIVE)
        else:
            points = [
                NumberDataPoint(_attributes(entry, sample.labels), self._began, now, sample.value)
                for sample in family.samples
            ]
            data = Gauge(points) if entry.kind == "gauge" else Sum(points, _CUMULATIVE, True)
        return Metric(entry.name_over_otlp, entry.meaning, entry.unit, data) if data.data_points else None

    def _distributions(self, entry: Entry, family: Family, now: int) -> Iterator[HistogramDataPoint]:
        for labels, (counts, total) in _by_labels(family).items():
            # A scrape has each bucket with all below it.
            inside = [int(count - below) for count, below in zip(counts, [0.0, *counts], strict=False)]
            count = int(counts[-1])
            if count:
                yield HistogramDataPoint(
                    attributes=_attributes(entry, dict(labels)),
                    start_time_unix_nano=self._began,
                    time_unix_nano=now,
                    count=count,
                    sum=total,
                    bucket_counts=inside,
                    explicit_bounds=entry.buckets,
                    min=None,  # type: ignore[arg-type]  # optional in OTLP, and not kept here
                    max=None,  # type: ignore[arg-type]  # as min
                )


def _by_labels(family: Family) -> dict[tuple[tuple[str, str], ...], tuple[list[float], float]]:
    """The cumulative counts of a histogram's buckets, and the sum of its values, by labels."""
    found: dict[tuple[tuple[str, str], ...], tuple[list[float], float]] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        counts, _ = found.setdefault(labels, ([], 0.0))
        if sample.name.endswith("_bucket"):
            counts.append(sample.value)
        elif sample.name.endswith("_sum"):
            found[labels] = counts, sample.value
    return found


def _attributes(entry: Entry, labels: dict[str, str]) -> dict[str, Any]:
    """The labels under their names over OTLP; one without a value is left out."""
    return {entry.attribute(name): value for name, value in labels.items() if value}
