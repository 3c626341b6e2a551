"""Queries that many panels have: sums of rates, and quantiles of histograms.

``series`` is a metric with its matchers in braces, ``by`` are the labels whose values have a line of their own.
"""

from __future__ import annotations

from deploy.dashboards.grafana import Query


def rate(series: str, *by: str, name: str = "") -> Query:
    """Growth of a counter per second."""
    return Query(f"{_sum(by)}(rate({series}[$__rate_interval]))", name or _legend(by))


def increase(series: str, *by: str, name: str = "", over: str = "$__rate_interval") -> Query:
    """Growth of a counter from one point of the chart to the next, or over another time."""
    return Query(f"{_sum(by)}(increase({series}[{over}]))", name or _legend(by))


def total(series: str, *by: str, name: str = "") -> Query:
    """Values of a gauge, added up."""
    return Query(f"{_sum(by)}({series})", name or _legend(by))


def p95(histogram: str, *by: str) -> Query:
    """Value that 95 % of a histogram's values do not exceed."""
    return Query(_quantile(0.95, histogram, by), _legend(by))


def quantiles(histogram: str, *by: str, exemplars: bool = False) -> tuple[Query, ...]:
    """Median, 95th and 99th percentile of a histogram; ``exemplars`` adds the points that lead to traces."""
    return tuple(
        Query(_quantile(part, histogram, by), f"{_legend(by)} p{round(100 * part)}".strip(), exemplars)
        for part in (0.5, 0.95, 0.99)
    )


def _quantile(part: float, histogram: str, by: tuple[str, ...]) -> str:
    name, _, matchers = histogram.partition("{")
    buckets = f"{name}_bucket{{{matchers}"
    return f"histogram_quantile({part}, {_sum(('le', *by))}(rate({buckets}[$__rate_interval])))"


def _sum(by: tuple[str, ...]) -> str:
    return f"sum by ({', '.join(by)}) " if by else "sum"


def _legend(by: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in by)
