"""Telemetry that keeps what it is told in memory, made as the adapter makes its own."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from adapter.pipeline.failures import CallRefused, StageFailed
from adapter.rules.results.refusals import public_line
from adapter.telemetry.signals import VIEWS, AttributeRedaction, CallMetrics, Spans


def fault(error: BaseException) -> BaseException | None:
    """Refusals are no faults; a stage that tells why it failed failed by that."""
    if isinstance(error, CallRefused):
        return None
    return error.__cause__ if isinstance(error, StageFailed) else error


class Recording:
    """Spans and measures, and what became of them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        traces = TracerProvider(shutdown_on_exit=False)
        traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Spans(traces.get_tracer("test"), AttributeRedaction(public_line), fault)
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False, views=VIEWS)
        self.measures = CallMetrics(self._meters.get_meter("test"))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """Those that have ended, by name."""
        return {span.name: span for span in self._exporter.get_finished_spans()}

    def points(self) -> dict[str, list[Any]]:
        """The data points of each instrument that was used."""
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def close(self) -> None:
        self._meters.shutdown()
