"""The table of metrics in docs/telemetry.md: ``python -m tests.metrics_table`` writes it from the catalogue."""

from __future__ import annotations

from pathlib import Path

from adapter.rules.metrics.catalogue import CATALOGUE
from adapter.rules.metrics.metric import Metric

PAGE = Path(__file__).parents[1] / "docs" / "telemetry.md"
BEGIN, END = "<!-- begin: metrics -->", "<!-- end: metrics -->"


def table() -> str:
    """The whole table, in Markdown."""
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *map(_row, CATALOGUE)])


def _row(metric: Metric) -> str:
    name = f"`{metric.name}`"
    if metric.exported:
        name += f", over OTLP `{metric.exported}`"
    labels = ", ".join(_label(metric, label) for label in metric.labels)
    return f"| {name} | {metric.kind} | {labels} | {metric.meaning} |"


def _label(metric: Metric, label: str) -> str:
    attribute = metric.attribute(label)
    return f"`{label}`" if attribute == label else f"`{label}` (`{attribute}`)"


def written(page: str) -> str:
    """The page with the table of now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
