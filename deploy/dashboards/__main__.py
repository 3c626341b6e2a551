"""``python -m deploy.dashboards``: write each dashboard into the Helm chart."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.dashboards.files import FILES
from deploy.dashboards.grafana import Dashboard
from deploy.dashboards.overview import OVERVIEW
from deploy.dashboards.process import PROCESS
from deploy.dashboards.upstreams import UPSTREAMS

FOLDER = Path(__file__).parents[1] / "helm" / "mcp-adapter" / "dashboards"
"""Helm reads only what is inside of a chart, and all others can read it there too."""

DASHBOARDS: tuple[Dashboard, ...] = (OVERVIEW, UPSTREAMS, FILES, PROCESS)


def text_of(dashboard: Dashboard) -> str:
    """The content of a dashboard's file."""
    return json.dumps(dashboard.exported(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each.uid}.json").write_text(text_of(each))
