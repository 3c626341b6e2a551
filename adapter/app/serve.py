"""The process that serves: its signals, its limits, where it listens, and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

import uvloop
from structlog.typing import FilteringBoundLogger

from adapter import log
from adapter.app.build import App, build
from adapter.app.edge import mounts
from adapter.app.preflight import obstacles, warnings
from adapter.app.reload import SettingsDigests, SettingsReload
from adapter.app.run import open_port, running
from adapter.app.state import refresh
from adapter.edge.http.limits import RESERVE
from adapter.edge.http.listener import Grace, Listener
from adapter.errors import StorageFailed, StorageFull, StoreUnavailable
from adapter.relay.background import nothing
from adapter.settings.core import Core
from adapter.settings.file.changed import LOOK_SECONDS, FileWatch
from adapter.settings.file.reading import SettingsSource
from adapter.settings.root import Settings
from adapter.settings.section import Problem, SettingsError
from adapter.settings.servers.server import ServerSettings, UpstreamSettings
from adapter.startup.failure import Obstacle, StartFailed
from adapter.startup.systemd import ServiceNotifier
from adapter.state.lock_file import WAIT_SECONDS, StateLock, StateTaken

STOPPING = (signal.SIGINT, signal.SIGTERM)
"""The signals that ask for a stop."""

_OLD = "serving with the old settings: the log says why the new ones are not in force"


class ProcessOwner(Protocol):
    """Decides where a process that serves listens, and when it stops."""

    def attend(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None], grace: Grace) -> None:
        """Call ``stop`` when the process is to stop, and cut the ``grace`` when it is to do so at once."""

    async def listen(self, app: App) -> Listener:
        """Open the port. Raises OSError when that is impossible."""

    def serving(self) -> None:
        """Learn that the process serves."""

    async def follow(self, reload: SettingsReload) -> None:
        """Put changed settings into force while the process serves."""

    def stopping(self) -> None:
        """Learn that the process ends, while requests may still finish."""


class OwnSignals:
    """The owner of a process that stands for itself: SIGINT and SIGTERM stop it, and it has the port alone.

    ``service`` is told when the process serves and stops, and that it lives. ``source`` has the settings read again,
    when they changed or SIGHUP asks for it; None where they come from nowhere.
    """

    def __init__(self, service: ServiceNotifier | None = None, source: SettingsSource | None = None) -> None:
        self._service = service or ServiceNotifier(None)
        self._source = source
        self._asked = asyncio.Event()
        self._terminal = _has_terminal()
        self._stop: Callable[[], None] = nothing

    def attend(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None], grace: Grace) -> None:
        """Stop at the first signal, cut what is under way at the second, and let the third end the process.

        SIGHUP has the settings read again, unless it says that the terminal has gone: then it ends the process too.
        """
        self._stop = stop
        signals = iter((stop, partial(_cut, loop, grace)))
        for number in STOPPING:
            loop.add_signal_handler(number, lambda: next(signals)())
        if self._source is not None and self._source.heeds:
            loop.add_signal_handler(signal.SIGHUP, self._hung_up)

    async def listen(self, app: App) -> Listener:
        """Open the port of the settings."""
        return await open_port(app)

    def serving(self) -> None:
        """Tell the service manager, now and as often as it asks for a sign of life."""
        self._service.ready("serving")
        self._give_sign(asyncio.get_running_loop())

    def stopping(self) -> None:
        """Tell the service manager."""
        self._service.stopping()

    def _give_sign(self, loop: asyncio.AbstractEventLoop) -> None:
        following = self._service.alive(loop.time())
        if following is not None:
            loop.call_at(following, self._give_sign, loop)

    def _hung_up(self) -> None:
        if self._terminal and not _has_terminal():
            self._stop()
        else:
            self._asked.set()

    async def follow(self, reload: SettingsReload) -> None:
        """Read the settings again when SIGHUP asks for it, and when their file changed. Stop where they get a new
        process.
        """
        if self._source is None:
            return
        while True:
            await self._changed(self._source.watch if reload.watches or self._source.restarts else None)
            self._asked.clear()
            self._service.reloading("reading the settings again")
            reload.reopen()
            in_force = await self._read(self._source, reload)
            if self._source.restarts and reload.needs_restart:
                self._source.outdated = True
                self._stop()
                return
            self._service.ready("serving" if in_force else _OLD)

    async def _changed(self, watch: FileWatch | None) -> None:
        while not self._asked.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if watch is None else LOOK_SECONDS):
                    await self._asked.wait()
            if watch is not None and watch.look():
                return

    async def _read(self, source: SettingsSource, reload: SettingsReload) -> bool:
        try:
            return await reload.apply((await source.read()).settings)
        except (SettingsError, ChildProcessError, OSError) as refused:
            reload.refuse(str(refused))
            return False


def _has_terminal() -> bool:
    """Tell whether this process has a terminal that may send signals to it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _cut(loop: asyncio.AbstractEventLoop, grace: Grace) -> None:
    grace.cut()
    for number in STOPPING:
        loop.remove_signal_handler(number)


