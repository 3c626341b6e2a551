"""The servers behind the adapter: the upstream of each by its transport, and what watches over them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.relay.server import Server, Timeouts, TransferRules
from adapter.relay.sessions.health_probe import HealthMonitor, PingSettings
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.sessions.renewal import LATEST
from adapter.relay.stages import StageTable
from adapter.relay.wiring import WiringWatch
from adapter.rules.access.headers import AnswerHeaders
from adapter.rules.calls.circuit_breaker import Breaker
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError
from adapter.settings.servers.server import ServerSettings, UpstreamSettings
from adapter.state.port import Store
from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import ReadLimit, Upstream

if TYPE_CHECKING:
    from adapter.app.access.grants import GrantParts
    from adapter.app.hosted import Hosting
    from adapter.app.measuring.parts import Metering
    from adapter.app.relay import Runtime
    from adapter.app.replicas import ReplicaParts
    from adapter.app.stdio import StdioUpstreams
    from adapter.app.tool_plans import Compiled
    from adapter.relay.sessions.shared_sessions import SharedSessions

START_COOLDOWN = 1.0
"""Seconds between two looks at an upstream that has not been there yet: it is probably just starting."""


class LocalParts(NamedTuple):
    """The log, and the parts of upstreams that are no addresses; None where no server needs them.

    ``metering`` observes the requests to them, None where nothing is counted.

    ``replicas`` is None where no other process uses the state store, ``store`` where there is none.
    """

    log: FilteringBoundLogger
    hosting: Hosting | None = None
    processes: StdioUpstreams | None = None
    replicas: ReplicaParts | None = None
    store: Store | None = None
    grants: GrantParts | None = None
    metering: Metering | None = None

    def owned(self, server: str, upstream: Upstream) -> Upstream:
        """The upstream with the sessions that live in other replicas."""
        return upstream if self.replicas is None else self.replicas.owned(server, upstream)

    def authorized(self, settings: Settings, entry: ServerSettings, upstream: Upstream) -> Upstream:
        """The same with the credentials of this entry, which a request gets where its client speaks to it."""
        owned = self.owned(entry.id, upstream)
        if entry.upstream.auth.type in ("none", "static"):
            return owned
        if entry.upstream.auth.type == "authorization_code":
            # Without grants, as for a command, nobody is there whose grant it could be.
            return owned if self.grants is None else self.grants.authorized(entry.id, owned)
        # Late: few servers want credentials that are not written down.
        from adapter.app.access.upstream_auth import Surroundings, authorized
        from adapter.state.memory import MemoryStore

        return authorized(Surroundings(settings, self.store or MemoryStore(), self.log), entry, owned)

    async def close(self) -> None:
        """End the processes that are left. Their upstreams have closed before."""
        if self.processes is not None:
            await self.processes.close()


def local_parts(
    settings: Settings,
    hosting: Hosting | None,
    log: FilteringBoundLogger,
    replicas: ReplicaParts | None = None,
    store: Store | None = None,
    grants: GrantParts | None = None,
) -> LocalParts:
    """Build the parts that the servers of these settings need."""
    if not any(entry.upstream.transport == "stdio" for entry in settings.servers):
        return LocalParts(log, hosting, None, replicas, store, grants)
    # Late: most servers are reached over a network.
    from adapter.app.stdio import StdioUpstreams

    return LocalParts(log, hosting, StdioUpstreams(log), replicas, store, grants)


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers by id, and the parts that look after them.

    ``monitors`` ping the servers where pings are enabled; ``wiring_watches`` look at the tools of the others.
    ``shared`` are the upstreams that give one session to many requests, ``parts`` is closed behind them.
    """

    by_id: Mapping[str, Server]
    monitors: Mapping[str, HealthMonitor]
    wiring_watches: Sequence[WiringWatch]
    shared: Sequence[SharedSessions]
    parts: LocalParts

    def watch(self) -> list[asyncio.Task[None]]:
        """Start the tasks that look after the servers until they are cancelled."""
        runs = [monitor.run() for monitor in self.monitors.values()]
        runs += [watch.run() for watch in self.wiring_watches]
        return list(map(asyncio.get_running_loop().create_task, runs))

    async def leave(self, within: float) -> None:
        """Close the adapter's own sessions with the servers, as far as that takes no longer than ``within`` seconds."""
        closes = [monitor.close() for monitor in self.monitors.values()]
        closes += [watch.close() for watch in self.wiring_watches]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await asyncio.gather(*closes)

    async def tidy(self) -> None:
        """Close shared sessions that nobody uses, at all servers at once. Raises StoreUnavailable."""
        await asyncio.gather(*(each.tidy() for each in self.shared))

    async def close(self) -> None:
        """Close the connections to all servers, and end their processes."""
        await asyncio.gather(*(server.upstream.close() for server in self.by_id.values()))
        await self.parts.close()


