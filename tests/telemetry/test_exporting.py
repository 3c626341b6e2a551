"""Telemetry on its way to collectors, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from adapter.extras import install_line
from adapter.rules.metrics.catalogue import TOOL_AUTH_FAILURES
from adapter.rules.results.refusals import public_line
from adapter.settings.telemetry import TelemetrySettings as Settings
from adapter.telemetry import Telemetry, open_telemetry
from adapter.telemetry.metric_registry import MetricRegistry
from tests.telemetry.collectors import Collector, grpc_collector, http_collector, values
from tests.telemetry.recording import fault


def opened(collector: Collector, **settings: object) -> Telemetry:
    """Telemetry that exports nothing within its first minute, so that what arrives is what was flushed. One number was
    counted.
    """
    registry = MetricRegistry()
    registry.count(TOOL_AUTH_FAILURES, "users")
    telemetry = open_telemetry(
        Settings.model_validate({"enabled": True, "endpoint": collector.url, **settings}),
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


async def test_h34_h35_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans and counts reach a collector over HTTP, below the endpoint's path and with its credentials."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "adapter")
    async with http_collector() as collector:
        telemetry = opened(
            collector,
            transport="http",
            endpoint=collector.url.replace("http://", "http://ada:pa%20ss@") + "/otlp/",
            headers={"X-Tenant": "shop"},
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


async def test_h34_h35_over_grpc() -> None:
    """Spans and counts reach a collector over gRPC, with header names in lower case as gRPC has them."""
    async with grpc_collector() as collector:
        telemetry = opened(collector, headers={"X-Tenant": "shop"})
        work(telemetry)
        assert await telemetry.close()
        assert await telemetry.close(), "a second time does nothing"
    assert_received(collector)
    assert collector.fields("traces")["x-tenant"] == "shop"


async def test_spans_leave_while_the_adapter_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fills a batch is sent."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    async with http_collector() as collector:
        telemetry = opened(collector, transport="http")
        for _ in range(4):
            work(telemetry)
        async with asyncio.timeout(10):
            await collector.arrived.wait()
        assert len(collector.spans()) == 8
        await telemetry.close()


async def test_an_endpoint_may_name_its_signal() -> None:
    """An endpoint that ends with the path of a signal is that of the others too."""
    async with http_collector() as collector:
        telemetry = opened(collector, transport="http", endpoint=collector.url + "/v1/traces")
        work(telemetry)
        await telemetry.close()
    assert {delivery.path for delivery in collector.deliveries} == {"/v1/traces", "/v1/metrics"}


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_h37_log_lines_are_shipped_within_their_trace(
    monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    """Lines go where spans go, with their level, their trace and without secrets; the exporters' own stay here."""
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "otlp")
    async with http_collector() if transport == "http" else grpc_collector() as collector:
        telemetry = opened(collector, transport=transport)
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
    """A collector that does not answer costs the time of a stop and no more, and the loop goes on."""
    async with http_collector() as collector:
        collector.patient.clear()
        telemetry = opened(collector, transport="http")
        work(telemetry)
        began = time.monotonic()
        closing = asyncio.create_task(telemetry.close(0.2))
        async with asyncio.timeout(10):
            await collector.arrived.wait()
        assert await closing is False
        assert time.monotonic() - began < 5


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 There\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"Content-Length: 999999999999\r\n\r\n" + b"x" * 200_000,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        HEAD + b"Content-Length: 10\r\n\r\nshort",
        b"SSH-2.0-nonsense\r\n",
        b"",
    ],
)
async def test_hostile_collectors_are_survived(answer: bytes) -> None:
    """No answer is followed, or read to an end that never comes, and the stop is in time."""
    asked: set[bytes] = set()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError):
            asked.add(await reader.readline())
            writer.write(answer)
            await writer.drain()
            if b"99999" not in answer:
                writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        collector = Collector()
        collector.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        telemetry = opened(collector, transport="http")
        work(telemetry)
        began = time.monotonic()
        await telemetry.close(1)
        assert time.monotonic() - began < 5
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
    assert asked == {b"POST /v1/traces HTTP/1.1\r\n", b"POST /v1/metrics HTTP/1.1\r\n"}


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
    assert sentence.endswith(install_line("telemetry"))
