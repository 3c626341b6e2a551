"""The tools that are configured for a server, compared with its list: a misspelled name would never meet its stage.

A server that is pinged is looked at by its health monitor, every other one by a ``WiringWatch``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, UpstreamSilent
from adapter.relay.background import in_turns
from adapter.relay.server import Server
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.sessions.renewal import LATEST
from adapter.rules.tools.lists import names_on

PAGES = 1000
"""Pages of one list that are looked through."""

FIRST_PAUSE = 1.0
"""Seconds between the first two looks at a server that is not there, or lacks a tool. They double each time."""

LONGEST_PAUSE = 60.0
"""Seconds between two looks later on."""


async def look_at_tools(server: Server, session: OwnSession, log: FilteringBoundLogger) -> None:
    """Look for the configured tools on all pages of the list, and log it where other ones are missing than before.

    ``session`` is open, unless the server refuses the adapter. Raises UpstreamSilent, what the upstream raises, and
    BadJson; then ``missing`` stays as it was.
    """
    wiring, within = server.wiring, server.timeouts.request
    wiring.stale.clear()
    before = wiring.missing
    try:
        async with asyncio.timeout(within):
            wiring.missing = await _missing(session, wiring.configured) if session.is_open else None
    except BaseException as error:
        wiring.stale.set()
        if wiring.on_look is not None:
            wiring.on_look("failed")
        if isinstance(error, TimeoutError):
            sentence = f"The upstream server did not list its tools within {within:g} s."
            raise UpstreamSilent(sentence) from None
        raise
    wiring.refused = wiring.missing is None
    if wiring.on_look is not None:
        wiring.on_look("refused" if wiring.refused else "missing" if wiring.missing else "ready")
    if wiring.missing != before and (wiring.missing or before):
        log.warning("configured tools missing", server=server.id, tools=sorted(wiring.missing or ()))


async def _missing(session: OwnSession, configured: frozenset[str]) -> frozenset[str] | None:
    missing, params = set(configured), dict[str, Any]()
    for _ in range(PAGES):
        answer = await session.ask("tools/list", params)
        if answer.response is None:
            return None
        page = await in_turns(names_on(answer.response))
        if page is None:
            return None
        missing -= page.names
        if not missing or page.cursor is None:
            break
        params = {"cursor": page.cursor}
    return frozenset(missing)


class WiringWatch:
    """Looks for the configured tools of one server: at start, and again when the server begins anew.

    Each look has a session of its own, and may take as long as a client's request.
    """

    def __init__(self, server: Server, log: FilteringBoundLogger) -> None:
        self._server = server
        self._session = OwnSession(server, server.timeouts.request)
        self._log = log

    async def run(self) -> None:
        """Look until cancelled; a look that failed, or found a tool missing, is repeated."""
        pause, wiring = FIRST_PAUSE, self._server.wiring
        while True:
            await self._look()
            if wiring.settled:
                await wiring.stale.wait()
                pause = FIRST_PAUSE
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _look(self) -> None:
        try:
            await self._session.open(self._server.timeouts.request + LATEST)
            await look_at_tools(self._server, self._session, self._log)
        except AdapterError as error:
            self._log.info("tools could not be looked for", server=self._server.id, why=str(error))
        except Exception:
            # A defect here must not end the watch, or the wiring would never be looked at again.
            self._log.exception("tools could not be looked for", server=self._server.id)
        await self._session.close()

    async def close(self) -> None:
        """End the session of a look that was cut off."""
        await self._session.close()
