"""The queries of the chart: those of dashboards and of alert rules, and what is wrong with one of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from adapter.rules.metrics.catalogue import CATALOGUE
from adapter.rules.metrics.metric import Metric
from tests.promql import Needs, Selector, needs

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "mcp-adapter"
RULES = CHART / "alerts" / "mcp-adapter.yaml"

OF_A_SCRAPE = {"job", "instance"}
"""Labels that Prometheus adds to every sample."""

CHOSEN = {"$job": ".*", "$instance": ".*", "$server": ".*", "$__rate_interval": "1m", "$__range": "5m"}
"""The variables of the dashboards, all of everything."""


def _samples() -> Iterator[tuple[str, Metric]]:
    for metric in CATALOGUE:
        if metric.kind == "histogram":
            yield from ((f"{metric.name}_{suffix}", metric) for suffix in ("bucket", "sum", "count"))
        else:
            yield metric.name, metric


METRICS = dict(_samples())
"""Each name in a scrape, with its metric."""


def dashboard_queries() -> list[str]:
    """The queries of all dashboards, with their variables."""
    dashboards = [json.loads(file.read_text()) for file in sorted((CHART / "dashboards").glob("*.json"))]
    return [
        target["expr"]
        for dashboard in dashboards
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def chosen(query: str) -> str:
    """A dashboard's query as Grafana sends it."""
    for name, value in CHOSEN.items():
        query = query.replace(name, value)
    return query


def rules() -> list[dict[str, Any]]:
    """The alert rules of all groups."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def mistakes(query: str) -> Iterator[str]:
    """The metrics, labels and values of a query that the catalogue does not have."""
    asked = needs(query)
    for selector in asked.selectors:
        # The only metric that is not the adapter's: Prometheus notes by it that a scrape succeeded.
        if selector.metric != "up":
            yield from _of_selector(selector, asked)


def _of_selector(selector: Selector, asked: Needs) -> Iterator[str]:
    metric = METRICS.get(selector.metric)
    if metric is None:
        yield f"no metric {selector.metric}"
        return
    labels = OF_A_SCRAPE | set(metric.labels) | ({"le"} if selector.metric.endswith("_bucket") else set())
    yield from (f"{selector.metric} has no label {label}" for label in sorted(asked.labels - labels))
    for label, sign, value in selector.matchers:
        if label not in labels:
            yield f"{selector.metric} has no label {label}"
        elif (
            sign == "="
            and value
            and label in ("result", "action", "outcome")
            and f"`{value}`" not in metric.meaning
        ):
            yield f"{selector.metric} has no {label} {value}"


def without_conditions(query: str) -> bool:
    """True for a query that is answered with a value wherever its metrics are there: it compares nothing."""
    return re.search(r'[<>]|==|!=|[a-z_]+=(?!~"\$)', re.sub(r"\[[^]]*\]", "", query)) is None
