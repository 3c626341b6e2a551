"""The destinations of telemetry: providers of spans, metrics and log lines, with the exporters behind them.

The numbers of the registry as OTLP has them, added to what the SDK exports.
"""

from __future__ import annotations

import base64
import os
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
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
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.util.types import AttributeValue
from prometheus_client.metrics_core import Metric as Family

from adapter.rules.metrics.metric import Metric as Entry
from adapter.settings.telemetry import TelemetrySettings as Settings
from adapter.telemetry.metric_registry import MetricRegistry, WorkerValues, values_of_this_process
from adapter.version import VERSION

METRICS_SCOPE = "mcp-adapter.metrics"
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
        self._scope = InstrumentationScope(METRICS_SCOPE)
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


SCOPE = "mcp-adapter"
"""The name of the adapter's instrumentation in what is exported."""

_PORTS = {"grpc": "http://localhost:4317", "http": "http://localhost:4318"}

POINTS_AT_ONCE = 1000
"""Data points of metrics in one export. A collector over gRPC takes four mebibytes, which are more than so many with
the longest labels.
"""


class Providers(NamedTuple):
    """The SDK's providers, each with a thread that exports what has gathered. ``logs`` where log lines are shipped."""

    traces: TracerProvider
    metrics: MeterProvider
    logs: LoggerProvider | None


def open_providers(settings: Settings, registry: MetricRegistry | None = None) -> Providers:
    """Build the providers that the settings ask for; exporting starts with them. None becomes a global one.

    The metrics of a ``registry`` leave with those of the meters. Limits that no argument sets here are those of
    OpenTelemetry's environment variables.
    """
    worker = values_of_this_process()
    resource = _resource(worker)
    spans, metrics, lines = exporter_types(settings)
    traces = TracerProvider(resource=resource)
    traces.add_span_processor(BatchSpanProcessor(spans(**_options(settings, "traces"))))
    exporter = metrics(**_options(settings, "metrics"), max_export_batch_size=POINTS_AT_ONCE)
    if registry is not None:
        exporter = RegistryExporter(exporter, registry, time.time_ns() if worker is None else worker.began)
    reader = PeriodicExportingMetricReader(exporter)
    # Unlike the others it complains of a second shutdown, at the end of the interpreter.
    meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    if registry is not None:
        # A reader exports nothing while no instrument has a value, and the registry leaves with what it exports.
        meters.get_meter(SCOPE).create_observable_gauge("adapter.up", [_up], description="1 while it runs.")
    logs = LoggerProvider(resource=resource) if os.environ.get("OTEL_LOGS_EXPORTER") == "otlp" else None
    if logs is not None:
        logs.add_log_record_processor(BatchLogRecordProcessor(lines(**_options(settings, "logs"))))
    return Providers(traces, meters, logs)


def _up(_: CallbackOptions) -> Iterator[Observation]:
    yield Observation(1, {"version": VERSION})


def _resource(worker: WorkerValues | None) -> Resource:
    # Without a name in OpenTelemetry's variables the SDK would call it an unknown service.
    named: dict[str, AttributeValue] = {"service.name": SCOPE, **OTELResourceDetector().detect().attributes}
    if worker is not None:
        # Each worker exports its own numbers, and a collector adds up those of different instances only.
        named["service.instance.id"] = f"{socket.gethostname()}/{worker.folder.name}/{worker.seat}"
    return Resource.create(named)


def exporter_types(settings: Settings) -> tuple[type, type, type]:
    """Import the SDK's exporters of spans, metrics and log lines over the transport. Raises ModuleNotFoundError."""
    # Either kind brings a network stack of its own, so only the one that is used is loaded.
    if settings.transport == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import _log_exporter, metric_exporter, trace_exporter

        return (
            trace_exporter.OTLPSpanExporter,
            metric_exporter.OTLPMetricExporter,
            _log_exporter.OTLPLogExporter,
        )
    from opentelemetry.exporter.otlp.proto.http import _log_exporter as logs
    from opentelemetry.exporter.otlp.proto.http import metric_exporter as metrics
    from opentelemetry.exporter.otlp.proto.http import trace_exporter as spans

    return spans.OTLPSpanExporter, metrics.OTLPMetricExporter, logs.OTLPLogExporter


def _options(settings: Settings, signal: str) -> dict[str, Any]:
    endpoint, headers = _target(settings)
    if settings.transport == "grpc":
        return {"endpoint": endpoint, "insecure": urlsplit(endpoint).scheme != "https", "headers": headers}
    import requests

    session = requests.Session()
    # No exporter looks at the body of an answer, which may have no end.
    session.stream = True
    # Before 1.45 exporters followed redirects.
    session.max_redirects = 0
    return {"endpoint": _signal(endpoint, signal), "headers": headers, "session": session}


def _target(settings: Settings) -> tuple[str, dict[str, str]]:
    """The endpoint without its user and password, which move into a header: exporters write endpoints into the log."""
    url = settings.endpoint or _PORTS[settings.transport]
    parts = urlsplit(url)
    # gRPC refuses names that are not in lower case.
    sent = {name.lower(): value for name, value in settings.headers.items()}
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, sent
    credentials = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), {"authorization": f"Basic {credentials}", **sent}


def _signal(endpoint: str, signal: str) -> str:
    """The URL of one signal over HTTP: below the endpoint, as OTLP says, unless the endpoint names a signal."""
    parts = urlsplit(endpoint)
    base, slash, last = parts.path.rstrip("/").rpartition("/v1/")
    path = base if slash and last in ("traces", "metrics", "logs") else parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=f"{path}/v1/{signal}"))
