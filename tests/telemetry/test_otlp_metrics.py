"""The registry over OTLP: the same numbers, with those of the SDK."""

from __future__ import annotations

from adapter.rules.metrics.catalogue import HTTP_IN_FLIGHT, SERVER_OPERATION, TOOL_CALLS
from adapter.settings.telemetry import TelemetrySettings as Settings
from adapter.telemetry import open_telemetry
from adapter.telemetry.metric_registry import MetricRegistry
from tests.telemetry.collectors import http_collector, values
from tests.telemetry.recording import fault


async def test_the_numbers_of_the_registry_are_exported() -> None:
    """Counters, gauges and histograms, with the names and attributes that OTLP knows, and without empty attributes."""
    async with http_collector() as collector:
        settings = {
            "enabled": True,
            "transport": "http",
            "endpoint": collector.url,
            "export_interval_seconds": 3600,
        }
        registry = MetricRegistry()
        telemetry = open_telemetry(
            Settings.model_validate(settings), redact=str, fault=fault, registry=registry
        )
        assert telemetry is not None
        registry.count(TOOL_CALLS, "shop", "buy", "ok", by=3)
        registry.put(HTTP_IN_FLIGHT, 2, "mcp")
        for seconds in (0.005, 0.03, 1000.0):
            registry.observe(SERVER_OPERATION, seconds, "shop", "ping", "", "", "", "", "tcp")
        assert await telemetry.close()

    metrics = {metric.name: metric for metric in collector.metrics()}
    assert metrics["adapter.up"].gauge.data_points
    (calls,) = metrics[TOOL_CALLS.name].sum.data_points
    assert values(calls.attributes) == {"server_id": "shop", "tool_name": "buy", "outcome": "ok"}
    assert calls.as_double == 3 and metrics[TOOL_CALLS.name].sum.is_monotonic
    assert metrics[HTTP_IN_FLIGHT.name].gauge.data_points[0].as_double == 2
    times = metrics["mcp.server.operation.duration"]
    (point,) = times.histogram.data_points
    assert values(point.attributes) == {
        **{"server_id": "shop", "mcp.method.name": "ping", "network.transport": "tcp"},
    }
    assert times.unit == "s" and point.count == 3 and point.sum == 1000.035
    assert list(point.explicit_bounds) == list(SERVER_OPERATION.buckets)
    assert list(point.bucket_counts) == [1, 0, 1, *[0] * 11, 1]