DESCRIPTORS_OF_A_PROCESS = 3
"""Pipes to one process of a server over stdio: its standard input, output and error."""

DESCRIPTORS_BESIDE = 256
"""Files that are open beside the connections of clients and upstreams: the store, files on their way, logs."""

_PR_SET_DUMPABLE = 4
"""linux/prctl.h."""


def allow_descriptors(settings: Settings, logger: FilteringBoundLogger) -> None:
    """Let the process open as many files as its connections may need, where the system allows that."""
    core = settings.core
    needed = core.max_connections + RESERVE + DESCRIPTORS_BESIDE
    wanted = needed + sum(_descriptors_toward(server.upstream, core) for server in settings.servers)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        except (ValueError, OSError):
            # Some systems name a limit that they then do not give.
            hard = soft
    if hard != resource.RLIM_INFINITY and hard < needed:
        logger.warning(
            "the system allows fewer open files than clients may connect",
            open_files=hard,
            needed=needed,
            setting="core.max_connections",
        )


def _descriptors_toward(upstream: UpstreamSettings, core: Core) -> int:
    if upstream.kind.needs == "command":
        return DESCRIPTORS_OF_A_PROCESS * upstream.max_processes
    return core.upstream.max_connections + core.upstream.max_streams


def hide_from_programs(settings: Settings, logger: FilteringBoundLogger) -> None:
    """Make ``/proc/PID/environ`` and ``/proc/PID/mem`` of this process unreadable for others of its user.

    Programs of tools (``runtime: subprocess``) and of servers (``transport: stdio``) run as that user, and both hold
    every secret. There are no core dumps and no debugger of the same user from then on, so this is for configurations
    with such programs only. It keeps nothing from root. Where the system has no such switch, a warning says so.
    """
    if not starts_programs(settings):
        return
    # Late: only programs ask for it.
    import ctypes

    if sys.platform != "linux" or ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        logger.warning("programs may read the adapter's memory and environment on this system")


def starts_programs(settings: Settings) -> bool:
    """Tell whether programs of the same user run beside the adapter."""
    return any(map(_starts_programs, settings.servers))


def _starts_programs(server: ServerSettings) -> bool:
    return server.upstream.kind.needs == "command" or any(
        tool.runtime == "subprocess" for tool in server.tools.define
    )


THRESHOLDS = (700, 10, 100)
"""Of the three generations; the last is ten times as large as it is by default."""


