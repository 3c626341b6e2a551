"""The numbers of a process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from pytest import approx

from adapter.rules.metrics.catalogue import HTTP_REQUESTS, OTHER
from adapter.rules.metrics.metric import counter, gauge, histogram
from adapter.telemetry.metric_registry import LONGEST_LABEL, MOST_SERIES, MetricRegistry, scraped

CALLS = counter("calls_total", "tool", meaning="Calls.")
TIME = histogram("time_seconds", "tool", meaning="Time.")
OPEN = gauge("open", meaning="Open.")


def samples(registry: MetricRegistry) -> dict[tuple[str, ...], float]:
    text = scraped(registry, "").body.decode()
    return {
        (each.name, *(value for _, value in sorted(each.labels.items()))): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


def test_numbers_are_kept_by_labels() -> None:
    """A counter grows, a gauge is what it was set to, and a histogram has its count and sum."""
    registry = MetricRegistry((CALLS, TIME, OPEN))
    registry.count(CALLS, "a")
    registry.count(CALLS, "a", by=2)
    registry.count(CALLS, "b")
    registry.observe(TIME, 0.02, "a")
    registry.put(OPEN, 7)
    registry.put(OPEN, 5)
    found = samples(registry)
    assert found["calls_total", "a"] == 3 and found["calls_total", "b"] == 1
    assert found["time_seconds_count", "a"] == 1 and found["time_seconds_sum", "a"] == 0.02
    assert found["open",] == 5
    assert not any(name.endswith("_created") for name, *_ in found)
    assert repr(registry) == "<MetricRegistry: 4 series>"


@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_values_together_are_the_same_as_one_by_one(values: list[float]) -> None:
    """In each bucket, those on its bound too."""
    together, apart = MetricRegistry((TIME,)), MetricRegistry((TIME,))
    values += TIME.buckets[:3]
    together.observe_all(TIME, values, "a")
    for value in values:
        apart.observe(TIME, value, "a")
    assert samples(together) == approx(samples(apart))


def test_each_bucket_keeps_the_trace_of_its_last_value() -> None:
    """A value outside of any trace leaves the others' where they are."""
    registry = MetricRegistry((TIME,))
    registry.observe_all(TIME, [0.02, 90.0, 0.021, 0.022], "a", traces=["aa", "bb", "cc", ""])
    body = scraped(registry, "application/openmetrics-text").body.decode()
    (family,) = openmetrics.text_string_to_metric_families(body)
    shown = [each.exemplar for each in family.samples if each.exemplar is not None]
    assert [(each.labels["trace_id"], each.value) for each in shown] == [("cc", 0.021), ("bb", 90.0)]


def test_labels_have_a_bound() -> None:
    """Neither their number nor their length fills the memory, and half of a character stops no scrape."""
    registry = MetricRegistry((CALLS,))
    for number in range(MOST_SERIES + 10):
        registry.count(CALLS, str(number))
    registry.count(CALLS, "x" * 1000)
    assert samples(registry)["calls_total", OTHER] == 11
    registry = MetricRegistry((CALLS,))
    registry.count(CALLS, "x" * 1000)
    registry.count(CALLS, "\udc80")
    assert set(samples(registry)) == {("calls_total", "x" * LONGEST_LABEL), ("calls_total", "?")}
    for number in range(10):
        registry.count(CALLS, "x" * 1000 + str(number))
    assert repr(registry) == "<MetricRegistry: 2 series>"


def test_the_catalogue_is_what_is_counted() -> None:
    """Each entry is there from the start, and has no series before it is counted."""
    registry = MetricRegistry()
    registry.count(HTTP_REQUESTS, "", "GET", "health", "2xx")
    assert b"# HELP adapter_upstream_ping_total" in scraped(registry, "").body
    assert samples(registry)["adapter_http_requests_total", "GET", "health", "", "2xx"] == 1


# --- the two forms of a scrape -----------------------------------------------------------------------------------


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
