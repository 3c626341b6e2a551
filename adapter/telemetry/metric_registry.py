"""The numbers of this process, by metric and labels, on prometheus_client; and a scrape of them, as Prometheus text or
as OpenMetrics, whichever the scraper asks for.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.exposition import generate_latest as prometheus_text
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text
from prometheus_client.samples import Exemplar

from adapter.rules.access.headers import prefers
from adapter.rules.metrics.catalogue import CATALOGUE, OTHER
from adapter.rules.metrics.metric import Metric

MOST_SERIES = 10_000
"""Sets of labels of one metric. Above, all labels are ``other``: a defect in a label must not fill the memory."""

LONGEST_LABEL = 128
"""Characters of a label."""


class BatchHistogram(Histogram):
    """A histogram that takes many values at once."""

    def observe_all(self, values: Sequence[float], traces: Sequence[str] = ()) -> None:
        """Add values, with one write for each bucket that gets any.

        Of the traces that belong to them each bucket keeps that of its last value.
        """
        ordered = sorted(values)
        done = 0
        for bucket, bound in zip(self._buckets, self._upper_bounds, strict=True):
            below = bisect_right(ordered, bound, done)
            if below > done:
                bucket.inc(below - done)
                done = below
        self._sum.inc(sum(ordered))
        if traces:
            self._keep_exemplars(values, traces)

    def _keep_exemplars(self, values: Sequence[float], traces: Sequence[str]) -> None:
        last = {
            bisect_left(self._upper_bounds, value): (value, trace)
            for value, trace in zip(values, traces, strict=True)
            if trace
        }
        now = time.time()
        for place, (value, trace) in last.items():
            self._buckets[place].set_exemplar(Exemplar({"trace_id": trace}, value, now))


class Uncounted:
    """A series that is not counted, for there is no room for it."""

    def inc(self, *_: object) -> None:
        """Count nothing."""

    set = observe = observe_all = inc


class MetricRegistry:
    """A MetricSink. ``metrics`` are those that may be counted.

    ``gather`` returns the families of all processes whose numbers are shown; None: this process is the only one.
    ``has_room`` tells whether numbers of a kind may take so many bytes more; series for which there is no room are not
    counted.
    """

    def __init__(
        self,
        metrics: Iterable[Metric] = CATALOGUE,
        gather: Callable[[], Iterable[Family]] | None = None,
        has_room: Callable[[str, int], bool] | None = None,
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.metrics: Mapping[str, Metric] = {_family_name(each): each for each in metrics}
        self._parents: dict[Metric, Any] = {each: self._made(each) for each in self.metrics.values()}
        self._series: dict[Metric, dict[tuple[str, ...], Any]] = {each: {} for each in self._parents}
        self._gather = gather
        self._has_room = has_room

    def __repr__(self) -> str:
        return f"<MetricRegistry: {sum(map(len, self._series.values()))} series>"

    def _made(self, metric: Metric) -> Any:
        kind: Any = {"counter": Counter, "gauge": Gauge, "histogram": BatchHistogram}[metric.kind]
        options: dict[str, Any] = {"buckets": metric.buckets} if metric.kind == "histogram" else {}
        if metric.kind == "gauge":
            options["multiprocess_mode"] = f"live{metric.merged}"
        return kind(metric.name, metric.meaning, metric.labels, registry=self.registry, **options)

    # --- counting ---------------------------------------------------------------------------------------------

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """See MetricSink."""
        series = self._series[metric].get(labels)
        (series or self._begun(metric, labels)).inc(by)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """See MetricSink."""
        (self._series[metric].get(labels) or self._begun(metric, labels)).observe(value)

    def observe_all(
        self, metric: Metric, values: Sequence[float], *labels: str, traces: Sequence[str] = ()
    ) -> None:
        """See MetricSink."""
        (self._series[metric].get(labels) or self._begun(metric, labels)).observe_all(values, traces)

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """See MetricSink."""
        (self._series[metric].get(labels) or self._begun(metric, labels)).set(value)

    def _begun(self, metric: Metric, labels: tuple[str, ...]) -> Any:
        """The series of labels that are counted for the first time."""
        known, shown = self._series[metric], tuple(map(_short, labels))
        if shown not in known and len(known) >= MOST_SERIES:
            shown = (OTHER,) * len(labels)
        if shown not in known:
            parent = self._parents[metric]
            if self._has_room is not None and not self._has_room(_kind(metric), _size(metric, shown)):
                known[shown] = Uncounted()
            else:
                known[shown] = parent.labels(*shown) if shown else parent
        return known[shown]

    # --- reading ----------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Family]:
        """Return the families as they are shown: those of all processes, without the times at which series began."""
        for family in self.registry.collect() if self._gather is None else self._gather():
            yield _without_times(family)

    def own(self) -> Iterator[tuple[Metric, Family]]:
        """Return what this process counted, each with its entry of the catalogue."""
        for family in self.registry.collect():
            metric = self.metrics.get(family.name)
            if metric is not None:
                yield metric, _without_times(family)


def _short(label: str) -> str:
    # A scrape is UTF-8, and a name may hold half of a character.
    return label[:LONGEST_LABEL].encode("utf-8", "replace").decode()


def _kind(metric: Metric) -> str:
    """The kind of a metric as the files of the library are called."""
    return f"gauge_live{metric.merged}" if metric.kind == "gauge" else metric.kind


def _size(metric: Metric, labels: tuple[str, ...]) -> int:
    """Bytes that a series takes in a file, at most: each of its values stands there with everything that it is called.

    JSON writes a character in up to twelve bytes.
    """
    named = (
        2 * len(metric.name) + sum(map(len, metric.labels)) + len(metric.meaning) + 12 * sum(map(len, labels))
    )
    return (len(metric.buckets) + 2) * (named + 10 * len(labels) + 100)


def _family_name(metric: Metric) -> str:
    return metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name


def _without_times(family: Family) -> Family:
    """A family without its samples ``_created``, which double the number of series."""
    kept = [sample for sample in family.samples if not sample.name.endswith("_created")]
    if len(kept) == len(family.samples):
        return family
    shown = Family(family.name, family.documentation, family.type, family.unit)
    shown.samples = kept
    return shown


class Scrape(NamedTuple):
    """The body of an answer to a scraper."""

    content_type: str
    body: bytes


def scraped(registry: MetricRegistry, accept: str) -> Scrape:
    """Write the numbers down; ``accept`` is the scraper's Accept field. Takes milliseconds, so call it in a thread.

    OpenMetrics, which has exemplars, where the scraper names it before plain text; else Prometheus text 0.0.4.
    """
    if prefers(accept, "application/openmetrics-text", "text/plain"):
        return Scrape(OPENMETRICS, openmetrics_text(registry))
    return Scrape(CONTENT_TYPE_PLAIN_0_0_4, prometheus_text(registry))
