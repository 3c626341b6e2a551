"""The dashboards of the chart: their form, and that each query asks for metrics and labels of the catalogue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard as GrafanaDashboard

from adapter.rules.metrics.catalogue import CATALOGUE
from deploy.dashboards.__main__ import DASHBOARDS, FOLDER, text_of
from deploy.dashboards.grafana import COLUMNS
from tests.metric_queries import METRICS, dashboard_queries, mistakes
from tests.promql import needs

FILES = sorted(FOLDER.glob("*"))


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One file, as Grafana reads it."""
    found: dict[str, Any] = json.loads(request.param.read_text())
    return found


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_the_files_are_those_of_the_descriptions() -> None:
    """``python -m deploy.dashboards`` would change nothing, and no file is left over."""
    assert {file.name: file.read_text() for file in FILES} == {
        f"{each.uid}.json": text_of(each) for each in DASHBOARDS
    }


def test_grafana_knows_them_again(dashboard: dict[str, Any]) -> None:
    """A dashboard has an address of its own and no id, which Grafana gives; its panels are numbered."""
    assert "id" not in dashboard and len(dashboard["uid"]) <= 40
    assert dashboard["title"] and dashboard["description"] and dashboard["schemaVersion"] >= 36
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert numbers == list(range(1, len(numbers) + 1))


def unread(given: Any, read: Any, place: str = "") -> Iterator[str]:
    """The places in JSON whose values have become others, or nothing."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            yield from unread(value, read.get(key), f"{place}.{key}")
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for value, other in zip(given, read, strict=True):
            yield from unread(value, other, f"{place}[]")
    elif given != read:
        yield place


def test_grafana_reads_every_key(dashboard: dict[str, Any]) -> None:
    """The model that is generated from Grafana's own schemas takes each value as it is."""
    model = GrafanaDashboard.from_json(dashboard)
    read = json.loads(JSONEncoder().encode(model))
    # Grafana's editor writes a variable's query twice, the second time under a key that its schema lacks.
    assert set(unread(dashboard, read)) == {".templating.list[].definition"}
    misspelt = {**dashboard, "templates": dashboard["templating"]}
    assert ".templates" in unread(
        misspelt, json.loads(JSONEncoder().encode(GrafanaDashboard.from_json(misspelt)))
    )


def test_they_follow_the_variables(dashboard: dict[str, Any]) -> None:
    """The data source, the job, the instance and the server are chosen at the top."""
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance", "server"]
    assert all(
        variables[name]["multi"] and variables[name]["allValue"] == ".*" for name in ("instance", "server")
    )
    for panel in panels(dashboard):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert '"$job"' in target["expr"] and '"$instance"' in target["expr"], target["expr"]


def test_a_panel_says_its_meaning(dashboard: dict[str, Any]) -> None:
    """A title, a sentence, a unit, and lines whose names differ."""
    for panel in panels(dashboard):
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(set(legends)) == len(legends) > 0
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)


def test_no_panel_lies_on_another(dashboard: dict[str, Any]) -> None:
    """Each has its place in the grid."""
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_queries_ask_for_what_is_there() -> None:
    """Metrics of the catalogue, with labels and values that they have."""
    assert [mistake for query in dashboard_queries() for mistake in mistakes(query)] == []


def test_each_metric_is_in_a_chart() -> None:
    """Nobody has to know the catalogue to see all of it."""
    shown = {METRICS[each.metric] for query in dashboard_queries() for each in needs(query).selectors}
    assert {metric.name for metric in CATALOGUE} == {metric.name for metric in shown}


def test_a_mistake_would_be_noticed() -> None:
    """A metric, a label or a value that does not exist, in a selector or a sum."""
    for query in (
        "sum(rate(adapter_http_requests[5m]))",
        'adapter_sessions_open{server_id="one"}',
        'rate(adapter_upstream_ping_total{result="failed"}[5m])',
        "sum by (tool_name) (adapter_open_streams)",
        "rate(adapter_event_loop_lag_seconds[5m])",
    ):
        assert list(mistakes(query)), query


def test_a_file_is_small() -> None:
    """Grafana's provisioning and a ConfigMap take them: a ConfigMap holds a megabyte."""
    assert sum(Path(file).stat().st_size for file in FILES) < 500_000
