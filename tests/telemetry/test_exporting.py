"""Telemetry on its way to collectors, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import Status

from adapter.rules.metrics.catalogue import TOOL_AUTH_FAILURES
from adapter.rules.results.refusals import public_line
from adapter.settings.telemetry import TelemetrySettings as Settings
from adapter.telemetry import Telemetry, open_telemetry
from adapter.telemetry.exporting import SPAN_BATCH
from adapter.telemetry.metric_registry import MetricRegistry
from tests.telemetry.collectors import Collector, grpc_collector, http_collector, values
from tests.telemetry.recording import fault

NEVER = 3600.0


def opened(collector: Collector, **settings: object) -> Telemetry:
    """Telemetry that exports nothing by itself, so that what arrives is what was flushed. One number was counted."""
    quiet = {"export_interval_seconds": NEVER, "endpoint": collector.url}
    registry = MetricRegistry()
    registry.count(TOOL_AUTH_FAILURES, "users")
    telemetry = open_telemetry(
        Settings.model_validate({"enabled": True, **quiet, **settings}),
        redact=public_line,
        fault=fault,
        registry=registry,
    )
    assert telemetry is not None
    return telemetry


def work(telemetry: Telemetry) -> None:
    """A call that fails within a stage."""
    with (
        telemetry.tracing.span("mcp.tool.call", {"tool.name": "greet", "user.token": "t0p"}),
        contextlib.suppress(LookupError),
        telemetry.tracing.span("stage.execute", {}),
    ):
        raise LookupError("no such greeting")


def assert_received(collector: Collector) -> None:
    """The work of ``work`` has arrived, once."""
    spans = {span.name: span for span in collector.spans()}
    assert sorted(spans) == ["mcp.tool.call", "stage.execute"]
    call, execute = spans["mcp.tool.call"], spans["stage.execute"]
    assert execute.parent_span_id == call.span_id
    assert execute.status.code == Status.STATUS_CODE_ERROR
    assert call.status.code == Status.STATUS_CODE_UNSET
    assert values(call.attributes) == {"tool.name": "greet", "user.token": "[REDACTED]"}
    metrics = {metric.name: metric for metric in collector.metrics()}
    assert metrics.keys() >= {"adapter.up", TOOL_AUTH_FAILURES.name}
    assert metrics[TOOL_AUTH_FAILURES.name].sum.data_points[0].as_double == 1


async def test_h34_h35_over_http() -> None:
    """Spans and counts reach a collector over HTTP, below the endpoint's path and with its credentials."""
    async with http_collector() as collector:
        telemetry = opened(
            collector,
            transport="http",
            endpoint=collector.url.replace("http://", "http://ada:pa%20ss@") + "/otlp/",
            headers={"X-Tenant": "shop"},
            service_name="adapter",
            service_namespace="tests",
        )
        work(telemetry)
        assert await telemetry.close()

    assert_received(collector)
    assert {delivery.path for delivery in collector.deliveries} == {"/otlp/v1/traces", "/otlp/v1/metrics"}
    fields = collector.fields("/otlp/v1/traces")
    assert fields["X-Tenant"] == "shop"
    assert fields["Authorization"] == "Basic YWRhOnBhIHNz"
    (resource,) = collector.resources()
    assert resource["service.name"] == "adapter"
    assert resource["service.namespace"] == "tests"


async def test_h34_h35_over_grpc() -> None:
    """Spans and counts reach a collector over gRPC, with header names in lower case as gRPC has them."""
    async with grpc_collector() as collector:
        telemetry = opened(collector, headers={"X-Tenant": "shop"})
        work(telemetry)
        assert await telemetry.close()
        assert await telemetry.close(), "a second time does nothing"
    assert_received(collector)
    assert collector.fields("traces")["x-tenant"] == "shop"