def build_servers(
    settings: Settings,
    store: Store,
    runtime: Runtime,
    plans: Compiled | None,
    replicas: ReplicaParts | None,
    stages_of: Callable[[ServerSettings], StageTable],
    grants: GrantParts | None = None,
) -> Servers:
    """Build the servers; ``stages_of`` gives the stages of each."""
    hosting = None if plans is None else plans.hosting
    parts = local_parts(settings, hosting, runtime.log, replicas, store, grants)
    parts = parts._replace(metering=runtime.metering)
    servers = {entry.id: build_server(settings, entry, stages_of(entry), parts) for entry in settings.servers}
    monitors = {
        entry.id: HealthMonitor(
            servers[entry.id],
            PingSettings(ping.interval_seconds, ping.timeout_seconds),
            runtime.clock,
            runtime.log,
        )
        for entry in settings.servers
        if (ping := settings.ping_for(entry)).enabled
    }
    watches = [
        _wiring_watch(server, runtime.log)
        for server in servers.values()
        if server.id not in monitors and server.wiring.configured
    ]
    shared = _shared(settings, servers.values(), store, runtime.clock)
    return Servers(servers, monitors, watches, shared, parts)


def _wiring_watch(server: Server, log: FilteringBoundLogger) -> WiringWatch:
    within = server.timeouts.request
    session = OwnSession(server, within)
    return WiringWatch(server.id, server.wiring, session, within + LATEST, within, log)


def _http_upstream(settings: Settings, entry: ServerSettings) -> HttpUpstream:
    """Raises SettingsError for a URL with credentials."""
    upstream, limits = entry.upstream, settings.core.upstream
    assert upstream.url is not None, "settings refuse an upstream over HTTP without a url"
    try:
        return HttpUpstream(
            upstream.url,
            insecure_tls=upstream.insecure_tls,
            connect_timeout=limits.connect_timeout_seconds,
            max_connections=limits.max_connections,
            max_streams=limits.max_streams,
        )
    except ValueError as error:
        raise SettingsError([Problem(f"upstream.url of {entry.id}", str(error))]) from None


def _over_http(settings: Settings, entry: ServerSettings, _: LocalParts) -> Upstream:
    return _http_upstream(settings, entry)


def _over_sse(settings: Settings, entry: ServerSettings, parts: LocalParts) -> Upstream:
    # Late: few servers speak the transport of 2024.
    from adapter.app.sse import sse_upstream

    return sse_upstream(_http_upstream(settings, entry), settings, entry, parts.log)


def _hosted(_: Settings, entry: ServerSettings, parts: LocalParts) -> Upstream:
    assert parts.hosting is not None, "a hosted server asks for plans"
    return parts.hosting.servers[entry.id].upstream


def _over_stdio(settings: Settings, entry: ServerSettings, parts: LocalParts) -> Upstream:
    assert parts.processes is not None, "a stdio server asks for processes"
    return parts.processes.upstream(settings, entry)


UPSTREAMS: Mapping[str, Callable[[Settings, ServerSettings, LocalParts], Upstream]] = {
    "streamable_http": _over_http,
    "sse": _over_sse,
    "stdio": _over_stdio,
    "hosted": _hosted,
}
"""The makers of upstreams, by ``upstream.transport``."""


