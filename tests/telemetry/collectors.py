"""Collectors on 127.0.0.1 that keep what they are sent, over HTTP and over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc  # type: ignore[import-untyped]  # it comes without types
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import (
    LogsServiceServicer,
    add_LogsServiceServicer_to_server,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Delivery(NamedTuple):
    """One export: where it went, with which fields, and what it holds."""

    path: str
    fields: Mapping[str, str]
    message: Any


class Collector:
    """What was delivered, in its order. While ``patient`` is unset the HTTP collector leaves exports unanswered."""

    def __init__(self) -> None:
        self.url = ""
        self.deliveries: list[Delivery] = []
        self.arrived = asyncio.Event()
        self.patient = asyncio.Event()
        self.patient.set()

    def take(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.arrived.set()

    def fields(self, path: str) -> Mapping[str, str]:
        """The header fields of the first delivery there."""
        return next(delivery.fields for delivery in self.deliveries if delivery.path == path)

    def resources(self) -> list[dict[str, Any]]:
        return [values(group.resource.attributes) for group in self._groups("resource_spans")]

    def spans(self) -> list[Span]:
        return [
            span
            for group in self._groups("resource_spans")
            for scope in group.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> list[Metric]:
        return [
            metric
            for group in self._groups("resource_metrics")
            for scope in group.scope_metrics
            for metric in scope.metrics
        ]

    def lines(self) -> list[LogRecord]:
        return [
            line
            for group in self._groups("resource_logs")
            for scope in group.scope_logs
            for line in scope.log_records
        ]

    def _groups(self, field: str) -> Iterable[Any]:
        for delivery in self.deliveries:
            yield from getattr(delivery.message, field, ())


def values(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    """Attributes as plain Python."""
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in attributes
    }


_MESSAGES: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}


@contextlib.asynccontextmanager
async def http_collector() -> AsyncIterator[Collector]:
    """A collector of OTLP over HTTP with protobuf, below any path."""
    collector = Collector()

    async def take(request: web.Request) -> web.Response:
        message = _MESSAGES[request.match_info["signal"]].FromString(await request.read())
        collector.take(Delivery(request.path, request.headers, message))
        await collector.patient.wait()
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post(r"/{base:(.*/)?}v1/{signal}", take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        collector.patient.set()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def grpc_collector() -> AsyncIterator[Collector]:
    """A collector of OTLP over gRPC."""
    collector, loop = Collector(), asyncio.get_running_loop()

    def take(path: str, request: Any, context: Any) -> None:
        fields = dict(context.invocation_metadata())
        loop.call_soon_threadsafe(collector.take, Delivery(path, fields, request))

    class Traces(TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            take("traces", request, context)
            return ExportTraceServiceResponse()

    class Metrics(MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            take("metrics", request, context)
            return ExportMetricsServiceResponse()

    class Logs(LogsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            take("logs", request, context)
            return ExportLogsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    add_TraceServiceServicer_to_server(Traces(), server)  # type: ignore[no-untyped-call]  # generated
    add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]  # generated
    add_LogsServiceServicer_to_server(Logs(), server)  # type: ignore[no-untyped-call]  # generated
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        await asyncio.to_thread(server.stop(None).wait)
