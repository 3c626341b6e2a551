"""Reading the tools that an upstream offers now, once for all who need them, and their definitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from adapter.errors import AdapterError, BadJson, SessionUnknown, UpstreamBroken, UpstreamSilent
from adapter.relay.background import SingleFlight, in_turns
from adapter.relay.stages import CALL, Call, Fetch
from adapter.relay.tools.catalogue_cache import CatalogueCache
from adapter.relay.tools.tool_lists import Listed, ToolLists
from adapter.rules.last_used import LastUsed, Weight
from adapter.rules.tools.catalogue import CatalogueSnapshot, catalogue_piecewise
from adapter.rules.tools.definitions import Tool
from adapter.rules.tools.drift import Drift
from adapter.rules.tools.tool_pages import NoTools, with_warning
from adapter.wire.envelope import parse

if TYPE_CHECKING:
    from adapter.pipeline.call import PlannedCall

PAGES = 1000
"""Pages of one list that are read; a longer list counts as one without an end."""

LONGEST_LIST = 64 << 20
"""Bytes of one list, on all its pages, that are read."""

PATIENCE = 120.0
"""Seconds that a server has for all pages of its list."""

_ALL = ""


async def all_tools(lists: ToolLists, fetch: Fetch) -> list[Tool] | None:
    """The upstream's tools on all pages: none of a server that has no tools, None where no whole list can be had.

    Raises what ``fetch`` raises, BadJson and UpstreamBroken.
    """
    pages = await all_pages(lists, fetch)
    return None if pages is None else tools_on(pages)


async def all_pages(lists: ToolLists, fetch: Fetch) -> list[Listed] | None:
    """As ``all_tools``, page by page."""
    pages: list[Listed] = []
    params: dict[str, Any] = {}
    visited: set[tuple[str, Listed]] = set()
    count = size = 0
    while len(pages) < PAGES and count <= lists.limits.tools and size <= LONGEST_LIST:
        response = await fetch("tools/list", params)
        if response is None:
            return None
        page = await lists.read(response, first=not pages)
        if isinstance(page, NoTools):
            return pages if page.absent and not pages else None
        pages.append(page)
        count, size = count + len(page.tools), size + len(response)
        if page.cursor is None:
            return pages
        if (page.cursor, page) in visited:
            raise UpstreamBroken("The pages of the upstream server's tool list form a loop.")
        visited.add((page.cursor, page))
        params = {"cursor": page.cursor}
    raise UpstreamBroken(
        "The upstream server's list of tools does not end within "
        f"{PAGES} pages, {LONGEST_LIST} bytes and {lists.limits.tools} tools."
    )


def tools_on(pages: list[Listed]) -> list[Tool]:
    return list(chain.from_iterable(page.tools for page in pages))


async def snapshot_of(lists: ToolLists, pages: list[Listed]) -> CatalogueSnapshot:
    """The tools that these pages show and hide together."""
    snapshots = [await lists.snapshot(page) for page in pages]
    if len(snapshots) == 1:
        return snapshots[0]
    tools = tools_on(pages)
    catalogue = await in_turns(catalogue_piecewise(tools))
    hidden = frozenset[str]().union(*(snapshot.hidden for snapshot in snapshots))
    digests = frozenset(snapshot.catalogue.digest for snapshot in snapshots)
    return CatalogueSnapshot(catalogue, hidden, digests, tools)


# --- definitions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offered:
    """``definitions`` are those of the catalogue ``digest``, by name; the scope may use the ``allowed`` of them.

    ``warns`` is their drift since the scope first saw them, where the scope is to be warned of it.
    """

    digest: str
    definitions: Mapping[str, bytes]
    allowed: Set[str]
    warns: Drift | None = None

    def definition(self, name: str) -> bytes | None:
        """A tool's definition as the client of this scope may see it, None if it may not."""
        definition = self.definitions.get(name)
        if definition is None or name not in self.allowed:
            return None
        if self.warns is None or not self.warns_of(name):
            return definition
        return with_warning(definition, name, self.warns)

    def warns_of(self, name: str) -> bool:
        return self.warns is not None and name in self.warns.unsettled