async def test_spans_leave_while_the_adapter_runs() -> None:
    """What fills a batch is sent."""
    async with http_collector() as collector:
        telemetry = opened(collector, transport="http")
        for _ in range(SPAN_BATCH // 2):
            work(telemetry)
        async with asyncio.timeout(10):
            await collector.arrived.wait()
        assert len(collector.spans()) == SPAN_BATCH
        await telemetry.close()


async def test_an_endpoint_may_name_its_signal() -> None:
    """An endpoint that ends with the path of a signal is that of the others too."""
    async with http_collector() as collector:
        telemetry = opened(collector, transport="http", endpoint=collector.url + "/v1/traces")
        work(telemetry)
        await telemetry.close()
    assert {delivery.path for delivery in collector.deliveries} == {"/v1/traces", "/v1/metrics"}


async def test_h37_log_lines_are_shipped_within_their_trace() -> None:
    """Lines go over HTTP with their level, their trace and without secrets; the exporters' own stay here."""
    async with http_collector() as collector:
        telemetry = opened(collector, transport="http", emit_logs=True, logs_endpoint=collector.url)
        assert telemetry.lines is not None
        with telemetry.tracing.span("mcp.tool.call", {}):
            trace_id = telemetry.tracing.trace_id()
            telemetry.lines(
                {
                    "event": "opened mysql://app:hunter2@db/shop",
                    "level": "warning",
                    "module": "adapter.hosted",
                    "api_key": "k3y",
                    "rows": 3,
                    "names": ["ada"],
                    "timestamp": "2026-01-01T00:00:00Z",
                }
            )
        telemetry.lines({"event": "collector away", "level": "error", "module": "opentelemetry.exporter"})
        await telemetry.close()
    (line,) = collector.lines()
    assert line.body.string_value == "opened [redacted]"
    assert line.severity_text == "WARNING"
    assert line.trace_id.hex() == trace_id
    shown = {"module": "adapter.hosted", "api_key": "[REDACTED]", "rows": 3, "names": "['ada']"}
    assert values(line.attributes) == shown


# --- stop -----------------------------------------------------------------------------------------------------


async def test_a_silent_collector_does_not_hold_up_the_stop() -> None:
    """A collector that does not answer costs the drain timeout and no more, and the loop goes on meanwhile."""
    async with http_collector() as collector:
        collector.patient.clear()
        telemetry = opened(collector, transport="http", shutdown_drain_timeout_seconds=0.2)
        work(telemetry)
        began = time.monotonic()
        closing = asyncio.create_task(telemetry.close())
        async with asyncio.timeout(10):
            await collector.arrived.wait()
        assert await closing is False
        assert time.monotonic() - began < 5


async def run(code: str, *arguments: str) -> str:
    """What a new interpreter prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", code, *arguments),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode().strip()


ENDING = """
import sys
from adapter.settings.telemetry import TelemetrySettings as Settings
from adapter.telemetry import open_telemetry
settings = Settings(enabled=True, transport="http", endpoint=sys.argv[1])
telemetry = open_telemetry(settings, redact=str, fault=lambda error: error)
with telemetry.tracing.span("last words", {}):
    pass
"""


async def test_what_waits_is_sent_when_the_interpreter_ends() -> None:
    """A process that ends without a proper stop still sends what it has."""
    async with http_collector() as collector:
        await run(ENDING, collector.url)
    assert [span.name for span in collector.spans()] == ["last words"]


# --- off, or not there ----------------------------------------------------------------------------------------

OFF = """
import sys
from adapter.settings.telemetry import TelemetrySettings as Settings
from adapter.telemetry import open_telemetry
print(open_telemetry(Settings(), redact=str, fault=lambda error: error), "opentelemetry" in sys.modules)
"""

MISSING = """
import sys
sys.modules["opentelemetry"] = None
from adapter.settings.telemetry import TelemetrySettings as Settings
from adapter.telemetry import TelemetryMissing, open_telemetry
try:
    open_telemetry(Settings(enabled=True), redact=str, fault=lambda error: error)
except TelemetryMissing as missing:
    print(f"{missing.setting}: {missing}")
"""


async def test_off_costs_nothing() -> None:
    """Where telemetry is off there is none, and its libraries are not even loaded."""
    assert await run(OFF) == "None False"


async def test_a_missing_extra_is_named() -> None:
    """Whoever turns telemetry on without its libraries is told what to install."""
    sentence = await run(MISSING)
    assert sentence.startswith("telemetry.enabled: needs the extra telemetry (opentelemetry")
    assert sentence.endswith("pip install 'mcp-file-adapter[telemetry]'")
