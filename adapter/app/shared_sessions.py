"""Servers whose sessions are shared, as ``sessions.upstream`` and ``sessions.missing_id`` have it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from adapter.relay.server import Server
from adapter.relay.sessions.shared_session import SharingLimits
from adapter.relay.sessions.shared_sessions import SharedSessions
from adapter.settings.root import Settings
from adapter.state.port import Store


class Sharing:
    """Puts shared sessions before the upstreams of ``servers``, where any request may want one.

    Elsewhere nothing stands before them, so that a call costs what it did.
    """

    def __init__(
        self, settings: Settings, servers: Iterable[Server], store: Store, clock: Callable[[], float]
    ) -> None:
        said = settings.sessions
        self._shared: list[SharedSessions] = []
        if said.upstream == "session" and said.missing_id == "refuse":
            return
        limits = SharingLimits(settings.core.upstream.max_answer_bytes, settings.core.upstream.max_streams)
        for server in servers:
            shared = SharedSessions(server, store, limits, idle_ttl=said.idle_ttl_seconds, clock=clock)
            server.upstream = shared
            server.shares = said.upstream == "principal"
            self._shared.append(shared)

    async def tidy(self) -> None:
        """Close sessions that nobody uses, at all servers at once. Raises StoreUnavailable."""
        await asyncio.gather(*(each.tidy() for each in self._shared))
