"""The registry over OTLP: the same numbers, with those of the SDK."""

from __future__ import annotations

import pytest

from adapter.rules.metrics.catalogue import HTTP_IN_FLIGHT, SERVER_OPERATION, TOOL_CALL_DURATION, TOOL_CALLS
from adapter.settings.telemetry import TelemetrySettings as Settings
from adapter.telemetry import open_telemetry
from adapter.telemetry.exporting import POINTS_AT_ONCE
from adapter.telemetry.metric_registry import MetricRegistry
from tests.telemetry.collectors import grpc_collector, http_collector, values
from tests.telemetry.recording import fault


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_many_series_are_exported_in_parts(transport: str) -> None:
    """A collector over gRPC takes four megabytes at once, and would refuse all numbers for a byte more."""
    async with (http_collector if transport == "http" else grpc_collector)() as collector:
        settings = {"enabled": True, "transport": transport, "endpoint": collector.url}
        registry = MetricRegistry()
        telemetry = open_telemetry(
            Settings.model_validate(settings), redact=str, fault=fault, registry=registry
        )
        assert telemetry is not None
        number = 2 * POINTS_AT_ONCE
        for tool in range(number):
            registry.observe(TOOL_CALL_DURATION, 0.1, "\N{LINEAR B SYLLABLE B008 A}" * 128, str(tool), "ok")
        assert await telemetry.close(60)
    sizes = [each.message.ByteSize() for each in collector.deliveries if "metrics" in each.path]
    assert len(sizes) == 3 and max(sizes) < 4 << 20
    found = [metric for metric in collector.metrics() if metric.name == TOOL_CALL_DURATION.name]
    tools = {
        values(point.attributes)["tool_name"] for metric in found for point in metric.histogram.data_points
    }
    assert tools == set(map(str, range(number)))


async def test_the_numbers_of_the_registry_are_exported() -> None:
    """Counters, gauges and histograms, with the names and attributes that OTLP knows, and without empty attributes."""
    async with http_collector() as collector:
        settings = {"enabled": True, "transport": "http", "endpoint": collector.url}
        registry = MetricRegistry()
        telemetry = open_telemetry(
            Settings.model_validate(settings), redact=str, fault=fault, registry=registry
        )
        assert telemetry is not None
        registry.count(TOOL_CALLS, "shop", "buy", "ok", by=3)
        registry.put(HTTP_IN_FLIGHT, 2, "mcp")
        for seconds in (0.005, 0.03, 1000.0):
            registry.observe(SERVER_OPERATION, seconds, "shop", "ping", "", "", "", "", "tcp")
        assert await telemetry.close(60)

    metrics = {metric.name: metric for metric in collector.metrics()}
    assert metrics["adapter.up"].gauge.data_points
    (calls,) = metrics[TOOL_CALLS.name].sum.data_points
    assert values(calls.attributes) == {"server_id": "shop", "tool_name": "buy", "outcome": "ok"}
    assert calls.as_double == 3 and metrics[TOOL_CALLS.name].sum.is_monotonic
    assert metrics[HTTP_IN_FLIGHT.name].gauge.data_points[0].as_double == 2
    times = metrics["mcp.server.operation.duration"]
    (point,) = times.histogram.data_points
    assert values(point.attributes) == {
        **{"server_id": "shop", "mcp.method.name": "ping", "network.transport": "tcp"}
    }
    assert times.unit == "s" and point.count == 3 and point.sum == 1000.035
    assert list(point.explicit_bounds) == list(SERVER_OPERATION.buckets)
    assert list(point.bucket_counts) == [1, 0, 1, *[0] * 11, 1]
