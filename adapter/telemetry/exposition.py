"""A scrape: the numbers as Prometheus text or as OpenMetrics, whichever the scraper asks for."""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.exposition import generate_latest as prometheus_text
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text

from adapter.telemetry.metric_registry import MetricRegistry

LONGEST_ACCEPT = 1024
"""Characters of an Accept field that are read."""


class Scrape(NamedTuple):
    """The body of an answer to a scraper."""

    content_type: str
    body: bytes


def scraped(registry: MetricRegistry, accept: str) -> Scrape:
    """Write the numbers down; ``accept`` is the scraper's Accept field. Takes milliseconds, so call it in a thread.

    OpenMetrics, which has exemplars, where the scraper names it before plain text; else Prometheus text 0.0.4.
    """
    if _wants_openmetrics(accept[:LONGEST_ACCEPT]):
        return Scrape(OPENMETRICS, openmetrics_text(registry))
    return Scrape(CONTENT_TYPE_PLAIN_0_0_4, prometheus_text(registry))


def _wants_openmetrics(accept: str) -> bool:
    best = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for entry in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        if kind in best:
            best[kind] = max(best[kind], _weight(parameters))
    openmetrics, plain = best.values()
    return openmetrics > 0 and openmetrics >= plain


def _weight(parameters: list[str]) -> float:
    """The weight among the parameters of a media range (RFC 9110, 12.5.1); 1 without one, 0 for one that is none."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            digits = value.strip().replace(".", "", 1)
            return float(value) if digits.isascii() and digits.isdigit() else 0.0
    return 1.0
