"""The metrics of one process: its registry, the counts around its front door, its gauges, and the scrapes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from structlog.typing import FilteringBoundLogger

from adapter.app.access.oauth_callers import role_terms
from adapter.app.files import FileSecrets
from adapter.app.measuring import gauges
from adapter.app.measuring.gauges import Flush, GaugeReading, Gauges
from adapter.edge.console.status import Viewers
from adapter.edge.http.access import Guard
from adapter.edge.http.bodies import BodyLimits
from adapter.edge.http.buffers import RequestBuffers
from adapter.edge.http.limits import ConnectionLimit, Patience
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Branch
from adapter.edge.telemetry import RequestMetrics, metrics_branch, metrics_handler
from adapter.relay.call.observed import OperationCounts, ServerOperations
from adapter.relay.stages import StageTable
from adapter.relay.tools.tool_guard import ToolGuard
from adapter.rules.access.principals import DEFAULT_TOKEN
from adapter.rules.calls.tracing import Tracer
from adapter.rules.files.file_records import FileRecord
from adapter.rules.metrics import catalogue as metrics
from adapter.rules.metrics.labels import MCP, RouteGroup, RouteGroups, ToolNames
from adapter.rules.metrics.metric import MetricSink
from adapter.settings.root import Settings
from adapter.settings.section import is_loopback
from adapter.settings.servers.server import ServerSettings
from adapter.state.fallback import FallbackStore
from adapter.telemetry.metric_registry import MetricRegistry, Scrape, scraped, values_of_this_process
from adapter.upstream.observed import ObservedUpstream, OutgoingSpans, SentCounts
from adapter.upstream.port import Upstream

if TYPE_CHECKING:
    from adapter.app.core import Core
    from adapter.app.servers import Servers

HEALTH = ("/healthz", "/livez", "/readyz")

MOST_SCRAPERS = 32
"""Connections to a port of its own at the same time."""


def build_registry() -> MetricRegistry:
    """The registry of this process; among workers, its scrapes have the numbers of all."""
    worker = values_of_this_process()
    if worker is None:
        return MetricRegistry()
    return MetricRegistry(gather=worker.gathered, has_room=worker.has_room)


def _operators(guard: Guard, settings: Settings) -> Viewers:
    """The judge of scrapers: operators as the console knows them; while it names no token, each token is one's."""
    console, auth = settings.console, settings.core.auth
    names = console.operators or [DEFAULT_TOKEN, *(entry.name for entry in auth.tokens)]
    return Viewers(guard, names, None if console.oauth is None else role_terms(console.oauth))


