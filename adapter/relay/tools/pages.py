"""A list of tools to its last page, as clients see it."""

from __future__ import annotations

from itertools import chain
from typing import Any

from adapter.errors import UpstreamBroken
from adapter.relay.stages import Fetch
from adapter.relay.tools.tool_lists import Listed, ToolLists
from adapter.relay.turns import in_turns
from adapter.rules.tools.catalogue import catalogue_piecewise
from adapter.rules.tools.definitions import Tool
from adapter.rules.tools.verdicts import CatalogueSnapshot

PAGES = 1000
"""Pages of one list that are read; a longer one is taken for one without an end."""

LONGEST_LIST = 64 << 20
"""Bytes of one list, on all its pages, that are read."""


async def all_tools(lists: ToolLists, fetch: Fetch, *, modern: bool) -> list[Tool] | None:
    """The upstream's tools on all pages: none of a server that has no tools, None where no whole list can be had.

    Raises what ``fetch`` raises, BadJson and UpstreamBroken.
    """
    pages = await all_pages(lists, fetch, modern=modern)
    return None if pages is None else tools_on(pages)


async def all_pages(lists: ToolLists, fetch: Fetch, *, modern: bool) -> list[Listed] | None:
    """The same page by page."""
    pages: list[Listed] = []
    params: dict[str, Any] = {}
    asked: set[tuple[str, Listed]] = set()
    count = size = 0
    while len(pages) < PAGES and count <= lists.limits.tools and size <= LONGEST_LIST:
        response = await fetch("tools/list", params)
        if response is None:
            return None
        page = await lists.page(response, b"null", first=not pages, modern=modern)
        if page.absent and not pages:
            return pages
        if page.listed is None:
            return None
        pages.append(page.listed)
        count, size = count + len(page.listed.tools), size + len(response)
        cursor = page.listed.cursor
        if cursor is None:
            return pages
        if (cursor, page.listed) in asked:
            raise UpstreamBroken("The upstream server's list of tools leads in a circle.")
        asked.add((cursor, page.listed))
        params = {"cursor": cursor}
    raise UpstreamBroken(
        "The upstream server's list of tools does not end within "
        f"{PAGES} pages, {LONGEST_LIST} bytes and core.max_tools ({lists.limits.tools}) tools."
    )


def tools_on(pages: list[Listed]) -> list[Tool]:
    return list(chain.from_iterable(page.tools for page in pages))


async def sighting_of(lists: ToolLists, pages: list[Listed]) -> CatalogueSnapshot:
    """The tools that these pages show and hide together."""
    snapshots = [await lists.snapshot(page) for page in pages]
    if len(snapshots) == 1:
        return snapshots[0]
    catalogue = await in_turns(catalogue_piecewise(tools_on(pages)))
    hidden = frozenset[str]().union(*(snapshot.hidden for snapshot in snapshots))
    return CatalogueSnapshot(
        catalogue, hidden, frozenset(snapshot.catalogue.digest for snapshot in snapshots)
    )
