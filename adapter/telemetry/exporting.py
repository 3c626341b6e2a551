"""The destinations of telemetry: providers of spans, metrics and log lines, with the exporters behind them."""

from __future__ import annotations

import base64
import contextlib
import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from adapter.settings.telemetry import TelemetrySettings as Settings
from adapter.telemetry.metric_registry import MetricRegistry
from adapter.telemetry.otlp_metrics import RegistryMetrics
from adapter.telemetry.span_export import CollectorExporter, GrpcSender, HttpSender, SpanSender
from adapter.telemetry.worker_values import WorkerValues, values_of_this_process
from adapter.version import VERSION

SCOPE = "mcp-adapter"
"""The name of the adapter's instrumentation in what is exported."""

_PORTS = {"grpc": "http://localhost:4317", "http": "http://localhost:4318"}

SPAN_BATCH = 256
"""Spans in one export."""

SPAN_QUEUE = 5000
"""Spans that wait for a slow collector; above it the oldest are dropped."""

_SPAN_DELAY = 5.0
"""Seconds for which a span waits for a full batch."""

_TIMEOUT = 10.0
"""Seconds that one export may take."""

POINTS_AT_ONCE = 1000
"""Data points of metrics in one export. A collector over gRPC takes four mebibytes, which are more than so many with
the longest labels.
"""


class ExportGate:
    """The time until which exports may begin. Open until it is shut."""

    def __init__(self) -> None:
        self._until = math.inf

    def __repr__(self) -> str:
        return f"<Gate: {'open' if self.open else 'shut'}>"

    @property
    def open(self) -> bool:
        return time.monotonic() < self._until

    def shut(self, seconds: float) -> None:
        """Begin no export after this many seconds."""
        self._until = min(self._until, time.monotonic() + seconds)


@dataclass(eq=False, repr=False, slots=True)
class Gated:
    """An exporter of metrics or log lines behind a gate: what comes too late is dropped.

    It adds the metrics of the ``registry`` to each export, where there are some.
    """

    exporter: Any
    gate: ExportGate
    registry: RegistryMetrics | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exporter, name)

    def export(self, batch: Any, **options: Any) -> Any:
        """Return what the exporter returns, or None while the gate is shut; no processor looks at that None."""
        if not self.gate.open:
            return None
        joined = batch if self.registry is None else self.registry.joined(batch)
        return self.exporter.export(joined, **options)


@dataclass(slots=True)
class Exports:
    """The providers, each with a thread that exports what has gathered. ``logs`` where log lines are shipped.

    Spans of relayed requests, which are none of the provider's, wait in the same ``queue`` for the ``exporter``.
    """

    traces: TracerProvider
    queue: BatchSpanProcessor
    exporter: CollectorExporter
    metrics: MeterProvider
    logs: LoggerProvider | None
    gate: ExportGate = field(default_factory=ExportGate)

    def drain(self, seconds: float) -> bool:
        """Export the rest, as far as that begins within ``seconds``, and end. Returns True if all of it could begin.

        Blocks up to the time of one export longer.
        """
        end = time.monotonic() + seconds
        self.gate.shut(seconds)
        for shutdown in self._shutdowns(end):
            with contextlib.suppress(Exception):  # time is up, which the gate knows too
                shutdown()
        return self.gate.open

    def _shutdowns(self, end: float) -> Iterator[Callable[[], None]]:
        yield self.exporter.end
        yield self.traces.shutdown
        # A reader that gets no time at all would go on reading.
        yield lambda: self.metrics.shutdown(timeout_millis=max(1.0, (end - time.monotonic()) * 1000))
        if self.logs is not None:
            yield self.logs.shutdown