def build_server(settings: Settings, entry: ServerSettings, stages: StageTable, parts: LocalParts) -> Server:
    """One entry of ``servers``; only its upstream depends on the transport."""
    hosting = parts.hosting
    upstream, ping = entry.upstream, settings.ping_for(entry)
    breaker = Breaker(
        failure_threshold=ping.failure_threshold,
        open_cooldown=ping.open_cooldown_seconds,
        half_open_probes=ping.half_open_probe_allowance,
        start_cooldown=START_COOLDOWN,
    )
    made = UPSTREAMS[upstream.transport](settings, entry, parts)
    reached = parts.authorized(settings, entry, made)
    # A hosted tool has a deadline of its own.
    total = None if upstream.transport == "hosted" else _limit(settings, entry, "tool_call_total_seconds")
    if total is not None:
        # Late: few limit that.
        from adapter.upstream.call_limit import LimitedUpstream

        reached = LimitedUpstream(reached, total)
    if parts.metering is not None:
        reached = parts.metering.observed(entry, stages, reached)
    server = Server(
        id=entry.id,
        mount=entry.mount_path,
        upstream=reached,
        breaker=breaker if ping.enabled else None,
        timeouts=Timeouts(
            tool_call=_limit(settings, entry, "tool_call_timeout_seconds"),
            request=ReadLimit(
                settings.core.upstream_request_timeout_seconds, "core.upstream_request_timeout_seconds"
            ),
            tools=({} if hosting is None else hosting.read_timeouts(entry)) | read_timeouts(entry),
            total=total,
        ),
        rules=_transfer_rules(upstream, settings.core.upstream.max_answer_bytes),
        stages=stages,
    )
    server.connections = made if isinstance(made, HttpUpstream) else None
    server.apart = upstream.auth.per_caller
    if parts.grants is not None:
        parts.grants.stand_before(server)
    if parts.processes is not None:
        server.process_use = partial(parts.processes.use_of, entry.id)
    return server


def _limit(settings: Settings, entry: ServerSettings, name: str) -> ReadLimit | None:
    """The limit of that name for calls of a server's tools; None where there is none."""
    seconds = getattr(settings.tool_defaults_for(entry), name)
    place = "core.defaults" if getattr(entry.tool_defaults, name) is None else "servers[].tool_defaults"
    return None if seconds is None else ReadLimit(seconds, f"{place}.{name}")


def _transfer_rules(upstream: UpstreamSettings, answer_limit: int) -> TransferRules:
    of_clients, of_server = upstream.client_headers, upstream.server_headers
    return TransferRules(
        passthrough=frozenset(name.lower() for name in (*of_clients.passthrough, *of_clients.required)),
        required=tuple(of_clients.required),
        static=tuple(upstream.static_headers.items()),
        answer_headers=AnswerHeaders(drop=of_server.drop, passthrough=of_server.passthrough),
        answer_limit=answer_limit,
    )


def read_timeouts(entry: ServerSettings) -> dict[str, float]:
    """The seconds that a call may be silent, for tools whose adapters override that; of two the longer time counts."""
    found: dict[str, float] = {}
    for adapter in entry.adapters:
        seconds = adapter.overrides.tool_call_timeout_seconds
        if seconds is not None:
            limit = ReadLimit(seconds, "servers[].adapters[].overrides.tool_call_timeout_seconds")
            found |= {tool: max(found.get(tool, limit), limit) for tool in adapter.tools}
    return found


def _shared(
    settings: Settings, servers: Iterable[Server], store: Store, clock: Callable[[], float]
) -> list[SharedSessions]:
    """Put shared sessions before the upstreams where any request may want one; nothing elsewhere.

    ``sessions.upstream`` and ``sessions.missing_id`` decide.
    """
    sessions = settings.sessions
    if sessions.upstream == "session" and sessions.missing_id == "refuse":
        return []
    # Late: clients have a session of their own unless the settings say otherwise.
    from adapter.relay.sessions.shared_session import SharingLimits
    from adapter.relay.sessions.shared_sessions import SharedSessions

    limits = SharingLimits(settings.core.upstream.max_answer_bytes, settings.core.upstream.max_streams)
    found = []
    for server in servers:
        shared = SharedSessions(server, store, limits, idle_ttl=sessions.idle_ttl_seconds, clock=clock)
        server.upstream = shared
        server.shares = sessions.upstream == "principal"
        found.append(shared)
    return found
