"""The numbers of this process, by metric and labels, on prometheus_client; and a scrape of them, as Prometheus text or
as OpenMetrics, whichever the scraper asks for.

Numbers of workers: each keeps its own in files that the others read, so that every scrape has those of all.

The files are those of prometheus_client's multiprocess mode: memory that is mapped, so that what a worker counted stays
when it is killed. A file belongs to a seat, not to a process: the worker that takes the seat next counts on in it. So a
counter never falls, and as many files exist as workers ever ran at the same time.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.exposition import generate_latest as prometheus_text
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.multiprocess import MultiProcessCollector
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


FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The variable in which the library looks for the folder of all files."""

BEGAN = "began"
"""A file in the folder, as old as the numbers are."""


RESERVED = {"counter": 1 << 20, "histogram": 4 << 20, "gauge_livesum": 1 << 17, "gauge_livemax": 1 << 17}
"""Bytes of the file of each kind. A write to mapped memory for which a disk has no room kills the process."""


class WorkerValues(NamedTuple):
    """The place of a worker's numbers: the folder of all workers, and its own seat."""

    folder: Path
    seat: int

    @property
    def began(self) -> int:
        """The time since which all workers count, in nanoseconds of Unix time."""
        return (self.folder / BEGAN).stat().st_mtime_ns

    def gathered(self) -> Iterable[Family]:
        """Read the numbers of all workers, those of ended ones included, but for their gauges."""
        found: Iterable[Family] = MultiProcessCollector(None, str(self.folder)).collect()
        return found

    def has_room(self, kind: str, size: int) -> bool:
        """Tell whether so many bytes more fit into the file of a kind, which grows as long as there is room for it."""
        try:
            with (self.folder / f"{kind}_{self.seat}.db").open("r+b") as file:
                # It begins with the number of bytes that are used.
                used, there = int.from_bytes(file.read(4), sys.byteorder), file.seek(0, os.SEEK_END)
                while used + size > there:
                    _double(file, there)
                    there *= 2
        except OSError:
            return False
        return True


def _double(file: BinaryIO, size: int) -> None:
    """Add as many zeros to a file as it has bytes, as the library would without room on the disk. Raises OSError."""
    try:
        file.write(bytes(size))
        file.flush()
    except OSError:
        os.ftruncate(file.fileno(), size)
        raise


_of_this_process: WorkerValues | None = None


def keep_in_files(folder: Path, seat: int) -> None:
    """Have this process keep its numbers in the folder; to be called before the first number is counted.

    No other process has the seat at the same time. Raises OSError where there is no room for them; then they are in its
    memory alone, and scrapes have those of the others.
    """
    global _of_this_process
    _of_this_process = WorkerValues(folder, seat)
    for kind, size in RESERVED.items():
        _reserve(folder / f"{kind}_{seat}.db", size)
    # The library itself has one choice for the whole process.
    os.environ[FOLDER_VARIABLE] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: seat)


def _reserve(file: Path, size: int) -> None:
    """Make a file of zeros with room on the disk, unless it is there. It appears as a whole, for others read it."""
    if file.exists():
        return
    unfinished = file.with_suffix(".new")
    try:
        with unfinished.open("wb") as opened:
            opened.write(bytes(size))
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)


def values_of_this_process() -> WorkerValues | None:
    """The place of this process's numbers; None where they are in its memory alone."""
    return _of_this_process
