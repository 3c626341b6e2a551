"""The wiring of servers that are not pinged: their lists of tools are read all the same."""

from __future__ import annotations

import asyncio

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError
from adapter.relay.server import Server
from adapter.relay.sessions.health_probe import START_PAUSE, tell_missing
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.sessions.renewal import LATEST

LONGEST_PAUSE = 60.0
"""Seconds between two looks at a server that is not there, or still lacks a tool. The first pauses are shorter."""


class WiringWatch:
    """Looks for the configured tools of one server: at start, and again when the server begins anew.

    Each look has a session of its own, which is closed behind it. ``pause`` is the first one, in seconds.
    """

    def __init__(self, server: Server, log: FilteringBoundLogger, pause: float = START_PAUSE) -> None:
        self._server = server
        self._log = log
        self._first_pause = pause
        self._visit = OwnSession(server, server.timeouts.request)

    def __repr__(self) -> str:
        return f"<WiringWatch of {self._server.id!r}: {self._server.wiring}>"

    async def run(self) -> None:
        """Look until cancelled; a look that failed, or found a tool missing, is repeated."""
        wiring, pause = self._server.wiring, self._first_pause
        while True:
            await self._look()
            if wiring.settled:
                await wiring.stale.wait()
                pause = self._first_pause
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _look(self) -> None:
        server, within = self._server, self._server.timeouts.request
        try:
            await self._visit.open(within + LATEST)
            if await server.wiring.look(self._visit, within):
                tell_missing(server, self._log)
        except AdapterError as error:
            self._log.info("tools could not be looked for", server=server.id, why=str(error))
        except Exception:
            # A defect here must not end the watch: the wiring would stay as it is for good.
            self._log.exception("tools could not be looked for", server=server.id)
        await self._visit.close()

    async def close(self) -> None:
        """End the session of a look that was cut off."""
        await self._visit.close()