class AdapterMetrics:
    """``registry`` has the numbers, ``requests`` counts what comes over HTTP, ``gauges`` are read for each scrape."""

    def __init__(
        self,
        settings: Settings,
        registry: MetricRegistry,
        log: FilteringBoundLogger,
        tracing: Tracer | None = None,
    ) -> None:
        self.registry = registry
        self.requests = RequestMetrics(registry, route_groups(settings))
        self._tracing = tracing
        artifacts = f"{settings.artifacts.uri_scheme}sessions/"
        trace = None if tracing is None else tracing.recorded_trace
        self.operations = OperationCounts(registry, {}, artifacts, trace)
        self.gauges = Gauges(registry, log)
        self.gauges.sources.append(self._in_flight)
        self.gauges.flushes += [self.requests.flush, self.operations.waiting.flush]
        self._flushes: dict[str, Flush] = {}
        """Those of the upstreams of servers, by their ids."""
        self._built: dict[str, tuple[ServerOperations, Flush]] = {}
        """Those of servers that are built and not attached yet: settings may be refused in between."""
        self._places: list[ConnectionLimit] = []
        self._prometheus = settings.telemetry.prometheus
        self._writing = asyncio.Lock()

    async def scrape(self, accept: str) -> tuple[str, bytes]:
        """Write down the numbers in the form that an Accept field asks for: its content type, and the text."""
        # One at a time: a scrape takes memory, and nobody needs two. Its thread goes on when the scraper leaves.
        await self._writing.acquire()
        try:
            await self.gauges.read()
            writing = asyncio.create_task(asyncio.to_thread(scraped, self.registry, accept))
        except BaseException:
            self._writing.release()
            raise
        writing.add_done_callback(self._written)
        return await asyncio.shield(writing)

    def _written(self, _: asyncio.Task[Scrape]) -> None:
        self._writing.release()

    def observed(self, entry: ServerSettings, stages: StageTable, upstream: Upstream) -> Upstream:
        """A server's upstream, to which each operation is counted, and is a span where spans are recorded."""
        operations = ServerOperations(entry.id, tool_names(entry, stages))
        kind = entry.upstream.kind
        counts = SentCounts(entry.id, self.registry, operations.tools.label, kind.network)
        self._built[entry.id] = operations, counts.waiting.flush
        spans = None
        # Tools that run here have spans of their own.
        if self._tracing is not None and kind.needs is not None:
            spans = OutgoingSpans(self._tracing, _address(entry), over_http=kind.own_http)
        return ObservedUpstream(upstream, counts, spans)

    def _flush_by(self, server: str, flush: Flush) -> None:
        """Count what is sent to a server, in place of an earlier one of that id."""
        before = self._flushes.get(server)
        if before is not None:
            for _ in before():
                """It is counted."""
            self.gauges.flushes.remove(before)
        self._flushes[server] = flush
        self.gauges.flushes.append(flush)

    def attach_servers(self, servers: Servers) -> None:
        """Have everything counted that these servers do."""
        sink = self.registry
        for server in servers.by_id.values():
            self.operations.servers[server.id], flush = self._built.pop(server.id)
            self._flush_by(server.id, flush)
            server.wiring.on_look = partial(sink.count, metrics.WIRING_RUNS, server.id)
            if isinstance(server.stages.guard, ToolGuard):
                server.stages.guard.on_drift = partial(sink.count, metrics.DRIFT, server.id)
            if server.connections is not None:
                server.connections.watch(partial(_waited, sink, "upstream"))
        for server_id, monitor in servers.monitors.items():
            monitor.on_ping = partial(_pinged, sink, server_id)

    def detach_servers(self, servers: Servers) -> None:
        """Show no more what was read of these servers, which are served no more or built anew."""
        self.gauges.end(gauges.of_servers(servers.by_id.values()))

    def attach(self, core: Core, buffers: RequestBuffers, fallback: FallbackStore | None) -> None:
        """Have everything counted that the parts behind the edge do, and read their gauges."""
        sink, servers, sessions = self.registry, core.server_parts, core.sessions
        self.attach_servers(servers)
        core.on_change.append(lambda: self.requests.regroup(route_groups(core.settings)))
        sessions.on_event = partial(sink.count, metrics.SESSION_EVENTS)
        if fallback is not None:
            fallback.on_step = partial(sink.count, metrics.PERSISTENCE)
        core.cleanup.on_end = partial(_cleaned, sink)
        self.gauges.sources += [
            partial(gauges.of_servers, servers.by_id.values()),
            partial(gauges.of_buffers, buffers),
            partial(gauges.of_files, core.files),
            partial(gauges.of_sessions, sessions),
        ]
        if core.replicas is not None:
            core.replicas.watch(partial(sink.count, metrics.FORWARDED))
            self.gauges.sources.append(partial(gauges.of_replicas, core.replicas))
        if core.grants is not None:
            self.gauges.slow.append(partial(gauges.count_grants, core.store))

    def observe_files(self, files: FileSecrets, settings: Settings) -> None:
        """Have uploads and upload URLs counted; to be called before the routes of files are built."""
        sink = self.registry
        files.credentials.on_use = partial(_used, sink, settings.state_persistence.type)
        if files.active:
            files.on_upload.append(self._uploaded)
            files.registry.watch(
                lambda record: sink.count(metrics.EVICTIONS, record.kind.value),
                partial(_waited, sink, "upload"),
            )

    async def _uploaded(self, record: FileRecord) -> None:
        self.registry.count(metrics.UPLOAD_FILES, record.server)
        self.registry.count(metrics.UPLOAD_BYTES, record.server, by=record.content.size)

    def note_store(self, action: str) -> None:
        """Count that the state store failed, or works again."""
        self.registry.count(metrics.PERSISTENCE, action, "runtime")

    def watch(self, places: ConnectionLimit) -> None:
        """Count the connections of a listener, and what is refused on them before it is a request."""
        places.on_refusal = self.requests.refuse
        self._places.append(places)

    def _in_flight(self) -> Iterator[GaugeReading]:
        yield GaugeReading(metrics.HTTP_CONNECTIONS, sum(map(len, self._places)))
        for group, number in self.requests.in_flight():
            yield GaugeReading(metrics.HTTP_IN_FLIGHT, number, (group,))
        for server in self.operations.servers.values():
            yield GaugeReading(metrics.CALLS_IN_FLIGHT, server.active, (server.id,))
            yield GaugeReading(metrics.OPEN_STREAMS, server.streams, (server.id,))

    def branches(self, guard: Guard, settings: Settings) -> tuple[Branch, ...]:
        """The route on the adapter's own port, if the metrics are served there."""
        if not self._prometheus.enabled or self._prometheus.place is not None:
            return ()
        return (metrics_branch(self._prometheus.path, self.scrape, _operators(guard, settings)),)

    async def open_port(self, patience: Patience, bodies: BodyLimits) -> Listener | None:
        """Open the port that serves metrics and nothing else, if there is to be one. Raises OSError."""
        if not self._prometheus.enabled or self._prometheus.place is None:
            return None
        host, port = self._prometheus.place
        handler = metrics_handler(self._prometheus.path, self.scrape, bound_to_loopback=is_loopback(host))
        places = ConnectionLimit(handler, limit=MOST_SCRAPERS, reserve=0)
        # Each worker opens it, and whichever the kernel chooses answers for all.
        shared = values_of_this_process() is not None
        return await Listener.open(places, host, port, patience, bodies, shared=shared)


