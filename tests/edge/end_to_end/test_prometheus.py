"""Debian's Prometheus scrapes a running adapter, and answers every query of the dashboards and alert rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edge.conftest import StartUpstream
from tests.edge.end_to_end.test_metrics import CODE, ELSEWHERE, SECRETS, Tools, served, use_everything
from tests.metric_queries import METRICS, RULES, chosen, dashboard_queries, rules, without_conditions
from tests.prometheus import PATIENCE, Prometheus, program, scraping
from tests.promql import needs
from tests.state.shared import SharedMemory
from tests.telemetry.collectors import Collector
from tests.waiting import until

pytestmark = pytest.mark.deep

CALLS = "adapter_upstream_tool_calls_total"
DURATIONS = "adapter_upstream_tool_call_duration_seconds_bucket"


async def labels_of(prometheus: Prometheus, metric: str) -> set[str]:
    """The labels that the series of a metric have."""
    found = await prometheus.get("series", **{"match[]": metric})
    return {label for series in found for label in series}


async def assert_exist(prometheus: Prometheus, query: str) -> None:
    """Each metric of a query was scraped, and has the labels that it is asked for."""
    asked = needs(query)
    for selector in asked.selectors:
        metric = METRICS.get(selector.metric)
        if metric is not None and metric.name in ELSEWHERE:
            continue
        found = await labels_of(prometheus, selector.metric)
        assert found, selector.metric
        # To Prometheus, a label without a value is none.
        found |= set(() if metric is None else metric.labels)
        assert asked.labels | {matcher.label for matcher in selector.matchers} <= found, query


async def assert_answered(prometheus: Prometheus, query: str) -> bool:
    """The query is right. Returns True if it has values, which it must, unless it asks for what did not happen."""
    values = await prometheus.values(query)
    happened = any(METRICS[each.metric].name not in ELSEWHERE for each in needs(query).selectors)
    assert values or not happened or not without_conditions(query), query
    return bool(values)


async def assert_rules_work(prometheus: Prometheus) -> None:
    """Prometheus has taken the rules and evaluates each without an error."""
    for rule in rules():
        await assert_exist(prometheus, rule["expr"])
        await prometheus.values(rule["expr"])
    groups = (await prometheus.get("rules"))["groups"]
    found = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert found.keys() == {rule["alert"] for rule in rules()}
    assert {rule["health"] for rule in found.values()} <= {"ok", "unknown"}


async def assert_exemplars(prometheus: Prometheus, collector: Collector) -> None:
    """Durations of calls name traces, and the collector has these traces."""
    found = await prometheus.get("query_exemplars", query=DURATIONS, start=0, end=4e9)
    named = {each["labels"]["trace_id"] for series in found for each in series["exemplars"]}
    # A call that is only forwarded, one with stages, and one of a hosted tool.
    assert {series["seriesLabels"]["tool_name"] for series in found} >= {"plain", "limited", "echo"}
    await until(lambda: named & {span.trace_id.hex() for span in collector.spans()}, PATIENCE)


@pytest.mark.timed
async def test_every_query_is_answered(
    collector: Collector, tmp_path: Path, upstream: StartUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of every kind, then each query of the dashboards and rules, and traces at the durations of calls."""
    program("prometheus")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(CODE)
    tools, store = Tools(), SharedMemory().replica()
    async with (
        upstream(tools) as up,
        served(tmp_path / "files", up, collector, store) as port,
        scraping(tmp_path, port, RULES, SECRETS[0]) as prometheus,
    ):
        await prometheus.until('up{job="mcp-adapter"} == 1')
        await use_everything(port, up, tools, store)
        # What happens last has been scraped twice, so that there are rates.
        for last in (
            'adapter_persistence_policy_transitions_total{action="fallback_ended"}',
            'adapter_cleanup_removed_records_total{bucket="files"}',
        ):
            await prometheus.until(f"count_over_time({last}[1m]) > 1")
        assert await prometheus.values(f'sum({CALLS}{{server_id="raw",outcome="ok"}})') == [7]
        answered = []
        for query in map(chosen, dashboard_queries()):
            await assert_exist(prometheus, query)
            answered.append(await assert_answered(prometheus, query))
        assert sum(answered) > 0.8 * len(answered)
        await assert_rules_work(prometheus)
        await assert_exemplars(prometheus, collector)
