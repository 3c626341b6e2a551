"""The two forms of a scrape."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics import parser as openmetrics

from adapter.rules.metrics.metric import histogram
from adapter.telemetry.metric_registry import MetricRegistry, scraped

TIME = histogram("time_seconds", "tool", meaning="Time.")
PROMETHEUS = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain; version=0.0.4", False),
        ("application/openmetrics-text", True),
        (PROMETHEUS, True),
        ("application/openmetrics-text;q=0.1, text/plain;q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=1e9999;version=zebra\r\n", False),
        (";;,;=,,q=;" * 400, False),
    ],
)
def test_the_form_is_the_one_that_is_asked_for(accept: str, is_openmetrics: bool) -> None:
    """Prometheus text for whoever asks for nothing that is known; what was asked for is never repeated."""
    kind, body = scraped(MetricRegistry((TIME,)), accept)
    assert kind.startswith("application/openmetrics-text" if is_openmetrics else "text/plain; version=0.0.4")
    assert body.endswith(b"# EOF\n") == is_openmetrics
    assert "zebra" not in kind


def test_a_value_may_have_a_trace() -> None:
    """OpenMetrics shows it as an exemplar."""
    registry = MetricRegistry((TIME,))
    registry.observe_all(TIME, [0.02], "a", traces=["ab" * 16])
    body = scraped(registry, "application/openmetrics-text").body.decode()
    (family,) = openmetrics.text_string_to_metric_families(body)
    (exemplar,) = [each.exemplar for each in family.samples if each.exemplar is not None]
    assert exemplar.labels == {"trace_id": "ab" * 16} and exemplar.value == 0.02
