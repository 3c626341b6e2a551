"""The port: who may connect to it, and the open files that this takes."""

from __future__ import annotations

import resource
import time

from structlog.typing import FilteringBoundLogger

from adapter.app import parts
from adapter.app.builder import App
from adapter.edge.http.connection_limit import RESERVE, ConnectionLimit
from adapter.edge.http.listener import Listener
from adapter.settings.root import Settings

DESCRIPTORS_BESIDE = 256
"""Files that are open beside the connections of clients and upstreams: the store, files on their way, logs."""

WARN_EVERY = 60.0
"""Seconds between two warnings of the same thing."""


async def listen(app: App) -> Listener:
    """Open the port. Raises OSError when the address cannot be bound."""
    core = app.settings.core
    full = RareWarning(app.log, "as many clients are connected as allowed", setting="core.max_connections")
    places = ConnectionLimit(
        app.front, limit=core.max_connections, reserved=app.front.serve_reserved, on_full=full
    )
    return await Listener.open(places, core.host, core.port, parts.patience(app.settings), app.bodies)


class RareWarning:
    """A warning that is called for over and over, and written once in WARN_EVERY seconds."""

    def __init__(self, logger: FilteringBoundLogger, event: str, **fields: object) -> None:
        self._logger = logger
        self._event = event
        self._fields = fields
        self._next = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + WARN_EVERY
            self._logger.warning(self._event, **self._fields)


def allow_descriptors(settings: Settings, logger: FilteringBoundLogger) -> None:
    """Let the process open as many files as its connections may need, where the system allows that."""
    core = settings.core
    needed = core.max_connections + RESERVE + DESCRIPTORS_BESIDE
    upstream = core.upstream.max_connections + core.upstream.max_streams
    wanted = needed + upstream * len(settings.servers)
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