# --- reading --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, slots=True)
class CatalogueReader:
    """Reads the list of one server. All pages of a list have ``patience`` seconds."""

    lists: ToolLists
    cache: CatalogueCache
    patience: float = PATIENCE
    # By scope and epoch: a read that began before the tools changed serves nobody who asks later.
    _reading: SingleFlight[tuple[str, int], CatalogueSnapshot | None] = field(
        default_factory=SingleFlight[tuple[str, int], CatalogueSnapshot | None], init=False
    )

    async def snapshot(self, call: Call) -> CatalogueSnapshot:
        """The list that somebody was sent in this epoch; if nobody was, one call reads it now for all.

        Raises UpstreamBroken if there is no list, and what the upstream raises.
        """
        cache = self.cache
        if cache.varies:
            return await self.own_snapshot(call)
        if cache.snapshot is not None:
            return cache.snapshot
        epoch, reads_itself = cache.epoch, False

        async def read_for_all() -> CatalogueSnapshot | None:
            nonlocal reads_itself
            reads_itself = True
            snapshot = await self._read(call.without_request())
            if snapshot is not None and epoch == cache.epoch:
                cache.keep_snapshot(call.scope.id, snapshot)
            return snapshot

        try:
            snapshot = await self._reading.get((_ALL, epoch), read_for_all)
        except SessionUnknown:
            if reads_itself:
                raise
            snapshot = None
        if snapshot is None and not reads_itself:
            # A list that one session is refused another may get.
            return await self.own_snapshot(call)
        return _required(snapshot)

    async def own_snapshot(self, call: Call) -> CatalogueSnapshot:
        """Read what this call's scope is offered, in its own upstream session. Raises as ``snapshot`` does."""
        key = call.scope.id, self.cache.epoch
        return _required(await self._reading.get(key, lambda: self._read(call.without_request())))

    async def close(self) -> None:
        """Stop what is still being read."""
        await self._reading.close()

    async def _read(self, call: Call) -> CatalogueSnapshot | None:
        """All pages of the list, in the upstream session of this call; None where that gives no list."""
        if call.fetch is None:
            return None
        try:
            async with asyncio.timeout(self.patience):
                pages = await all_pages(self.lists, call.fetch)
        except BadJson as error:
            raise UpstreamBroken("The upstream server's list of tools is not valid JSON.") from error
        except TimeoutError:
            raise UpstreamSilent(
                f"The upstream server did not list its tools within {self.patience:g} s; try again."
            ) from None
        return None if pages is None else await snapshot_of(self.lists, pages)


def _required(snapshot: CatalogueSnapshot | None) -> CatalogueSnapshot:
    if snapshot is None:
        raise UpstreamBroken(
            "The upstream server did not list its tools, so the adapter cannot check the call; try again."
        )
    return snapshot


# --- definitions of planned calls -----------------------------------------------------------------------------

KEPT = 1024
"""Definitions that are kept parsed."""

KEPT_BYTES = 4 << 20
"""Bytes that these may have as JSON; parsed they take up to ten times as much memory."""


class _Parsed(NamedTuple):
    raw: bytes
    definition: Mapping[str, Any]


def _weigh(parsed: _Parsed) -> Weight:
    return Weight(parsed.raw, len(parsed.raw))


class ToolDefinitions:
    """The definitions of one server's tools as the scope of a call may see them; ``offered`` is the guard's."""

    def __init__(self, offered: Callable[[Call], Awaitable[Offered]]) -> None:
        self._offered = offered
        self._parsed: LastUsed[bytes, _Parsed] = LastUsed(KEPT, KEPT_BYTES, _weigh)

    def __repr__(self) -> str:
        return f"<ToolDefinitions: {len(self._parsed)}>"

    async def schema(self, planned: PlannedCall) -> Mapping[str, Any] | None:
        """The input schema of the call's tool, None if nothing is known of it. Raises what the upstream raises."""
        definition = await self._of(planned)
        schema = definition.get("inputSchema") if definition is not None else None
        return schema if isinstance(schema, dict) else None

    async def read_only(self, planned: PlannedCall) -> bool:
        """Tell whether the tool says that it changes nothing."""
        try:
            definition = await self._of(planned)
        except AdapterError:
            return False
        hints = definition.get("annotations") if definition is not None else None
        return isinstance(hints, dict) and hints.get("readOnlyHint") is True

    async def listed(self, planned: PlannedCall) -> bool:
        """Tell whether there is a tool of exactly the call's name. Raises what the upstream raises."""
        return await self._of(planned) is not None

    async def _of(self, planned: PlannedCall) -> Mapping[str, Any] | None:
        call = planned.notes[CALL]
        assert isinstance(call, Call), "the relay's own"
        offered = await self._offered(call)
        raw = offered.definitions.get(planned.tool) if planned.tool in offered.allowed else None
        if raw is None:
            return None
        parsed = self._parsed.get(raw)
        if parsed is None:
            parsed = _Parsed(raw, parse(raw))
            self._parsed.put(raw, parsed)
        return parsed.definition