def exports(settings: Settings, registry: MetricRegistry | None = None) -> Exports:
    """Build the providers that the settings ask for; exporting starts with them. None becomes a global one.

    The metrics of a ``registry`` leave with those of the meters.
    """
    gate = ExportGate()
    worker = values_of_this_process()
    resource = _resource(settings, worker)
    added = None
    if registry is not None:
        added = RegistryMetrics(registry, time.time_ns() if worker is None else worker.began)
    traces = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = CollectorExporter(resource, SCOPE, _sender(settings), lambda: gate.open, _TIMEOUT)
    queue = BatchSpanProcessor(
        exporter,
        max_queue_size=SPAN_QUEUE,
        max_export_batch_size=SPAN_BATCH,
        schedule_delay_millis=_SPAN_DELAY * 1000,
    )
    traces.add_span_processor(queue)
    reader = PeriodicExportingMetricReader(
        cast(MetricExporter, Gated(_metric_exporter(settings), gate, added)),
        export_interval_millis=settings.export_interval_seconds * 1000,
        export_timeout_millis=_TIMEOUT * 1000,
    )
    meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    if registry is not None:
        # A reader exports nothing while no instrument has a value, and the registry leaves with what it exports.
        meters.get_meter(SCOPE).create_observable_gauge("adapter.up", [_up], description="1 while it runs.")
    logs = _log_provider(settings, resource, gate) if settings.emit_logs else None
    return Exports(traces, queue, exporter, meters, logs, gate)


def _up(_: CallbackOptions) -> Iterator[Observation]:
    yield Observation(1, {"version": VERSION})


def load_exporters(settings: Settings) -> None:
    """Import the exporters that ``exports`` will use. Raises ModuleNotFoundError."""
    if settings.transport == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc import metric_exporter  # noqa: F401  (loaded)
    if settings.transport == "http" or settings.emit_logs:
        from opentelemetry.exporter.otlp.proto.http import metric_exporter as over_http  # noqa: F401  (loaded)


def _resource(settings: Settings, worker: WorkerValues | None) -> Resource:
    named = {"service.name": settings.service_name}
    if worker is not None:
        # Each worker exports its own numbers, and a collector adds up those of different instances only.
        named["service.instance.id"] = f"{socket.gethostname()}/{worker.folder.name}/{worker.seat}"
    if settings.service_namespace is not None:
        named["service.namespace"] = settings.service_namespace
    return Resource.create(named)


def _metric_exporter(settings: Settings) -> MetricExporter:
    endpoint, headers = _target(settings.endpoint or _PORTS[settings.transport], settings.headers)
    if settings.transport == "grpc":
        # Either exporter brings a network stack of its own, so only the one that is used is loaded.
        from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as over_grpc

        return over_grpc.OTLPMetricExporter(
            endpoint,
            settings.insecure,
            headers=headers,
            timeout=_TIMEOUT,
            max_export_batch_size=POINTS_AT_ONCE,
        )
    from opentelemetry.exporter.otlp.proto.http import metric_exporter as over_http

    return over_http.OTLPMetricExporter(
        _signal(endpoint, "metrics"), headers=headers, timeout=_TIMEOUT, max_export_batch_size=POINTS_AT_ONCE
    )


def _sender(settings: Settings) -> SpanSender:
    endpoint, headers = _target(settings.endpoint or _PORTS[settings.transport], settings.headers)
    if settings.transport == "http":
        return HttpSender(_signal(endpoint, "traces"), headers)
    parts = urlsplit(endpoint)
    insecure = settings.insecure and parts.scheme != "https"
    return GrpcSender(parts.netloc or endpoint, headers, insecure=insecure)


def _log_provider(settings: Settings, resource: Resource, gate: ExportGate) -> LoggerProvider:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

    endpoint, headers = _target(settings.logs_endpoint or _PORTS["http"], settings.headers)
    exporter = OTLPLogExporter(_signal(endpoint, "logs"), headers=headers, timeout=_TIMEOUT)
    provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(cast(LogRecordExporter, Gated(exporter, gate))))
    return provider


def _target(url: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """An endpoint without its user and password, which move into a header: exporters write endpoints into the log."""
    parts = urlsplit(url)
    # gRPC refuses names that are not in lower case.
    sent = {name.lower(): value for name, value in headers.items()}
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
