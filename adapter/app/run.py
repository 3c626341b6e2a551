"""Start and stop of the adapter, in an order in which nothing is missed: on a port, or inside a host's application."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adapter import log
from adapter.app.base import SharedChecks
from adapter.app.build import App, build
from adapter.app.state import refresh, warn_of_unowned
from adapter.edge.http.limits import ConnectionLimit, Handler, RareWarning
from adapter.edge.http.listener import Grace, Listener
from adapter.edge.router import Front
from adapter.errors import StoreUnavailable
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError

if TYPE_CHECKING:
    # Only a host's application needs aiohttp.
    from adapter.edge.api.embedding import HandleCall, Options, RouteDef, Tools

    # Only processes that share a port have any.
    from adapter.edge.http.shared_sockets import SharedSockets

FAREWELL = 2.0
"""Seconds that servers get at a stop to close the adapter's own sessions with them. What is left of those of callers
over HTTP is closed after the next start.
"""


async def open_port(app: App) -> Listener:
    """Open the port of the settings. Raises OSError when the address cannot be bound."""
    core = app.settings.core
    return await Listener.open(_places(app, app.front), core.host, core.port, app.patience, app.bodies)


def join_port(app: App, door: SharedSockets) -> Listener:
    """Accept connections from a port that other processes accept from too."""
    return Listener.share(_places(app, app.front), door, app.patience, app.bodies)


def _places(app: App, front: Front) -> ConnectionLimit:
    core = app.settings.core
    handler: Handler = front
    reserved: Handler = front.serve_reserved
    if app.metering is not None:
        handler, reserved = app.metering.requests.around(handler), app.metering.requests.around(reserved)
    full = RareWarning(app.log, "as many clients are connected as allowed", setting="core.max_connections")
    places = ConnectionLimit(handler, limit=core.max_connections, reserved=reserved, on_full=full)
    if app.metering is not None:
        app.metering.watch(places)
    return places


@contextlib.asynccontextmanager
async def running(
    app: App, grace: Grace | None = None, listen: Callable[[App], Awaitable[Listener]] = open_port
) -> AsyncIterator[tuple[str, int]]:
    """``listen`` and serve; yields the address. On leaving, exchanges may finish within the ``grace``; None: within
    ``core.shutdown_grace_seconds``.

    Raises StoreUnavailable, StorageFailed, StorageFull, ConnectorFailed, and OSError when the address cannot be bound.
    """
    async with awake(app):
        listener = await listen(app)
        opened, metrics = [(app.front, listener)], None
        try:
            metrics = await _open_metrics(app)
            await _join(app, opened)
            yield listener.address
        finally:
            if metrics is not None:
                metrics.close()
                await metrics.drop()
            grace = grace or Grace(app.settings.core.shutdown_grace_seconds)
            grace.begin()
            app.files.stop_waiting()
            if app.replicas is not None:
                await app.replicas.leave()
            for _, each in opened:
                each.close()
            await asyncio.gather(*(_finish(each, front, grace) for front, each in opened))


async def _open_metrics(app: App) -> Listener | None:
    """Open the port of metrics, if they have one of their own. Raises OSError."""
    if app.metering is None:
        return None
    return await app.metering.open_port(app.patience, app.bodies)


async def _finish(listener: Listener, front: Front, grace: Grace) -> None:
    """Let what is under way on a port that is closed finish within the ``grace``."""
    await front.drain(grace, listener.close_idle)
    await listener.drop()


async def _join(app: App, opened: list[tuple[Front, Listener]]) -> None:
    """Be found by other replicas: at a port of its own, whose listener joins those that are ``opened``, or at the first
    of these, which is the public one. Raises OSError, StoreUnavailable.
    """
    if app.replicas is None:
        return
    if app.replicas.place is not None:
        front = app.front.only(app.replicas.branch)
        places, (host, port) = _places(app, front), app.replicas.place
        opened.append((front, await Listener.open(places, host, port, app.patience, app.bodies)))
    await app.replicas.join(opened[-1][1].address)


@contextlib.asynccontextmanager
async def awake(app: App) -> AsyncIterator[None]:
    """Hold everything that serving takes but a listener, for a caller that has requests of its own for ``app.front``.

    Raises StoreUnavailable, StorageFailed, StorageFull, ConnectorFailed.
    """
    plans = app.plans
    hosting = contextlib.nullcontext() if plans is None else plans.opened()
    async with _recorded(app), hosting, _working(app):
        yield


@contextlib.asynccontextmanager
async def _recorded(app: App) -> AsyncIterator[None]:
    """Ship the log while the block runs, where that is wanted; then export everything that was recorded."""
    telemetry = app.telemetry
    if telemetry is None:
        yield
        return
    log.ship_to(telemetry.lines)
    try:
        yield
    finally:
        log.ship_to(None)
        if app.metering is not None:
            await app.metering.gauges.read()
        if not await telemetry.close():
            app.log.warning("not all that was recorded could be exported", setting="telemetry.endpoint")


@contextlib.contextmanager
def _audited(app: App) -> Iterator[None]:
    """Have SIGHUP open the file of the audit log again while the block runs, where the signal would end the process."""
    loop = asyncio.get_running_loop()
    audit = app.audit if app.settings.core.audit.file is not None else None
    # Workers know the signal already, and an embedding application may.
    ours = audit is not None and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    if audit is not None and ours:
        with contextlib.suppress(RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGHUP, audit.reopen)
    try:
        yield
    finally:
        if ours:
            loop.remove_signal_handler(signal.SIGHUP)


@contextlib.asynccontextmanager
async def _working(app: App) -> AsyncIterator[None]:
    await app.store.open()
    if app.store.outage() is None:
        await warn_of_unowned(app.settings, app.store, app.log)
    await app.files.open()
    runs = [app.session_parts.last_seen.run()]
    if app.replicas is not None:
        runs.append(app.replicas.replicas.epoch.run())
    if app.metering is not None:
        runs.append(app.metering.gauges.run())
    if app.settings.core.cleanup_interval_seconds is not None:
        runs.append(app.cleanup.run())
    tasks = list(map(asyncio.get_running_loop().create_task, runs))
    app.server_parts.begin()
    try:
        with _audited(app):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _close(app)


async def _close(app: App) -> None:
    await asyncio.gather(*(mount.leave(FAREWELL) for mount in app.merged))
    await asyncio.gather(*app.retiring, return_exceptions=True)
    await app.server_parts.leave(FAREWELL)
    if app.replicas is not None:
        await app.replicas.close()
    with contextlib.suppress(StoreUnavailable):
        await app.session_parts.last_seen.write()
    await app.sessions.close()
    await app.console.close(FAREWELL)
    await app.background.close()
    if app.audit is not None:
        await app.audit.close()
    await app.checks.close()
    if app.grants is not None:
        await app.grants.close(FAREWELL)
    await app.server_parts.close()
    await app.server_parts.end_processes()
    with contextlib.suppress(StoreUnavailable):
        await app.files.close()
    await app.store.close()
    if app.calls is not None:
        app.calls.close()


# --- inside a host's application --------------------------------------------------------------------------------

Source = Settings | Path | str | Mapping[str, Any]
"""Settings, the path of their file, or what such a file would say."""


def embedded(source: Source) -> App:
    """The adapter, built; ``front`` answers requests as long as ``embedded_lifetime`` is entered. A mapping is read
    without the environment. Raises SettingsError.
    """
    settings = _settings(source)
    if settings.core.workers != 1:
        why = "is for mcp-adapter serve: here the processes are those of the host's own server"
        raise SettingsError([Problem("core.workers", why)])
    return build(settings)


def _settings(source: Source) -> Settings:
    if isinstance(source, Settings):
        return source
    # Late: a process of the adapter's own has its settings read by another one.
    from adapter.settings.file.load import load

    if isinstance(source, Mapping):
        return load(None, overrides=source, environ={})
    return load(Path(source))


@contextlib.asynccontextmanager
async def embedded_lifetime(app: App) -> AsyncIterator[None]:
    """Hold everything that serving in a host's application takes."""
    parts = app.replicas
    await refresh(app.settings)
    async with awake(app):
        if parts is not None:
            await parts.join(None)
        try:
            yield
        finally:
            if parts is not None:
                await parts.leave()
            app.files.stop_waiting()
            await app.front.drain(Grace(app.settings.core.shutdown_grace_seconds))


def explorer(
    tools: Tools, handle_call: HandleCall, options: Options
) -> tuple[list[RouteDef], Callable[[], Awaitable[None]]]:
    """The page and the API of a host's own tools; and what stops at once what otherwise stops when it is idle."""
    logger = log.get_logger("adapter.api")
    shared = SharedChecks(logger)
    from adapter.edge.api.embedding import routes

    return routes(tools, handle_call, logger, options, shared.checks), shared.close
