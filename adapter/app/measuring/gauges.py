"""Gauges: numbers that exist already, read from the parts that have them."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterator
from typing import NamedTuple

from adapter.rules.metrics.catalogue import BUILD_INFO, LOOP_LAG
from adapter.rules.metrics.metric import Metric
from adapter.rules.metrics.port import MetricSink
from adapter.version import VERSION

INTERVAL = 1.0
"""Seconds between two readings: what exports and the scrapes of other workers are given is no older."""


class GaugeReading(NamedTuple):
    """A value of a gauge."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


Readings = Callable[[], Iterator[GaugeReading]]
"""Reads some gauges; called in the event loop, and does not wait."""


class Gauges:
    """Reads all ``sources`` into ``sink``, from time to time and before a scrape."""

    def __init__(self, sink: MetricSink, sources: list[Readings]) -> None:
        self.sources = [*sources, _build]
        self._sink = sink

    def __repr__(self) -> str:
        return f"<Gauges of {len(self.sources)} sources>"

    def read(self) -> None:
        """Read all of them now."""
        for source in self.sources:
            for metric, value, labels in source():
                self._sink.put(metric, value, *labels)

    async def run(self) -> None:
        """Read every INTERVAL seconds until cancelled, and note how late the event loop is."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + INTERVAL
            await asyncio.sleep(INTERVAL)
            self._sink.observe(LOOP_LAG, max(0.0, loop.time() - due))
            self.read()


def _build() -> Iterator[GaugeReading]:
    yield GaugeReading(BUILD_INFO, 1, (VERSION, platform.python_version()))
