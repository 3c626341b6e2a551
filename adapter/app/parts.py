"""The parts that follow from the settings alone."""

from __future__ import annotations

import hashlib

from adapter.app.hosted import Hosting
from adapter.edge.http.access import Cors, Guard
from adapter.edge.http.bodies import BodyTerms
from adapter.edge.http.buffers import RequestBuffers
from adapter.edge.http.timeouts import Patience
from adapter.relay.server import Server, Timeouts
from adapter.relay.sessions.health_probe import PingSettings
from adapter.relay.sessions.session_map import SessionLimits
from adapter.relay.stages import Plan
from adapter.relay.tools.wiring import Wiring
from adapter.rules.access.headers import AnswerHeaders
from adapter.rules.access.principals import Principals
from adapter.rules.access.rate_limit import Floor
from adapter.rules.calls.circuit_breaker import Breaker
from adapter.settings.auth import Auth, NamedToken
from adapter.settings.core import CorsSettings, is_loopback
from adapter.settings.root import Settings
from adapter.settings.servers.server import ServerSettings, UpstreamSettings
from adapter.state.memory import MemoryStore
from adapter.state.port import Store
from adapter.state.sqlite import SqliteStore
from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import Upstream

START_COOLDOWN = 1.0
"""Seconds between two looks at an upstream that has not been there yet: it is probably just starting."""


def store(settings: Settings) -> Store:
    if settings.state_persistence.type == "memory":
        return MemoryStore()
    return SqliteStore(settings.state_path, wal=settings.state_persistence.disk.wal.enabled)


def server(settings: Settings, entry: ServerSettings, plan: Plan, hosting: Hosting) -> Server:
    """One entry of ``servers``: what is behind its transport is the upstream's affair alone."""
    upstream, ping = entry.upstream, settings.ping_for(entry)
    breaker = Breaker(
        failure_threshold=ping.failure_threshold,
        open_cooldown=ping.open_cooldown_seconds,
        half_open_probes=ping.half_open_probe_allowance,
        start_cooldown=START_COOLDOWN,
    )
    return Server(
        id=entry.id,
        mount=entry.mount_path,
        upstream=hosting.upstreams.get(entry.id) or _over_http(settings, upstream),
        breaker=breaker if ping.enabled else None,
        timeouts=Timeouts(
            tool_call=settings.tool_defaults_for(entry).tool_call_timeout_seconds,
            request=settings.core.upstream_request_timeout_seconds,
            tools=hosting.read_timeouts(entry) | _tool_silences(entry),
        ),
        passthrough=frozenset(
            name.lower() for name in (*upstream.client_headers.passthrough, *upstream.client_headers.required)
        ),
        required=tuple(upstream.client_headers.required),
        static=tuple(upstream.static_headers.items()),
        answer_headers=AnswerHeaders(
            drop=upstream.server_headers.drop, passthrough=upstream.server_headers.passthrough
        ),
        plan=plan,
        answer_limit=settings.core.upstream.max_answer_bytes,
        wiring=Wiring(
            frozenset(
                tool
                for adapter in entry.adapters
                for tool in adapter.tools
                if ("tools/call", tool) in plan.named
            )
        ),
    )


def _over_http(settings: Settings, said: UpstreamSettings) -> Upstream:
    assert said.url is not None, "settings refuse a streamable_http upstream without a url"
    return HttpUpstream(
        said.url,
        insecure_tls=said.insecure_tls,
        connect_timeout=settings.core.upstream.connect_timeout_seconds,
        max_connections=settings.core.upstream.max_connections,
        max_streams=settings.core.upstream.max_streams,
    )


def _tool_silences(entry: ServerSettings) -> dict[str, float | None]:
    """The tools whose adapter overrides how long a call may be silent."""
    return {
        tool: adapter.overrides.tool_call_timeout_seconds
        for adapter in entry.adapters
        for tool in adapter.tools
        if adapter.overrides.tool_call_timeout_seconds is not None
    }


def limits(settings: Settings) -> SessionLimits:
    said = settings.sessions
    return SessionLimits(
        max_active=said.max_active,
        max_in_flight=said.max_in_flight_per_session,
        idle_ttl=said.idle_ttl_seconds,
        allow_revival=said.allow_revival,
        tombstone_ttl=said.tombstone_ttl_seconds,
    )


def ping(settings: Settings, entry: ServerSettings) -> PingSettings:
    ping = settings.ping_for(entry)
    return PingSettings(interval=ping.interval_seconds, timeout=ping.timeout_seconds)


def bodies(settings: Settings) -> BodyTerms:
    """Build the limits of memory and time that hold for bodies of requests."""
    times = settings.core.client_timeouts
    floor = Floor(
        rate=times.min_body_bytes_per_second,
        window=times.min_body_window_seconds,
        grace=times.min_body_grace_seconds,
    )
    buffers = RequestBuffers(settings.core.max_buffered_bytes, largest=settings.core.max_request_bytes)
    return BodyTerms(buffers, floor, times.body_silence_seconds)


def patience(settings: Settings) -> Patience:
    """Build the times that clients are given on their connections."""
    times = settings.core.client_timeouts
    return Patience(idle=times.idle_seconds, head=times.head_seconds, stall=times.answer_stall_seconds)


def guard(settings: Settings) -> Guard:
    core = settings.core
    return Guard(
        bound_to_loopback=is_loopback(core.host),
        hosts=core.allowed_hosts,
        origins=core.allowed_origins,
        principals=_principals(core.auth) if core.auth.enabled else None,
        token_header=core.auth.header_name,
        cors=_cors(core.cors) if core.cors.enabled else None,
    )


def _cors(said: CorsSettings) -> Cors:
    return Cors(
        origins=tuple(said.allowed_origins),
        methods=tuple(said.allowed_methods),
        headers=tuple(said.allowed_headers),
        credentials=said.allow_credentials,
        max_age=int(said.max_age_seconds),
    )


def _principals(auth: Auth) -> Principals:
    tokens = [(entry.name, _digest_of(entry)) for entry in auth.tokens]
    if auth.token is not None:
        tokens.append(("default", _digest(auth.token.get_secret_value())))
    return Principals(tokens)


def _digest_of(entry: NamedToken) -> bytes:
    if entry.token is not None:
        return _digest(entry.token.get_secret_value())
    assert entry.sha256 is not None, "settings refuse an entry with neither"
    return bytes.fromhex(entry.sha256)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
