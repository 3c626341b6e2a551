"""The tools that are configured for a server, compared with its list: a misspelled name would never meet its stage.

A server that is pinged is looked at by its health monitor, every other one by a ``WiringWatch``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, UpstreamSilent
from adapter.relay.background import in_turns
from adapter.rules.tools.lists import names_on

PAGES = 1000
"""Pages of one list that are looked through."""

FIRST_PAUSE = 1.0
"""Seconds between the first two looks at a server that is not there, or lacks a tool. They double each time."""

LONGEST_PAUSE = 60.0
"""Seconds between two looks later on."""


class WiringAnswer(Protocol):
    """An answer of the server: a JSON-RPC response, None if there was none."""

    @property
    def response(self) -> bytes | None: ...


class WiringSession(Protocol):
    """A session of the adapter's own at the server; see OwnSession."""

    @property
    def is_open(self) -> bool: ...

    async def open(self, patience: float) -> int: ...

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> WiringAnswer: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Wiring:
    """The ``configured`` tools of one server, which it has to list because they have stages of their own.

    ``missing`` are those that it did not list at the last look, None while that is not known. ``refused``: it shows
    the adapter no list. ``stale`` is set while the server has to be looked at again.
    """

    configured: frozenset[str] = frozenset()
    missing: frozenset[str] | None = field(init=False)
    refused: bool = False
    on_look: Callable[[str], None] | None = field(default=None, init=False)
    """Is told of the result of each look; None where nobody counts."""
    stale: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.missing = None if self.configured else frozenset()
        self.changed()

    @property
    def settled(self) -> bool:
        """Tell whether all tools were there at the last look, and the server has not begun anew since."""
        return self.missing == frozenset() and not self.stale.is_set()

    @property
    def is_ready(self) -> bool:
        """Tell whether the configured tools are there. A server that shows its list to clients only counts as well, for
        nothing can be wrong as far as anybody knows; one whose list has not been read yet does not.
        """
        return not self.missing and (self.missing is not None or self.refused)

    def changed(self) -> None:
        """Look again: the server began anew, so it may be another version."""
        if self.configured:
            self.stale.set()

    async def look(self, session: WiringSession, within: float) -> bool:
        """Look for the tools on all pages of the list, in ``within`` seconds. Return whether other tools are missing
        than before.

        ``session`` is open, unless the server refuses the adapter. Raises UpstreamSilent, what the upstream raises, and
        BadJson; then ``missing`` stays as it was.
        """
        self.stale.clear()
        before = self.missing
        try:
            async with asyncio.timeout(within):
                self.missing = await _missing(session, self.configured) if session.is_open else None
        except BaseException as error:
            self.stale.set()
            if self.on_look is not None:
                self.on_look("failed")
            if isinstance(error, TimeoutError):
                sentence = f"The upstream server did not list its tools within {within:g} s."
                raise UpstreamSilent(sentence) from None
            raise
        self.refused = self.missing is None
        if self.on_look is not None:
            self.on_look("refused" if self.refused else "missing" if self.missing else "ready")
        return self.missing != before and bool(self.missing or before)

    def log_missing(self, server: str, log: FilteringBoundLogger) -> None:
        """Write down that other configured tools are missing than before."""
        log.warning("configured tools missing", server=server, tools=sorted(self.missing or ()))


async def _missing(session: WiringSession, configured: frozenset[str]) -> frozenset[str] | None:
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

    Each look opens ``session``, which may take ``opening`` seconds, reads the list ``within`` seconds, and closes it.
    """

    def __init__(
        self,
        server: str,
        wiring: Wiring,
        session: WiringSession,
        opening: float,
        within: float,
        log: FilteringBoundLogger,
    ) -> None:
        self._server = server
        self._wiring = wiring
        self._session = session
        self._opening = opening
        self._within = within
        self._log = log

    def __repr__(self) -> str:
        return f"<WiringWatch of {self._server!r}: {self._wiring}>"

    async def run(self) -> None:
        """Look until cancelled; a look that failed, or found a tool missing, is repeated."""
        pause = FIRST_PAUSE
        while True:
            await self._look()
            if self._wiring.settled:
                await self._wiring.stale.wait()
                pause = FIRST_PAUSE
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _look(self) -> None:
        try:
            await self._session.open(self._opening)
            if await self._wiring.look(self._session, self._within):
                self._wiring.log_missing(self._server, self._log)
        except AdapterError as error:
            self._log.info("tools could not be looked for", server=self._server, why=str(error))
        except Exception:
            # A defect here must not end the watch, or the wiring would never be looked at again.
            self._log.exception("tools could not be looked for", server=self._server)
        await self._session.close()

    async def close(self) -> None:
        """End the session of a look that was cut off."""
        await self._session.close()
