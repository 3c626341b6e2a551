"""Telemetry that keeps what it is told in memory, made as the adapter makes its own."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from adapter.pipeline.failures import CallRefused, StageFailed
from adapter.rules.results.refusals import public_line
from adapter.telemetry.signals import AttributeRedaction, Spans


def fault(error: BaseException) -> BaseException | None:
    """Refusals are no faults; a stage that tells why it failed failed by that."""
    if isinstance(error, CallRefused):
        return None
    return error.__cause__ if isinstance(error, StageFailed) else error


class Recording:
    """Spans, and what became of them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        traces = TracerProvider(shutdown_on_exit=False)
        traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Spans(traces.get_tracer("test"), AttributeRedaction(public_line), fault)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """Those that have ended, by name."""
        return {span.name: span for span in self._exporter.get_finished_spans()}
