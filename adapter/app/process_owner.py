"""The owner of a process that serves: it decides where that listens and when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Protocol

from adapter.app.build import App
from adapter.app.reload import SettingsReload
from adapter.app.run import open_port
from adapter.edge.http.listener import Grace, Listener
from adapter.relay.background import nothing
from adapter.settings.file.changed import LOOK_SECONDS, FileWatch
from adapter.settings.file.source import SettingsSource
from adapter.settings.section import SettingsError
from adapter.startup.systemd import ServiceNotifier

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
