"""Continues a row of figures along the straight line that fits it best."""

from __future__ import annotations

from collections.abc import Generator
from math import isfinite
from statistics import linear_regression
from typing import Any

from adapter.api import ToolUserError, progress, response, ui

LONGEST = 24
"""Months; a line that was fitted to a year or two says nothing about more."""


def forecast(payload: dict[str, Any]) -> Generator[Any, None, Any]:
    """Yields how far it is, and ends with the figures to come and a chart of all."""
    known = _figures(payload["inputs"]["figures"])
    months = payload["inputs"]["months"]
    if not 1 <= months <= LONGEST:
        raise ToolUserError(f"months must be between 1 and {LONGEST}, not {months}.")
    yield progress(10, f"fitting a line to {len(known)} figures")
    slope, start = linear_regression(range(len(known)), known)
    expected = []
    for month in range(months):
        yield progress(10 + 80 * (month + 1) / months, f"month {month + 1} of {months}")
        expected.append(round(start + slope * (len(known) + month), 2))
    return (
        response({"forecast": expected, "per_month": round(slope, 2)})
        .ui_block(ui.echarts(_chart(known, expected), title="Forecast"))
        .llm_hint("This forecast is a straight line without seasons. Say so when you show it.")
        .suggest("sales-by-month", "The figures of another region or year")
    )


def _figures(text: str) -> list[float]:
    try:
        figures = [float(figure) for figure in text.split(",")]
    except ValueError:
        figures = []
    if not figures or not all(map(isfinite, figures)):
        raise ToolUserError("figures must be numbers with commas between them, such as 120, 135.5, 150.")
    if len(figures) < 2:
        raise ToolUserError("A trend needs at least two figures.")
    return figures


def _chart(known: list[float], expected: list[float]) -> dict[str, Any]:
    """ECharts' options: the forecast begins where the known figures end."""
    gap = [None] * (len(known) - 1)
    return {
        "xAxis": {"type": "category", "data": list(range(1, len(known) + len(expected) + 1))},
        "yAxis": {"type": "value"},
        "series": [
            {"type": "line", "name": "known", "data": known},
            {"type": "line", "name": "forecast", "data": [*gap, known[-1], *expected]},
        ],
    }
