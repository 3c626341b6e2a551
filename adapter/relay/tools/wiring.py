"""The tools that are configured for a server, compared with its list: one that is misspelled never meets its stage."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapter.errors import UpstreamSilent
from adapter.relay.background import in_turns
from adapter.rules.tools.lists import names_on

PAGES = 1000
"""Pages of one list that are looked through."""


class WiringAnswer(Protocol):
    """An answer of the server's: a JSON-RPC response, None where there was none."""

    @property
    def response(self) -> bytes | None: ...


class Inquirer(Protocol):
    """A session of the adapter's own at the server; see Visit."""

    @property
    def is_open(self) -> bool: ...

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> WiringAnswer: ...


@dataclass(slots=True)
class Wiring:
    """The ``configured`` tools of one server, which it has to list because they have stages of their own.

    ``missing`` are those that it did not list when it was last looked at, None while that is not known. ``refused``: it
    shows the adapter no list. ``stale`` is set while it has to be looked at again.
    """

    configured: frozenset[str] = frozenset()
    missing: frozenset[str] | None = field(init=False)
    refused: bool = False
    stale: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.missing = None if self.configured else frozenset()
        self.changed()

    @property
    def settled(self) -> bool:
        """True when all tools were there at the last look, and the server has not begun anew since."""
        return self.missing == frozenset() and not self.stale.is_set()

    def changed(self) -> None:
        """The server began anew, so it may be another version."""
        if self.configured:
            self.stale.set()

    async def look(self, visit: Inquirer, within: float) -> bool:
        """Look for the tools on all pages of the list, in ``within`` seconds. True if something else is missing than
        was before.

        ``visit`` is open, unless the server refuses the adapter. Raises UpstreamSilent, what the upstream raises, and
        BadJson; then what was known stays.
        """
        self.stale.clear()
        before = self.missing
        try:
            async with asyncio.timeout(within):
                self.missing = await _missing(visit, self.configured) if visit.is_open else None
        except BaseException as error:
            self.stale.set()
            if isinstance(error, TimeoutError):
                sentence = f"The upstream server did not list its tools within {within:g} s."
                raise UpstreamSilent(sentence) from None
            raise
        self.refused = self.missing is None
        return self.missing != before and bool(self.missing or before)


async def _missing(visit: Inquirer, configured: frozenset[str]) -> frozenset[str] | None:
    missing, params = set(configured), dict[str, Any]()
    for _ in range(PAGES):
        told = await visit.ask("tools/list", params)
        if told.response is None:
            return None
        page = await in_turns(names_on(told.response))
        if page is None:
            return None
        missing -= page.names
        if not missing or page.cursor is None:
            break
        params = {"cursor": page.cursor}
    return frozenset(missing)
