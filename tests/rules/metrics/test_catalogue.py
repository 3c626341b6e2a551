"""The catalogue of metrics."""

from __future__ import annotations

import re

import pytest

from adapter.rules.metrics.catalogue import CATALOGUE, SERVER_OPERATION, TOOL_CALLS
from adapter.rules.metrics.metric import Metric
from tests.metrics_table import PAGE, written

LABELS = {
    *("server_id", "method", "route_group", "status_class", "reason", "tool_name", "outcome", "error_type"),
    *("status_code", "protocol_version", "transport", "result", "version", "python", "operation", "backend"),
    *("event", "mode", "action", "bucket", "source", "task", "kind", "queue", "state"),
}
"""Labels with few values. A new one is a decision, so it is written here first."""


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda each: each.name)
def test_names_and_labels_are_those_that_prometheus_knows(metric: Metric) -> None:
    """Counters end with _total and others do not, units are base units, and each label is known to have few values."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert (metric.unit == "s") <= metric.name.endswith("_seconds")
    assert set(metric.labels) <= LABELS
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert metric.meaning.endswith(".")


def test_a_metric_exists_once() -> None:
    """No name stands for two things."""
    names = [metric.name for metric in CATALOGUE]
    assert len(names) == len(set(names))
    assert repr(TOOL_CALLS) == "<Metric adapter_upstream_tool_calls_total>"


def test_names_over_otlp() -> None:
    """They are the same as those of a scrape, but for those of OpenTelemetry's conventions."""
    assert TOOL_CALLS.name_over_otlp == TOOL_CALLS.name
    assert TOOL_CALLS.attribute("tool_name") == "tool_name"
    assert SERVER_OPERATION.name_over_otlp == "mcp.server.operation.duration"
    assert SERVER_OPERATION.attribute("tool_name") == "gen_ai.tool.name"
    assert all(len(metric.attributes) in (0, len(metric.labels)) for metric in CATALOGUE)


def test_the_table_is_that_of_now() -> None:
    """``python -m tests.metrics_table`` writes it."""
    page = PAGE.read_text()
    assert written(page) == page
