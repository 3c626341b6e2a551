"""Dashboards as Grafana 10 and later import them: rows of panels, each over queries of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA = 38
"""The version of dashboards in Grafana 10.0; later ones convert it."""

COLUMNS = 24
HEIGHTS = {"timeseries": 8, "stat": 4}

OF_PROCESS = 'job=~"$job",instance=~"$instance"'
OF_SERVER = f'{OF_PROCESS},server_id=~"$server"'

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "mcp-adapter"

Unit = Literal["short", "s", "bytes", "Bps", "reqps", "ops", "percentunit", "none"]


@dataclass(frozen=True)
class Query:
    """PromQL with the name of its lines.

    In ``text``, ``$of_server`` and ``$of_process`` stand for the matchers of the dashboard's variables: the first one
    for metrics with ``server_id``. ``exemplars`` shows points that lead to traces.
    """

    text: str
    legend: str = ""
    exemplars: bool = False

    @property
    def promql(self) -> str:
        """The query as Grafana takes it."""
        return self.text.replace("$of_server", OF_SERVER).replace("$of_process", OF_PROCESS)


@dataclass(frozen=True)
class Panel:
    """One chart. ``meaning`` is for somebody who has not read the documentation.

    ``words`` are shown in place of numbers. ``warn`` and ``alarm`` are the values from which a number turns orange and
    red.
    """

    title: str
    meaning: str
    queries: tuple[Query, ...]
    unit: Unit = "short"
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: int = 8
    stacked: bool = False
    warn: float | None = None
    alarm: float | None = None
    words: Mapping[int, str] | None = None

    def exported(self, number: int, x: int, y: int) -> dict[str, Any]:
        """The panel as JSON, with its number in the dashboard and its place in the grid."""
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.meaning,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": HEIGHTS[self.kind]},
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": self._options(),
            "targets": [
                _target(query, letter) for query, letter in zip(self.queries, "ABCDEF", strict=False)
            ],
        }

    def _defaults(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
        steps += [
            {"color": color, "value": value}
            for color, value in (("orange", self.warn), ("red", self.alarm))
            if value is not None
        ]
        defaults: dict[str, Any] = {
            "unit": self.unit,
            "min": 0,
            "thresholds": {"mode": "absolute", "steps": steps},
        }
        if self.kind == "timeseries":
            defaults["custom"] = {
                "drawStyle": "line",
                "fillOpacity": 25 if self.stacked else 8,
                "lineWidth": 1,
                "showPoints": "never",
                "stacking": {"group": "A", "mode": "normal" if self.stacked else "none"},
            }
        if self.words:
            shown = {str(value): {"index": value, "text": text} for value, text in self.words.items()}
            defaults["mappings"] = [{"type": "value", "options": shown}]
        return defaults

    def _options(self) -> dict[str, Any]:
        if self.kind == "timeseries":
            return {
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
        return {**options, "colorMode": "value", "graphMode": "area", "textMode": "auto"}


@dataclass(frozen=True)
class Row:
    """Panels under a heading, side by side as far as they fit."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A page of rows. ``uid`` is its address in Grafana, and the name of its file."""

    uid: str
    title: str
    meaning: str
    rows: tuple[Row, ...]

    def exported(self) -> dict[str, Any]:
        """The whole dashboard as JSON."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.meaning,
            "tags": [TAG],
            "schemaVersion": SCHEMA,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "",
            "templating": {"list": _variables()},
            "annotations": {"list": []},
            "links": [_others()],
            "panels": list(_placed(self.rows)),
        }


def _placed(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """All panels in reading order, numbered from 1."""
    number, y = 0, 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                y, x, height = y + height, 0, 0
            number += 1
            yield panel.exported(number, x, y)
            x, height = x + panel.width, max(height, HEIGHTS[panel.kind])
        y += height


def _target(query: Query, letter: str) -> dict[str, Any]:
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": query.promql,
        "legendFormat": query.legend or "__auto",
        "editorMode": "code",
        "range": True,
        "exemplar": query.exemplars,
    }


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return [
        {**source, "multi": False, "includeAll": False, "hide": 0, "refresh": 1},
        _variable("job", "Job", "label_values(adapter_build_info, job)"),
        _variable("instance", "Instance", 'label_values(adapter_build_info{job=~"$job"}, instance)'),
        _variable(
            "server", "Server", f"label_values(adapter_mcp_requests_in_flight{{{OF_PROCESS}}}, server_id)"
        ),
    ]


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    """A variable with any number of values; all of them also mean series without that label."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "refresh": 2,
        "sort": 1,
    }


def _others() -> dict[str, Any]:
    """A menu of the other dashboards, which keeps the time and the variables."""
    return {
        "type": "dashboards",
        "title": "MCP adapter",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }
