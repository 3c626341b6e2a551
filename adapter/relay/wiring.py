"""Whether an upstream lists the tools that were configured for it: one that is misspelled never meets its stage."""

from __future__ import annotations

import asyncio
from typing import Any

from adapter.errors import UpstreamSilent
from adapter.relay.turns import in_turns
from adapter.relay.visit import Visit
from adapter.rules.lists import names_on

PAGES = 1000
"""Pages of one list that are looked through."""


async def missing_tools(visit: Visit, configured: frozenset[str], within: float) -> frozenset[str] | None:
    """The configured tools that the upstream lists on none of its pages; None where it shows no list.

    ``visit`` is open. All pages have ``within`` seconds. Raises UpstreamSilent after them, what the upstream raises,
    and BadJson.
    """
    try:
        async with asyncio.timeout(within):
            return await _missing(visit, configured)
    except TimeoutError:
        raise UpstreamSilent(f"The upstream server did not list its tools within {within:g} s.") from None


async def _missing(visit: Visit, configured: frozenset[str]) -> frozenset[str] | None:
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