def settle() -> None:
    """Enable garbage collection, without the present objects and less often for the oldest generation.

    Each connection adds some hundred objects, and one collection with three thousand open streams stops the loop for
    0.2 s; the objects that serve for good would add 40 ms to each. Reference counts free what exchanges leave behind;
    the collector is needed for cycles only.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()


STORE_INTERVAL = 5.0
"""Seconds between two looks at the state store, beside those of who asks for health."""


def serve(
    settings: Settings,
    cautions: Iterable[Problem] | None,
    beside: Callable[[App], Awaitable[None]] | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM, of which a second one ends the time that running requests get.

    ``cautions`` are warnings about the settings, for the log; ``beside`` is done once the adapter serves. Returns the
    exit status: 0, or 1 if the adapter could not start or go on. Raises SettingsError, and what ``beside`` raises.
    """
    try:
        return serve_alone(settings, cautions, beside=beside)
    except StartFailed:
        return 1


def serve_alone(
    settings: Settings,
    cautions: Iterable[Problem] | None,
    service: ServiceNotifier | None = None,
    beside: Callable[[App], Awaitable[None]] | None = None,
    source: SettingsSource | None = None,
) -> int:
    """Do the same, for a ``service`` manager that is told when the adapter serves and stops. ``source`` has changed
    settings read.

    Raises StartFailed for an adapter that could not start, and SettingsError.
    """
    log.configure(settings.core.log_level)
    look_for_obstacles(settings)
    refresh_state(settings)
    try:
        with locked_state(settings):
            return uvloop.run(_serve(settings, cautions, OwnSignals(service, source), beside))
    except StateTaken as taken:
        raise failed_for(Obstacle(taken.event, str(taken), taken.setting)) from None


def serve_under(settings: Settings, cautions: Iterable[Problem] | None, owner: ProcessOwner) -> int:
    """Serve until the ``owner`` says so, who has looked for obstacles. ``cautions``: None where it has reported them.

    Returns the exit status: 0, or 1 if the adapter could not go on. Raises StartFailed, and SettingsError.
    """
    log.configure(settings.core.log_level)
    return uvloop.run(_serve(settings, cautions, owner))


@contextlib.contextmanager
def locked_state(settings: Settings, wait: float = WAIT_SECONDS) -> Iterator[None]:
    """Keep other adapters from the state file while the block runs. Waits for one that ends. Raises StateTaken."""
    path = settings.state_file
    lock = None if path is None else StateLock(path, wait)
    try:
        yield
    finally:
        if lock is not None:
            lock.close()


def look_for_obstacles(settings: Settings) -> None:
    """Report what may be in the way of a start later. Raises StartFailed for what is in its way now."""
    found = list(obstacles(settings))
    if found:
        raise failed_for(*found)
    logger = log.get_logger("adapter")
    for warning in warnings(settings):
        logger.warning(warning.event, why=warning.why, setting=warning.setting)


def refresh_state(settings: Settings) -> None:
    """Delete stored state where the settings ask for it. To be called once, before any process uses the state.

    Raises StartFailed.
    """
    if not settings.state_persistence.refresh_on_startup:
        return
    try:
        with locked_state(settings):
            uvloop.run(refresh(settings))
    except StateTaken as taken:
        raise failed_for(Obstacle(taken.event, str(taken), taken.setting)) from None
    except StoreUnavailable as error:
        event = "the stored state cannot be deleted"
        raise failed_for(Obstacle(event, str(error), "state_persistence")) from None


def failed_for(*found: Obstacle) -> StartFailed:
    """Report why the start fails. Returns the error to raise."""
    for obstacle in found:
        _report(obstacle, log.get_logger("adapter"))
    return StartFailed(found)


def _report(obstacle: Obstacle, logger: FilteringBoundLogger) -> None:
    if sys.stderr.isatty():
        print(f"mcp-adapter: {obstacle.event}: {obstacle.why} ({obstacle.setting})", file=sys.stderr)
    else:
        logger.error(obstacle.event, why=obstacle.why, setting=obstacle.setting)


