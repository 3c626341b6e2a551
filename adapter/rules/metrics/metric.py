"""One metric, its name, kind, labels and meaning; the port that counts them, and times that wait to be counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Literal, Protocol, TypeVar

DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds, from one millisecond to five minutes."""

OPERATIONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds, as OpenTelemetry's conventions for MCP have them."""


# Equal by identity: each metric exists once, and is looked up in every call.
@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric of the catalogue.

    ``name`` is the one that a scrape shows, ``attributes`` and ``exported`` are the names of its labels and of itself
    over OTLP; by default they are the same. ``buckets`` are the upper bounds of a histogram. ``merged`` is what becomes
    of the numbers of several workers: a gauge whose sum means nothing is the largest one.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    unit: str = ""
    buckets: tuple[float, ...] = ()
    merged: Literal["sum", "max"] = "sum"
    exported: str = ""
    attributes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"<Metric {self.name}>"

    @property
    def name_over_otlp(self) -> str:
        """The name of the exported metric."""
        return self.exported or self.name

    def attribute(self, label: str) -> str:
        """The name of a label's attribute over OTLP."""
        return self.attributes[self.labels.index(label)] if self.attributes else label


def counter(name: str, *labels: str, meaning: str, unit: str = "") -> Metric:
    """A number that only grows; ``name`` ends with ``_total``."""
    return Metric(name, "counter", labels, meaning, unit)


def gauge(
    name: str, *labels: str, meaning: str, unit: str = "", merged: Literal["sum", "max"] = "sum"
) -> Metric:
    """A number that goes up and down."""
    return Metric(name, "gauge", labels, meaning, unit, merged=merged)


def histogram(
    name: str, *labels: str, meaning: str, unit: str = "s", buckets: tuple[float, ...] = DURATIONS
) -> Metric:
    """Values by their size; ``buckets`` are upper bounds."""
    return Metric(name, "histogram", labels, meaning, unit, buckets)


class MetricSink(Protocol):
    """Counts. A room holds one, or None where nothing is counted.

    Labels are given in the order of ``metric.labels``. Each has few values: never an argument, token, session id,
    principal or path, nor a name that a stranger may invent.
    """

    def count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Add to a counter."""

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""

    def observe_all(
        self, metric: Metric, values: Sequence[float], *labels: str, traces: Sequence[str] = ()
    ) -> None:
        """Add values to a histogram, which costs little more than one.

        ``traces`` are the ids of the traces that the values belong to, in hexadecimal digits: one for each,
        "" outside of any; or nothing at all.
        """

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge."""


MOST_WAITING = 512
"""Times of one kind that wait, and kinds."""

COUNTED_AT_ONCE = 16
"""Kinds that make room for others together. The first of a kind takes half a millisecond where workers share files."""

Kind = TypeVar("Kind", bound=Hashable)


class WaitingTimes(Generic[Kind]):
    """The times that wait, in seconds by kind, and by kind the ids of their traces where traces are recorded.

    ``count`` is given a kind with its times and traces, which it may not keep. Code that runs for each call adds to
    what it finds in ``seconds`` itself, which saves a Python call.
    """

    __slots__ = ("_count", "_failure", "seconds", "traces")

    def __init__(self, count: Callable[[Kind, Sequence[float], Sequence[str]], None]) -> None:
        self.seconds: dict[Kind, list[float]] = {}
        self.traces: dict[Kind, list[str]] = {}
        self._count = count
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"<WaitingTimes of {len(self.seconds)} kinds>"

    def add(self, kind: Kind, seconds: float, trace: str | None = None) -> None:
        """Have a time wait; where there is no room for it, what waits longest is counted. Raises nothing.

        ``trace`` is the id of its trace, "" outside of any, and None where no traces are recorded.
        """
        alike = self.seconds.setdefault(kind, [])
        alike.append(seconds)
        if trace is not None:
            self.traces.setdefault(kind, []).append(trace)
        if len(alike) >= MOST_WAITING:
            self._hand_over(kind)
        elif len(self.seconds) >= MOST_WAITING:
            # Some of them, not all: a call that brings one kind too many does not pay for all others.
            for oldest in tuple(islice(self.seconds, COUNTED_AT_ONCE)):
                if self.seconds[oldest]:
                    self._hand_over(oldest)
                del self.seconds[oldest]

    def flush(self) -> Iterator[None]:
        """Count what waits, kind by kind; the caller may let others have their turns in between.

        Raises, when all is counted, the last error that counting has raised since the time before.
        """
        for kind in tuple(self.seconds):
            if self.seconds.get(kind):
                self._hand_over(kind)
                yield
            else:
                # Since the last time there was none of this kind.
                self.seconds.pop(kind, None)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _hand_over(self, kind: Kind) -> None:
        alike, traces = self.seconds[kind], self.traces.pop(kind, [])
        try:
            # Of traces that belong to some of the times nobody knows to which.
            self._count(kind, alike, traces if len(traces) == len(alike) else ())
        except Exception as error:
            # A call that brings a time must not fail because others cannot be counted.
            self._failure = error
        finally:
            alike.clear()
