"""A list of tools to its last page, as clients see it."""

from __future__ import annotations

from itertools import chain
from typing import Any

from adapter.relay.listing import Listed, ToolLists
from adapter.relay.stages import Fetch
from adapter.rules.catalogue import catalogue_of
from adapter.rules.lists import has_no_such_method
from adapter.rules.tools import Tool
from adapter.rules.verdicts import Sighting

PAGES = 1000
"""Pages of one list that are read; a longer one is taken for one without an end."""

TOOLS = 100_000
"""Tools of one list that are read; more are not held in memory either."""


async def all_tools(lists: ToolLists, fetch: Fetch, *, modern: bool) -> list[Tool] | None:
    """The upstream's tools on all pages: none of a server that has no tools, None where no whole list can be had.

    Raises what ``fetch`` raises, and BadJson.
    """
    pages = await all_pages(lists, fetch, modern=modern)
    return None if pages is None else tools_on(pages)


async def all_pages(lists: ToolLists, fetch: Fetch, *, modern: bool) -> list[Listed] | None:
    """The same page by page."""
    pages: list[Listed] = []
    params: dict[str, Any] = {}
    count = 0
    while len(pages) < PAGES and count <= TOOLS:
        response = await fetch("tools/list", params)
        if response is None:
            return None
        if not pages and has_no_such_method(response):
            return pages
        listed = lists.page(response, b"null", first=not pages, modern=modern).listed
        if listed is None:
            return None
        pages.append(listed)
        count += len(listed.tools)
        if listed.cursor is None:
            return pages
        params = {"cursor": listed.cursor}
    return None


def tools_on(pages: list[Listed]) -> list[Tool]:
    return list(chain.from_iterable(page.tools for page in pages))


def sighting_of(pages: list[Listed]) -> Sighting:
    """What these pages show and hide together."""
    if len(pages) == 1:
        return pages[0].sighting
    hidden = frozenset[str]().union(*(page.hidden for page in pages))
    digests = frozenset(page.sighting.catalogue.digest for page in pages)
    return Sighting(catalogue_of(tools_on(pages)), hidden, digests)
