"""Whether an upstream lists the tools that were configured for it: one that is misspelled never meets its stage."""

from __future__ import annotations

import asyncio
from typing import Any

from adapter.errors import UpstreamSilent
from adapter.relay.visit import Visit
from adapter.rules.lists import has_no_such_method, next_cursor
from adapter.wire.envelope import parse

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
        if has_no_such_method(told.response):
            break
        names = _names(told.response)
        if names is None:
            return None
        missing -= names
        cursor = next_cursor(told.response)
        if not missing or cursor is None:
            break
        params = {"cursor": cursor}
    return frozenset(missing)


def _names(response: bytes) -> set[str] | None:
    """The names on one page of a list; None where the response is none, such as a refusal."""
    message = parse(response)
    result = message.get("result") if isinstance(message, dict) else None
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        return None
    names = (tool.get("name") for tool in tools if isinstance(tool, dict))
    return {name for name in names if isinstance(name, str)}
