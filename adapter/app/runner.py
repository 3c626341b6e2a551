"""Start and stop, in an order in which nothing is missed."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import signal
import sys
from collections.abc import AsyncIterator

import uvloop
from structlog.typing import FilteringBoundLogger

from adapter import log
from adapter.app.builder import App, build
from adapter.app.listener import allow_descriptors, listen
from adapter.errors import StorageFailed, StorageFull, StoreUnavailable
from adapter.hosted.connectors.port import ConnectorFailed
from adapter.settings.consistency import cautions
from adapter.settings.core import is_loopback
from adapter.settings.root import Settings

_PR_SET_DUMPABLE = 4
"""linux/prctl.h."""


def hide_from_programs(settings: Settings, logger: FilteringBoundLogger) -> None:
    """Make ``/proc/PID/environ`` and ``/proc/PID/mem`` of this process unreadable for others of its user.

    Programs (``runtime: subprocess``) run as that user, and both hold every secret. There are no core dumps and no
    debugger of the same user from then on, so this is for configurations with such programs only. It keeps nothing
    from root. Where the system has no such switch, a warning says so.
    """
    tools = (tool for server in settings.servers for tool in server.tools.define)
    if not any(tool.runtime == "subprocess" for tool in tools):
        return
    if sys.platform != "linux" or ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        logger.warning("programs of tools may read the adapter's memory and environment on this system")


THRESHOLDS = (700, 10, 100)
"""Of the three generations; the last is ten times as large as it is by default."""


def settle() -> None:
    """Leave what there is now out of every further collection, and look through all that lives less often.

    Each connection adds some hundred objects, and a look through those of three thousand streams holds the loop for
    0.2 s. Reference counts free what exchanges leave behind; the collector is for cycles alone.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


STORE_INTERVAL = 5.0
"""Seconds between two looks at the state store, beside those of who asks for health."""


FAREWELL = 2.0
"""Seconds that servers get at a stop to close the adapter's own sessions with them. What is left of those of callers
over HTTP is closed after the next start.
"""


@contextlib.asynccontextmanager
async def running(app: App) -> AsyncIterator[tuple[str, int]]:
    """Listen and serve; yields the address. On leaving, exchanges may finish for ``core.shutdown_grace_seconds``.

    Raises StoreUnavailable, StorageFailed, StorageFull, ConnectorFailed, and OSError when the address cannot be bound.
    """
    core = app.settings.core
    async with awake(app):
        listener = await listen(app)
        try:
            yield listener.address
        finally:
            listener.close()
            await app.front.drain(core.shutdown_grace_seconds)
            await listener.drop()


@contextlib.asynccontextmanager
async def awake(app: App) -> AsyncIterator[None]:
    """All that serving takes but a listener, for whoever has requests of its own for ``app.front``.

    Raises StoreUnavailable, StorageFailed, StorageFull, ConnectorFailed.
    """
    async with _recorded(app), app.hosting.opened(), _working(app):
        yield


@contextlib.asynccontextmanager
async def _recorded(app: App) -> AsyncIterator[None]:
    """While the block runs the log is shipped, where that is wanted; then everything that was recorded leaves."""
    telemetry = app.telemetry
    if telemetry is None:
        yield
        return
    log.ship_to(telemetry.lines)
    try:
        yield
    finally:
        log.ship_to(None)
        if not await telemetry.close():
            app.log.warning("not all that was recorded could be exported", setting="telemetry.endpoint")


@contextlib.asynccontextmanager
async def _working(app: App) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    await app.store.open()
    await app.filing.open()
    await app.sessions.load()
    tasks = [loop.create_task(watch.run()) for watch in app.monitors.values()]
    tasks += [loop.create_task(looker.run()) for looker in app.wiring_watches]
    if app.settings.core.cleanup_interval_seconds is not None:
        tasks.append(loop.create_task(app.janitor.run()))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _let_go(app)


async def _let_go(app: App) -> None:
    own = [watch.close() for watch in app.monitors.values()] + [
        looker.close() for looker in app.wiring_watches
    ]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL):
            await asyncio.gather(*own)
    with contextlib.suppress(StoreUnavailable):
        await app.sessions.write_last_seen()
    await app.exploring.close(FAREWELL)
    await app.background.close()
    app.validation.close()
    for server in app.servers.values():
        await server.upstream.close()
    with contextlib.suppress(StoreUnavailable):
        await app.filing.close()
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
    _warn(settings, app.log)
    allow_descriptors(settings, app.log)
    hide_from_programs(settings, app.log)
    try:
        async with running(app) as (host, port):
            settle()
            app.log.info(
                "serving",
                url=f"http://{f'[{host}]' if ':' in host else host}:{port}",
                mounts=[server.mount for server in app.servers.values()],
            )
            # What serves for good is looked through no more: each full collection would hold the loop 40 ms for it.
            gc.collect()
            gc.freeze()
            guard = loop.create_task(_watch_store(app, stop))
            try:
                return int(await stop)
            finally:
                guard.cancel()
    except StoreUnavailable as error:
        app.log.error("the state store cannot be used", why=str(error), setting="state_persistence")
        return 1
    except (StorageFailed, StorageFull) as error:
        app.log.error("the store of files cannot be used", why=str(error), setting="storage.root")
        return 1
    except ConnectorFailed as error:
        app.log.error("a database cannot be used", why=str(error), setting="connectors")
        return 1
    except OSError as error:
        why = "the port is taken" if error.errno == 98 else (error.strerror or str(error))
        app.log.error(
            "cannot listen", host=settings.core.host, port=settings.core.port, why=why, setting="core.port"
        )
        return 1


async def _watch_store(app: App, stop: asyncio.Future[int]) -> None:
    """Tell the log when the store cannot be written, and when it can again. With ``unavailable_policy: exit``, end the
    process then, so that it is started anew.
    """
    failed = False
    while True:
        await asyncio.sleep(STORE_INTERVAL)
        failure = await app.store.failure()
        if failure is not None and app.settings.state_persistence.unavailable_policy == "exit":
            app.log.error("the state store failed; leaving", why=str(failure))
            return _resolve(stop, 1)
        if failure is not None and not failed:
            app.log.error("the state store cannot be written", why=str(failure), setting="state_persistence")
        elif failure is None and failed:
            app.log.warning("the state store can be written again")
        failed = failure is not None


def _resolve(stop: asyncio.Future[int], status: int) -> None:
    if not stop.done():
        stop.set_result(status)


def _warn(settings: Settings, logger: FilteringBoundLogger) -> None:
    for caution in cautions(settings):
        logger.warning("is this meant?", setting=caution.path, why=caution.sentence)
    core = settings.core
    if is_loopback(core.host) or core.auth.enabled or core.public_base_url or core.allowed_hosts is not None:
        return
    logger.warning(
        "open to the network without a token: set core.auth, or core.allowed_hosts and core.public_base_url",
        host=core.host,
    )
