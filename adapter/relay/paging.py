"""A list of tools to its last page, as clients see it."""

from __future__ import annotations

from typing import Any

from adapter.relay.listing import ToolLists
from adapter.relay.stages import Fetch
from adapter.rules.lists import has_no_such_method
from adapter.rules.tools import Tool

PAGES = 1000
"""Pages of one list that are read; a longer one is taken for one without an end."""


async def all_tools(lists: ToolLists, fetch: Fetch, *, modern: bool) -> list[Tool] | None:
    """The upstream's tools on all pages: none of a server that has no tools, None where no whole list can be had.

    Raises what ``fetch`` raises, and BadJson.
    """
    tools: list[Tool] = []
    params: dict[str, Any] = {}
    for number in range(PAGES):
        response = await fetch("tools/list", params)
        if response is None:
            return None
        if number == 0 and has_no_such_method(response):
            return tools
        page = lists.page(response, b"null", first=number == 0, modern=modern)
        if page.tools is None:
            return None
        tools += page.tools
        if page.cursor is None:
            return tools
        params = {"cursor": page.cursor}
    return None
