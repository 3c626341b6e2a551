"""The composition root: each object is built once, bottom up, and stopped in the opposite order."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import uvloop
from structlog.typing import FilteringBoundLogger

from adapter import log
from adapter.edge.bases import Bases
from adapter.edge.endpoint import Endpoint
from adapter.edge.front import Front
from adapter.edge.guard import Cors, Guard
from adapter.edge.health import Health
from adapter.edge.ingress import Ingress
from adapter.edge.listener import Listener
from adapter.errors import StoreUnavailable
from adapter.relay.errands import Errands
from adapter.relay.janitor import Janitor
from adapter.relay.mapping import Mapping as SessionMapping
from adapter.relay.notices import Notices
from adapter.relay.opening import Opening
from adapter.relay.parking import Parking
from adapter.relay.probe import PingSettings, Watch
from adapter.relay.relay import Relay
from adapter.relay.server import Server, Silence
from adapter.relay.sessions import Session, SessionLimits, Sessions
from adapter.relay.stages import Plan
from adapter.rules.breaker import Breaker
from adapter.rules.principals import Principals
from adapter.rules.scopes import Scope, principal_scope, session_scope
from adapter.settings.auth import Auth, NamedToken
from adapter.settings.core import Cors as CorsSettings
from adapter.settings.root import Settings
from adapter.settings.servers import Server as ServerSettings
from adapter.state.memory import MemoryStore
from adapter.state.port import Store
from adapter.state.sqlite import SqliteStore
from adapter.upstream.http import HttpUpstream

PARKED_TTL = 3600.0
"""Seconds for which an answer may still come on another stream."""


@dataclass(slots=True)
class App:
    """The adapter, built but not yet listening."""

    settings: Settings
    store: Store
    servers: Mapping[str, Server]
    watches: Mapping[str, Watch]
    sessions: Sessions
    janitor: Janitor
    errands: Errands
    front: Front
    calls: log.CallLog | None
    log: FilteringBoundLogger


def build(settings: Settings, plans: Mapping[str, Plan] | None = None, store: Store | None = None) -> App:
    """Build the adapter. ``plans`` are the stages of each server by its id; a server without any is piped.

    ``store`` takes the place of the one that ``state_persistence`` describes.
    """
    logger = log.get_logger("adapter")
    clock = time.time
    plans = plans or {}
    store = store or _store(settings)
    servers = {entry.id: _server(settings, entry, plans.get(entry.id, Plan())) for entry in settings.servers}
    sessions = Sessions(store, _limits(settings), clock)
    mapping = SessionMapping(
        sessions,
        renewals=settings.sessions.upstream_session_termination_retries,
        clock=clock,
        log=logger,
    )
    parking = Parking(
        store, {name: server.plan for name, server in servers.items()}, ttl=PARKED_TTL, clock=clock
    )
    errands = Errands()
    secret = secrets.token_bytes(32)

    def scope_of(session: Session | None, principal: str) -> Scope:
        return session_scope(secret, session.key) if session else principal_scope(secret, principal)

    relay = Relay(sessions, mapping, Opening(sessions, mapping, clock), parking, errands, scope_of, Notices())
    guard = _guard(settings)
    watches = {
        entry.id: Watch(servers[entry.id], _ping(settings, entry), clock, logger)
        for entry in settings.servers
        if settings.ping_for(entry).enabled
    }
    health = Health(
        servers=list(servers.values()),
        watches=watches,
        sessions=sessions,
        guard=guard,
        persistence=settings.state_persistence.type,
        clock=clock,
        begun=clock(),
        max_start_wait=settings.core.max_start_wait_seconds,
        store=store,
        readiness=settings.core.readiness,
    )
    calls = log.CallLog(sys.stderr.buffer) if settings.core.access_log else None
    endpoint = Endpoint(
        relay,
        guard,
        Ingress(settings.core.max_request_bytes),
        logger,
        Bases(settings.core.public_base_url, guard, settings.core.trusted_proxies),
        legacy_statuses=settings.core.errors.legacy_status == "http",
    )
    front = Front(
        endpoint,
        mounts={server.mount: server for server in servers.values()},
        routes={"/healthz": health.show, "/livez": health.live, "/readyz": health.ready},
        guard=guard,
        log=logger,
        calls=calls,
    )
    interval = settings.core.cleanup_interval_seconds or float("inf")
    janitor = Janitor(sessions, mapping, parking, servers, interval, logger)
    return App(settings, store, servers, watches, sessions, janitor, errands, front, calls, logger)


# --- the parts ------------------------------------------------------------------------------------------------


def _store(settings: Settings) -> Store:
    if settings.state_persistence.type == "memory":
        return MemoryStore()
    return SqliteStore(settings.state_path, wal=settings.state_persistence.disk.wal.enabled)


def _server(settings: Settings, entry: ServerSettings, plan: Plan) -> Server:
    upstream, ping = entry.upstream, settings.ping_for(entry)
    assert upstream.url is not None, "settings refuse a streamable_http upstream without a url"
    breaker = Breaker(
        failure_threshold=ping.failure_threshold,
        open_cooldown=ping.open_cooldown_seconds,
        half_open_probes=ping.half_open_probe_allowance,
    )
    return Server(
        id=entry.id,
        mount=entry.mount_path,
        upstream=HttpUpstream(
            upstream.url,
            insecure_tls=upstream.insecure_tls,
            connect_timeout=settings.core.upstream.connect_timeout_seconds,
            max_connections=settings.core.upstream.max_connections,
        ),
        breaker=breaker if ping.enabled else None,
        silence=Silence(
            tool_call=settings.tool_defaults_for(entry).tool_call_timeout_seconds,
            request=settings.core.upstream_request_timeout_seconds,
        ),
        passthrough=frozenset(
            name.lower() for name in (*upstream.client_headers.passthrough, *upstream.client_headers.required)
        ),
        required=tuple(upstream.client_headers.required),
        static=tuple(upstream.static_headers.items()),
        plan=plan,
    )


def _limits(settings: Settings) -> SessionLimits:
    said = settings.sessions
    return SessionLimits(
        max_active=said.max_active,
        max_in_flight=said.max_in_flight_per_session,
        idle_ttl=said.idle_ttl_seconds,
        allow_revival=said.allow_revival,
        tombstone_ttl=said.tombstone_ttl_seconds,
    )


def _ping(settings: Settings, entry: ServerSettings) -> PingSettings:
    ping = settings.ping_for(entry)
    return PingSettings(interval=ping.interval_seconds, timeout=ping.timeout_seconds)


def _guard(settings: Settings) -> Guard:
    core = settings.core
    return Guard(
        bound_to_loopback=_is_loopback(core.host),
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


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- running --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def running(app: App) -> AsyncIterator[tuple[str, int]]:
    """Listen and serve; yields the address. On leaving, exchanges may finish for ``core.shutdown_grace_seconds``.

    Raises StoreUnavailable, and OSError when the address cannot be bound.
    """
    core = app.settings.core
    loop = asyncio.get_running_loop()
    await app.store.open()
    await app.sessions.load()
    listener = await Listener.open(app.front, core.host, core.port)
    tasks = [loop.create_task(watch.run()) for watch in app.watches.values()]
    if app.settings.core.cleanup_interval_seconds is not None:
        tasks.append(loop.create_task(app.janitor.run()))
    try:
        yield listener.address
    finally:
        listener.close()
        await app.front.drain(core.shutdown_grace_seconds)
        await listener.drop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _let_go(app)


async def _let_go(app: App) -> None:
    await asyncio.gather(*(watch.close() for watch in app.watches.values()))
    with contextlib.suppress(StoreUnavailable):
        await app.sessions.write_last_seen()
    await app.errands.close()
    for server in app.servers.values():
        await server.upstream.close()
    await app.store.close()
    if app.calls is not None:
        app.calls.close()


def serve(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM. The process's exit status: 0, or 1 when it could not start or go on."""
    log.configure(settings.core.log_level)
    return uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _resolve, stop, 0)
    app = build(settings)
    _warn_if_open(settings, app.log)
    try:
        async with running(app) as (host, port):
            app.log.info(
                "serving",
                url=f"http://{f'[{host}]' if ':' in host else host}:{port}",
                mounts=[server.mount for server in app.servers.values()],
            )
            guard = loop.create_task(_leave_with_store(app, stop))
            try:
                return int(await stop)
            finally:
                guard.cancel()
    except StoreUnavailable as error:
        app.log.error("the state store cannot be used", why=str(error), setting="state_persistence")
        return 1
    except OSError as error:
        why = "the port is taken" if error.errno == 98 else (error.strerror or str(error))
        app.log.error(
            "cannot listen", host=settings.core.host, port=settings.core.port, why=why, setting="core.port"
        )
        return 1


async def _leave_with_store(app: App, stop: asyncio.Future[int]) -> None:
    """With ``unavailable_policy: exit``, end the process when the store fails, so that it is started anew."""
    if app.settings.state_persistence.unavailable_policy != "exit":
        return None
    while True:
        await asyncio.sleep(5)
        try:
            await app.store.count("sessions")
        except StoreUnavailable as error:
            app.log.error("the state store failed; leaving", why=str(error))
            return _resolve(stop, 1)


def _resolve(stop: asyncio.Future[int], status: int) -> None:
    if not stop.done():
        stop.set_result(status)


def _warn_if_open(settings: Settings, logger: FilteringBoundLogger) -> None:
    core = settings.core
    if _is_loopback(core.host) or core.auth.enabled or core.public_base_url or core.allowed_hosts is not None:
        return
    logger.warning(
        "open to the network without a token: set core.auth, or core.allowed_hosts and core.public_base_url",
        host=core.host,
    )
