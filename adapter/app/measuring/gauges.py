"""Gauges: numbers that exist already, read from the parts that have them."""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.app.files import FileSecrets
from adapter.app.replicas import ReplicaService
from adapter.edge.http.buffers import RequestBuffers
from adapter.errors import StoreUnavailable
from adapter.oauth.grants.grant_store import TABLE as GRANT_TABLE
from adapter.relay.server import Server
from adapter.relay.sessions.session_map import Sessions
from adapter.rules.calls.circuit_breaker import BreakerState
from adapter.rules.metrics import catalogue as metrics
from adapter.rules.metrics.metric import Metric, MetricSink
from adapter.state.port import Store
from adapter.version import VERSION

INTERVAL = 1.0
"""Seconds between two readings: what is exported, and what other workers show, is no older."""

SLOW_INTERVAL = 30.0
"""Seconds between two readings of what has to be asked of the state store."""

TURN = 0.005
"""Seconds after which the event loop has another turn before more is counted."""

BREAKER_VALUES = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class GaugeReading(NamedTuple):
    """A value of a gauge, or the total of a counter that somebody else counts."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


Readings = Callable[[], Iterator[GaugeReading]]
"""Reads some gauges; called in the event loop, and does not wait."""

SlowReading = Callable[[], Awaitable[GaugeReading]]
"""Reads a gauge by asking the state store. Raises StoreUnavailable."""


Flush = Callable[[], Iterator[None]]
"""Counts what waits to be counted, in steps; see WaitingTimes."""


class Gauges:
    """Reads all ``sources`` into ``sink``, from time to time and before a scrape; ``slow`` ones less often.

    What is counted by ``flushes`` is counted before, so that a reading has all of it. An unexpected error in one of
    these is logged the first time, and ends neither the reading of the others nor the next one of its own.
    """

    def __init__(self, sink: MetricSink, log: FilteringBoundLogger) -> None:
        self.sources: list[Readings] = [_build]
        self.slow: list[SlowReading] = []
        self.flushes: list[Flush] = []
        self._sink = sink
        self._log = log
        self._failed: set[object] = set()
        self._totals: dict[tuple[Metric, tuple[str, ...]], float] = {}

    def __repr__(self) -> str:
        return f"<Gauges of {len(self.sources)} sources>"

    async def read(self) -> None:
        """Read all of them now."""
        for flush in self.flushes:
            with self._tolerated(flush):
                await _in_turns(flush())
        for source in self.sources:
            with self._tolerated(source):
                for reading in source():
                    self._take(reading)

    @contextlib.contextmanager
    def _tolerated(self, part: object) -> Iterator[None]:
        """Go on behind an unexpected error of a part. It is logged once, or it would fill the log every second."""
        try:
            yield
        except Exception:
            if part not in self._failed:
                self._failed.add(part)
                self._log.exception("some metrics could not be read")

    def _take(self, reading: GaugeReading) -> None:
        metric, value, labels = reading
        if metric.kind == "gauge":
            self._sink.put(metric, value, *labels)
            return
        before = self._totals.get((metric, labels), 0.0)
        if value > before:
            self._totals[metric, labels] = value
            self._sink.count(metric, *labels, by=value - before)

    def end(self, readings: Iterator[GaugeReading]) -> None:
        """Take the last readings of a part that is no more: its gauges fall to zero, and totals begin anew."""
        for reading in readings:
            metric, _, labels = reading
            if metric.kind == "gauge":
                self._sink.put(metric, 0, *labels)
            else:
                self._take(reading)
                self._totals.pop((metric, labels), None)

    async def run(self) -> None:
        """Read every INTERVAL seconds until cancelled, and note how late the event loop is."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_slow())
            loop = asyncio.get_running_loop()
            while True:
                due = loop.time() + INTERVAL
                await asyncio.sleep(INTERVAL)
                with self._tolerated(metrics.LOOP_LAG):
                    self._sink.observe(metrics.LOOP_LAG, max(0.0, loop.time() - due))
                await self.read()

    async def _run_slow(self) -> None:
        while self.slow:
            for source in self.slow:
                with self._tolerated(source), contextlib.suppress(StoreUnavailable):
                    self._take(await source())
            await asyncio.sleep(SLOW_INTERVAL)


async def _in_turns(steps: Iterator[None]) -> None:
    """Take all steps, between which others have their turns."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in steps:
        if loop.time() - began > TURN:
            await asyncio.sleep(0)
            began = loop.time()


def _build() -> Iterator[GaugeReading]:
    yield GaugeReading(metrics.BUILD_INFO, 1, (VERSION, platform.python_version()))


def of_servers(servers: Collection[Server]) -> Iterator[GaugeReading]:
    """The breakers, connections and wiring of servers."""
    for server in servers:
        if server.breaker is not None:
            yield GaugeReading(metrics.BREAKER_STATE, BREAKER_VALUES[server.breaker.state], (server.id,))
        if server.connections is not None:
            use = server.connections.use
            yield GaugeReading(metrics.UPSTREAM_CONNECTIONS, use.busy, (server.id, "busy"))
            yield GaugeReading(metrics.UPSTREAM_CONNECTIONS, use.idle, (server.id, "idle"))
            yield GaugeReading(metrics.UPSTREAM_CONNECTIONS_USED, use.opened, (server.id, "new"))
            yield GaugeReading(metrics.UPSTREAM_CONNECTIONS_USED, use.kept, (server.id, "kept"))
    yield GaugeReading(metrics.WIRING_NOT_READY, sum(not server.wiring.is_ready for server in servers))


def of_buffers(buffers: RequestBuffers) -> Iterator[GaugeReading]:
    """The memory of request bodies."""
    yield GaugeReading(metrics.BUFFERED, buffers.used)
    yield GaugeReading(metrics.BUFFER_LIMIT, buffers.limit)


def of_files(files: FileSecrets) -> Iterator[GaugeReading]:
    """The number and the bytes of files, where any are kept."""
    if files.active:
        yield GaugeReading(metrics.FILES, files.registry.files)
        yield GaugeReading(metrics.FILE_BYTES, files.registry.total)
        limit = files.settings.storage.max_size
        if limit is not None:
            yield GaugeReading(metrics.FILE_BYTES_LIMIT, limit)


def of_sessions(sessions: Sessions) -> Iterator[GaugeReading]:
    """The sessions that this process knows."""
    yield GaugeReading(metrics.SESSIONS, sessions.active)


def of_replicas(parts: ReplicaService) -> Iterator[GaugeReading]:
    """The replicas that this one sees."""
    yield GaugeReading(metrics.REPLICAS, len(parts.replicas.others()))


async def count_grants(store: Store) -> GaugeReading:
    """Count the grants of people. Raises StoreUnavailable."""
    return GaugeReading(metrics.GRANTS, await store.count(GRANT_TABLE))
