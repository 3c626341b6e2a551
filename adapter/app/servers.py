"""The servers behind the adapter: the upstream of each by its transport, and what watches over them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from adapter.app.base import Base
from adapter.relay.background import nothing
from adapter.relay.cleanup import CleanupTask
from adapter.relay.eras.bridge import Bridge, Side
from adapter.relay.server import Server, Timeouts, TransferRules
from adapter.relay.sessions.health_probe import HealthMonitor, watch_tools
from adapter.relay.stages import StageTable
from adapter.rules.access.headers import AnswerHeaders
from adapter.rules.calls.circuit_breaker import Breaker
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError
from adapter.settings.servers.server import ServerSettings, Transport, UpstreamSettings
from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import ReadLimit, Upstream
from adapter.wire.eras import Era

if TYPE_CHECKING:
    from adapter.app.access.grants import UpstreamGrants
    from adapter.app.hosted import HostedTools
    from adapter.app.modern_clients import BridgesForModernClients
    from adapter.app.replicas import ReplicaService
    from adapter.relay.sessions.shared_sessions import SharedSessions
    from adapter.upstream.stdio.supervisor import Supervisor

START_COOLDOWN = 1.0
"""Seconds between two looks at an upstream that has not been there yet: it is probably just starting."""

UNREACHABLE_COOLDOWN = 5.0
"""Seconds between two looks at an upstream where no connection can be opened: nothing there needs to be spared."""


Observed = Callable[[ServerSettings, StageTable, Upstream], Upstream]


@dataclass(eq=False, repr=False)
class Servers:
    """Makes the servers, each with its upstream, and has the parts that look after them, by the ids of servers.

    ``stages_of`` gives the stages of each. ``hosting`` has the tools that run here, ``replicas`` the sessions that live
    in other processes, ``grants`` those of people; None where there are none. ``observed`` returns an upstream to which
    operations are counted.

    ``monitors`` ping the servers where pings are enabled; ``wiring_watches`` look at the tools of the others.
    ``shared`` are the upstreams that give one session to many requests.
    """

    base: Base
    stages_of: Callable[[ServerSettings], StageTable] = lambda _: StageTable()
    hosting: HostedTools | None = None
    replicas: ReplicaService | None = None
    grants: UpstreamGrants | None = None
    observed: Observed | None = None
    by_id: dict[str, Server] = field(default_factory=dict)
    tables: dict[str, StageTable] = field(default_factory=dict, init=False)
    monitors: dict[str, HealthMonitor] = field(default_factory=dict, init=False)
    wiring_watches: dict[str, Callable[[], Coroutine[Any, Any, None]]] = field(
        default_factory=dict, init=False
    )
    shared: dict[str, SharedSessions] = field(default_factory=dict, init=False)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)

    @property
    def maps(self) -> list[dict[str, Any]]:
        """All that is kept of a server by its id."""
        return [self.by_id, self.tables, self.monitors, self.wiring_watches, self.shared, self._running]

    @cached_property
    def processes(self) -> Supervisor:
        """What starts the processes of all servers over stdio."""
        # Late: most servers are reached over a network.
        from adapter.upstream.stdio.supervisor import Supervisor

        return Supervisor(self.base.log)

    @cached_property
    def bridges(self) -> BridgesForModernClients:
        """What makes the bridges for modern clients."""
        # Late: most servers are spoken to in their own era.
        from adapter.app.modern_clients import BridgesForModernClients

        return BridgesForModernClients(self.base, self.replicas, self.shared)

    async def end_processes(self) -> None:
        """End the processes that are left. Their upstreams have closed before."""
        if "processes" in vars(self):
            await self.processes.close()

    def server(self, entry: ServerSettings, stages: StageTable) -> Server:
        """One entry of ``servers``; only its upstream depends on the transport."""
        settings, upstream, grants = self.base.settings, entry.upstream, self.grants
        ping, hosting = settings.ping_for(entry), self.hosting
        breaker = Breaker(
            failure_threshold=ping.failure_threshold,
            open_cooldown=ping.open_cooldown_seconds,
            start_cooldown=START_COOLDOWN,
            unreachable_cooldown=UNREACHABLE_COOLDOWN,
        )
        if grants is not None:
            grants.add(entry)
        made, attach = UPSTREAMS[upstream.transport](self, entry)
        # A hosted tool has a deadline of its own.
        total = None if upstream.kind.needs is None else settings.core.defaults.tool_call_total_seconds
        limit = None if total is None else ReadLimit(total, "core.defaults.tool_call_total_seconds")
        reached = self._wrapped(entry, made, limit)
        server = Server(
            id=entry.id,
            mount=entry.mount_path,
            upstream=reached if self.observed is None else self.observed(entry, stages, reached),
            breaker=breaker if ping.enabled else None,
            timeouts=Timeouts(
                tool_call=_call_timeout(settings, entry),
                request=ReadLimit(
                    settings.core.upstream_request_timeout_seconds, "core.upstream_request_timeout_seconds"
                ),
                tools=({} if hosting is None else hosting.read_timeouts(entry)) | read_timeouts(entry),
                total=limit,
            ),
            rules=_transfer_rules(upstream, settings.core.upstream.max_answer_bytes),
            stages=stages,
        )
        attach(server)
        server.apart = upstream.auth.per_caller
        if grants is not None:
            grants.stand_before(server)
        if upstream.bridge == "auto" and upstream.kind.needs is not None:
            Bridge(server, self._sides(entry, server), self.base.log)
        return server

    def _sides(self, entry: ServerSettings, server: Server) -> Mapping[Era, Side]:
        """The translations for clients of each era."""
        return {
            Era.LEGACY: partial(self._of_legacy_clients, entry, server),
            Era.MODERN: lambda upstream: self.bridges.before(entry, server, upstream),
        }

    def _of_legacy_clients(self, entry: ServerSettings, server: Server, upstream: Upstream) -> Upstream:
        # Late: most servers speak the era of their clients.
        from adapter.relay.eras.legacy_clients import LegacyClients
        from adapter.upstream.local.upstream import LocalUpstream

        limits, log = self.base.settings.sessions, self.base.log.bind(server=entry.id)
        local = LocalUpstream(LegacyClients(server, upstream, limits, log))
        if self.replicas is None:
            return local
        from adapter.app.replicas import bridged

        return self.replicas.owned(bridged(entry.id), local)

    def _wrapped(self, entry: ServerSettings, made: Upstream, total: ReadLimit | None) -> Upstream:
        """The upstream with the sessions in other replicas, its credentials and its limit."""
        base = self.base
        upstream = made if self.replicas is None else self.replicas.owned(entry.id, made)
        if entry.upstream.auth.type == "authorization_code":
            # Without grants, as for a command, nobody is there whose grant it could be.
            upstream = upstream if self.grants is None else self.grants.authorized(entry.id, upstream)
        elif entry.upstream.auth.type not in ("none", "static"):
            # Late: few servers want credentials that are not written down.
            from adapter.app.access.upstream_auth import authorized

            upstream = authorized(base.settings, base.store, base.log, entry, upstream)
        if total is not None:
            # Late: few limit that.
            from adapter.upstream.timeouts import LimitedUpstream

            upstream = LimitedUpstream(upstream, total)
        return upstream

    def add(self, entry: ServerSettings) -> None:
        """Build one server; nobody looks after it before ``begin``. Raises SettingsError."""
        base, table = self.base, self.stages_of(entry)
        server = self.server(entry, table)
        self.by_id[entry.id], self.tables[entry.id] = server, server.stages
        if (ping := base.settings.ping_for(entry)).enabled:
            self.monitors[entry.id] = HealthMonitor(server, ping, base.clock, base.log)
        elif server.wiring.configured:
            self.wiring_watches[entry.id] = partial(watch_tools, server, base.log)
        shared = _shared(base, server)
        if shared is not None:
            self.shared[entry.id] = shared

    def only(self, ids: Collection[str]) -> Servers:
        """Some of the servers, to be ended apart from the others."""
        found = replace(self, by_id={})
        for its, mine in zip(found.maps, self.maps, strict=True):
            its.update((name, each) for name, each in mine.items() if name in ids)
        return found

    def begin(self) -> None:
        """Look after the servers that nobody looks after yet, until ``leave``."""
        loop = asyncio.get_running_loop()
        pings = {name: monitor.run for name, monitor in self.monitors.items()}
        for name, watch in (pings | self.wiring_watches).items():
            if name not in self._running:
                self._running[name] = loop.create_task(watch())

    async def leave(self, within: float) -> None:
        """Look after them no more. Close the adapter's own sessions with the servers, as far as that takes no longer
        than ``within`` seconds.
        """
        for task in self._running.values():
            task.cancel()
        ended = asyncio.gather(*self._running.values(), return_exceptions=True)
        closes = [monitor.close() for monitor in self.monitors.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await asyncio.gather(ended, *closes)

    async def tidy(self) -> None:
        """Close shared sessions that nobody uses, at all servers at once. Raises StoreUnavailable."""
        await asyncio.gather(*(each.tidy() for each in self.shared.values()))

    async def write_used(self) -> None:
        """Write down when the shared sessions were used. Raises StoreUnavailable."""
        for each in [*self.shared.values()]:
            await each.write_used()

    async def end_lost(self) -> None:
        """End the shared sessions to which no row leads any more. Raises StoreUnavailable."""
        for each in [*self.shared.values()]:
            await each.end_lost()

    async def close(self) -> None:
        """Stop reading their tool lists, and close the connections to these servers."""
        guards = [server.stages.guard for server in self.by_id.values()]
        await asyncio.gather(*(guard.close() for guard in guards if guard is not None))
        await asyncio.gather(*(server.upstream.close() for server in self.by_id.values()))


def build_servers(found: Servers) -> Servers:
    """Build the servers of the settings."""
    base = found.base
    for entry in base.settings.servers:
        found.add(entry)
    base.by_server += found.maps
    base.tasks.append(CleanupTask("shared sessions", found.tidy, alone=False))
    return found


# --- transports -------------------------------------------------------------------------------------------------


Attach = Callable[[Server], None]
"""Has an upstream tell the server, once that is built, what becomes of it."""


def _http(made: Servers, entry: ServerSettings) -> HttpUpstream:
    """Raises SettingsError for a URL with credentials."""
    upstream, limits = entry.upstream, made.base.settings.core.upstream
    assert upstream.url is not None, "settings refuse an upstream over HTTP without a url"
    try:
        return HttpUpstream(
            upstream.url,
            insecure_tls=upstream.insecure_tls,
            max_connections=limits.max_connections,
            max_streams=limits.max_streams,
        )
    except ValueError as error:
        raise SettingsError([Problem(f"upstream.url of {entry.id}", str(error))]) from None


def _over_http(made: Servers, entry: ServerSettings) -> tuple[Upstream, Attach]:
    http = _http(made, entry)

    def attach(server: Server) -> None:
        server.connections, http.on_unreachable = http, server.unreachable

    return http, attach


def _over_sse(made: Servers, entry: ServerSettings) -> tuple[Upstream, Attach]:
    # Late: few servers speak the transport of 2024.
    from adapter.upstream.local.upstream import LocalUpstream
    from adapter.upstream.sse.session import SseServer
    from adapter.upstream.sse.stream import SseAddress

    core, http = made.base.settings.core, _http(made, entry)
    limits = core.upstream.max_answer_bytes, core.upstream_request_timeout_seconds
    address, log = SseAddress(http, entry.upstream.url or "", *limits), made.base.log.bind(server=entry.id)

    def attach(server: Server) -> None:
        http.on_unreachable = server.unreachable

    return LocalUpstream(SseServer(address, log, core.upstream.max_streams)), attach


def _over_stdio(made: Servers, entry: ServerSettings) -> tuple[Upstream, Attach]:
    # Late: most servers are reached over a network.
    from adapter.upstream.local.upstream import LocalUpstream
    from adapter.upstream.stdio.child import ChildProcess, ChildSpec
    from adapter.upstream.stdio.server import StdioServer

    log, supervisor = made.base.log.bind(server=entry.id), made.processes
    spec = ChildSpec.of(entry.upstream, made.base.settings.core.upstream.max_answer_bytes)
    stdio = StdioServer(
        entry.id, entry.upstream, lambda owner: ChildProcess.start(supervisor, spec, owner, log), log
    )

    def attach(server: Server) -> None:
        server.process_use, stdio.on_death = (lambda: stdio.use), server.doubt

    return LocalUpstream(stdio), attach


def _hosted(made: Servers, entry: ServerSettings) -> tuple[Upstream, Attach]:
    assert made.hosting is not None, "a hosted server asks for plans"
    return made.hosting.servers[entry.id], nothing


UPSTREAMS: Mapping[Transport, Callable[[Servers, ServerSettings], tuple[Upstream, Attach]]] = {
    "streamable_http": _over_http,
    "sse": _over_sse,
    "stdio": _over_stdio,
    "hosted": _hosted,
}
"""The makers of upstreams, by ``upstream.transport``."""


# --- settings ---------------------------------------------------------------------------------------------------


def _call_timeout(settings: Settings, entry: ServerSettings) -> ReadLimit | None:
    """The time for which calls of a server's tools may be silent; None where there is no limit."""
    seconds = settings.tool_defaults_for(entry).tool_call_timeout_seconds
    own = entry.tool_defaults.tool_call_timeout_seconds is not None
    place = "servers[].tool_defaults" if own else "core.defaults"
    return None if seconds is None else ReadLimit(seconds, f"{place}.tool_call_timeout_seconds")


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


def _shared(base: Base, server: Server) -> SharedSessions | None:
    """Put shared sessions before the upstream where any request may want one; nothing elsewhere.

    ``sessions.upstream`` and ``sessions.missing_id`` decide.
    """
    sessions = base.settings.sessions
    if sessions.upstream == "session" and sessions.missing_id == "refuse":
        return None
    shared = server.upstream = base.shared_sessions(server)
    if isinstance(server.bridge, Bridge):
        server.bridge.stand = shared.stand_on
    server.shares = sessions.upstream == "principal"
    return shared