def _address(entry: ServerSettings) -> dict[str, str | int]:
    """The attributes of spans that tell where a server is; a command is none of them."""
    found: dict[str, str | int] = {"server.id": entry.id, "network.transport": entry.upstream.kind.network}
    if entry.upstream.url is None:
        return found
    parts = urlsplit(entry.upstream.url)
    found["network.protocol.name"] = "http"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {**found, "server.address": parts.hostname or "", "server.port": port}


def tool_names(entry: ServerSettings, stages: StageTable) -> ToolNames:
    """The names of tools that the settings of a server tell; names with wildcards are none."""
    named = stages.named_tools | {tool.name for tool in entry.tools.define} | entry.stages.keys()
    return ToolNames(sorted(name for name in named if not set(name) & set("*?[")))


def route_groups(settings: Settings) -> RouteGroups:
    """The groups of all routes that these settings open."""
    exact = {entry.mount_path.rstrip("/"): RouteGroup(MCP, entry.id) for entry in settings.servers}
    exact |= dict.fromkeys(HEALTH, RouteGroup("health"))
    prefixes = {"/artifacts": "artifact", settings.core.upload_path: "upload", "/.well-known": "well_known"}
    if settings.console.enabled:
        prefixes[settings.console.path] = "console"
    if settings.telemetry.prometheus.enabled:
        exact[settings.telemetry.prometheus.path] = RouteGroup("metrics")
    return RouteGroups(exact, prefixes, frozenset(entry.id for entry in settings.servers))


def _pinged(sink: MetricSink, server: str, result: str, seconds: float) -> None:
    sink.count(metrics.PINGS, server, result)
    sink.observe(metrics.PING_LATENCY, seconds, server, result)


def _used(sink: MetricSink, backend: str, counted: str, server: str, operation: str, result: str) -> None:
    if counted == "nonce":
        sink.count(metrics.NONCES, server, operation, result, backend)
    else:
        sink.count(metrics.UPLOAD_CREDENTIALS, server, operation, result)


def _cleaned(sink: MetricSink, task: str, succeeded: bool) -> None:
    sink.count(metrics.CLEANUP_CYCLES, task, "success" if succeeded else "failure")


def _waited(sink: MetricSink, queue: str, seconds: float, succeeded: bool) -> None:
    sink.observe(metrics.QUEUE_WAITS, seconds, queue, "ok" if succeeded else "refused")