async def _serve(
    settings: Settings,
    cautions: Iterable[Problem] | None,
    owner: ProcessOwner,
    beside: Callable[[App], Awaitable[None]] | None = None,
) -> int:
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()
    grace = Grace(settings.core.shutdown_grace_seconds)
    owner.attend(loop, partial(_resolve, stop, 0), grace)
    # First of all: a file that changes while it is loaded has changed.
    said = await SettingsDigests.of(settings)
    app = build(settings)
    if cautions is not None:
        for caution in cautions:
            app.log.warning("is this meant?", setting=caution.path, why=caution.sentence)
    allow_descriptors(settings, app.log)
    hide_from_programs(settings, app.log)
    served = False
    try:
        async with running(app, grace, owner.listen) as (host, port):
            settle()
            app.log.info(
                "serving",
                url=f"http://{f'[{host}]' if ':' in host else host}:{port}",
                mounts=[*mounts(app)],
            )
            served = True
            owner.serving()
            tasks = [loop.create_task(_watch_store(app, stop)), loop.create_task(_follow(app, owner, said))]
            if beside is not None:
                tasks.append(loop.create_task(_done_beside(beside(app), stop)))
            try:
                return int(await stop)
            finally:
                for task in tasks:
                    task.cancel()
                owner.stopping()
    except (StoreUnavailable, StorageFailed, StorageFull, _connector_failed(), OSError) as error:
        obstacle = _obstacle_of(error)
        address = (
            {"host": settings.core.host, "port": settings.core.port} if isinstance(error, OSError) else {}
        )
        app.log.error(obstacle.event, **address, why=obstacle.why, setting=obstacle.setting)
        if served:
            return 1
        raise StartFailed([obstacle]) from None


def _obstacle_of(error: Exception) -> Obstacle:
    """The sentence for an error that serving has ended with."""
    match error:
        case StoreUnavailable():
            return Obstacle("the state store cannot be used", str(error), "state_persistence")
        case StorageFailed() | StorageFull():
            return Obstacle("the store of files cannot be used", str(error), "storage.root")
        case OSError():
            why = "the port is taken" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
            return Obstacle("cannot listen", why, "core.port")
        case _:
            return Obstacle("a database cannot be used", str(error), "connectors")


def _connector_failed() -> type[Exception]:
    """Return ConnectorFailed. Only a start that failed asks for it; connectors import what runs statements."""
    from adapter.hosted.connectors.port import ConnectorFailed

    return ConnectorFailed


async def _watch_store(app: App, stop: asyncio.Future[int]) -> None:
    """Log when the store cannot be written, and when it can be written again. With ``unavailable_policy: exit``, end
    the process at the first failure, so that it is started again.
    """
    failed = False
    while True:
        await asyncio.sleep(STORE_INTERVAL)
        failure = await app.store.failure()
        if app.metering is not None and (failure is not None) != failed:
            app.metering.note_store("unavailable" if failure is not None else "recovered")
        if failure is not None and app.settings.state_persistence.unavailable_policy == "exit":
            app.log.error("the state store failed; leaving", why=str(failure))
            return _resolve(stop, 1)
        if failure is not None and not failed:
            app.log.error("the state store cannot be written", why=str(failure), setting="state_persistence")
        elif failure is None and failed:
            app.log.warning("the state store can be written again")
        failed = failure is not None


async def _follow(app: App, owner: ProcessOwner, said: SettingsDigests | None) -> None:
    """Put changed settings into force. An unexpected error ends no more than that."""
    reload = SettingsReload(app)
    app.on_change += [
        lambda: allow_descriptors(app.settings, app.log),
        lambda: hide_from_programs(app.settings, app.log),
    ]
    while True:
        try:
            await reload.begin(said)
            said = None
            return await owner.follow(reload)
        except Exception:
            app.log.exception("the changed settings could not be read")
            await asyncio.sleep(LOOK_SECONDS)


async def _done_beside(work: Awaitable[None], stop: asyncio.Future[int]) -> None:
    """Do the work; a failure ends the process."""
    try:
        await work
    except Exception as error:
        if not stop.done():
            stop.set_exception(error)


def _resolve(stop: asyncio.Future[int], status: int) -> None:
    if not stop.done():
        stop.set_result(status)
