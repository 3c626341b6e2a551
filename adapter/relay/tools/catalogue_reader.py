"""The tools that an upstream offers now, as far as known: one call reads for all, until they may have changed."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from itertools import chain
from typing import Any

from adapter.errors import BadJson, SessionUnknown, UpstreamBroken, UpstreamSilent
from adapter.relay.background import BackgroundTasks
from adapter.relay.stages import Call, Fetch
from adapter.relay.tools.definitions import Definitions
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
            raise UpstreamBroken("The pages of the upstream server's tool list form a loop.")
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


_WORD = b"list_changed"
# Some servers escape every slash.
_CHANGED = re.compile(rb"tools\\?/list_changed")
_SEAM = len(rb"tools\/list_changed") - 1

PATIENCE = 120.0
"""Seconds that a server has for all pages of its list."""

_ALL = ""

UNREADABLE = "The upstream server did not list its tools, so the adapter cannot check the call; try again."


class CatalogueReader:
    """Watches one server. ``fresh_for``: seconds after which its tools may have changed without a word. With 0 each
    call reads them anew, though calls at once share one read.

    ``now`` is a clock that never goes back. ``on_change`` are called when what was seen counts no longer.
    ``definitions`` is where those that are read are kept. All pages of a list have ``patience`` seconds.
    """

    def __init__(
        self,
        lists: ToolLists,
        *,
        fresh_for: float,
        now: Callable[[], float],
        background: BackgroundTasks,
        definitions: Definitions | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._lists = lists
        self._patience = patience
        self._fresh_for = fresh_for
        self._now = now
        self._background = background
        self.on_change: list[Callable[[], None]] = []
        self._definitions = definitions
        self._stale_at = float("-inf")
        self._shared: CatalogueSnapshot | None = None
        self._seen_by = ""
        self._readings: dict[str, asyncio.Future[CatalogueSnapshot | None]] = {}
        # A list may be answered by another process than the one that was asked for it.
        self._process = secrets.token_hex(4)
        self.epoch = 0
        self.varies = False
        """Whether scopes are offered different tools, so that a list of one says nothing of another's."""

    def __repr__(self) -> str:
        return f"<CatalogueReader: epoch {self.epoch}, {self._shared}>"

    # --- what may have changed --------------------------------------------------------------------------------

    @property
    def fresh(self) -> bool:
        return self._now() < self._stale_at

    @property
    def mark(self) -> str:
        """Names this moment: while it is the same, nothing is known to have changed."""
        return f"{self._process}.{self.epoch}"

    def changed(self) -> None:
        """The upstream's tools may be others now."""
        self.epoch += 1
        # Those who wait for one that is under way find out that it came too late.
        self._readings.clear()
        self._forget()

    def outlive(self) -> None:
        """Forget what was read too long ago. A read that is under way is new enough."""
        if not self.fresh:
            self._forget()
            self._stale_at = self._now() + self._fresh_for

    def _forget(self) -> None:
        self._shared = None
        for observe in self.on_change:
            observe()

    def listener(self) -> Callable[[bytes], None]:
        """Looks along at a stream. The word may be cut in two, so an end in the middle of a line is looked at again
        with the beginning of the next chunk.
        """
        end = b""

        def observe(chunk: bytes) -> None:
            nonlocal end
            if _tells(chunk) or (end and _tells(end + chunk[:_SEAM])):
                self.changed()
            if chunk.endswith((b"\n", b"\r")):
                # As chunks do end, and the word holds no line end.
                end = b""
            else:
                end = chunk[-_SEAM:] if len(chunk) >= _SEAM else (end + chunk)[-_SEAM:]

        return observe

    # --- what was seen ----------------------------------------------------------------------------------------

    def note(self, scope_id: str, seen: CatalogueSnapshot) -> None:
        """A scope was sent this list just now. If it is another, what others saw is over where all see the same."""
        if self._shared is not None and not self._shared.is_same(seen):
            if self.varies:
                return
            self.changed()
        elif not self.fresh:
            self._forget()
        self._shared, self._seen_by = seen, scope_id
        self._stale_at = self._now() + self._fresh_for

    def note_page(self, page: CatalogueSnapshot) -> None:
        """A scope was sent this page of a list. If it is newer, nobody is to be judged by what was seen before."""
        if self._shared is not None and not self._shared.covers(page):
            self.changed()

    def was_seen_by(self, scope_id: str) -> bool:
        """Tell whether what ``seen`` returns came in this very scope's upstream session."""
        return self.varies or self._seen_by == scope_id

    async def seen(self, call: Call) -> CatalogueSnapshot:
        """Return what somebody saw in this epoch; if nobody has, one call reads it now for all.

        Raises UpstreamBroken if there is no list, and what the upstream raises.
        """
        if self.varies:
            return await self.own(call)
        if self._shared is not None:
            return self._shared
        reading, joined = self._read_once(_ALL, call)
        try:
            # Whoever leaves does not take it from the others.
            found = await asyncio.shield(reading)
        except SessionUnknown:
            if not joined:
                raise
            found = None
        if found is None and joined:
            # What one session cannot have, another may.
            return await self.own(call)
        return _required(found)

    async def own(self, call: Call) -> CatalogueSnapshot:
        """Read what this call's scope is offered, in its own upstream session. Raises as ``seen`` does."""
        reading, _ = self._read_once(call.scope.id, call)
        return _required(await asyncio.shield(reading))

    def _read_once(self, whose: str, call: Call) -> tuple[asyncio.Future[CatalogueSnapshot | None], bool]:
        """The read that is under way for these, and whether somebody else began it."""
        reading = self._readings.get(whose)
        if reading is not None:
            return reading, True
        reading = self._readings[whose] = asyncio.get_running_loop().create_future()
        self._background.run(self._read_for(whose, call.without_request(), reading))
        return reading, False

    async def _read_for(
        self, whose: str, call: Call, reading: asyncio.Future[CatalogueSnapshot | None]
    ) -> None:
        epoch = self.epoch
        try:
            found = await self._read(call)
            if found is not None and whose == _ALL and epoch == self.epoch:
                self._shared, self._seen_by = found, call.scope.id
                self._stale_at = self._now() + self._fresh_for
            reading.set_result(found)
        except asyncio.CancelledError:
            _tell(reading, UpstreamBroken("The adapter is shutting down."))
            raise
        except Exception as error:
            # Whatever it is, all who wait are told.
            _tell(reading, error)
        finally:
            if self._readings.get(whose) is reading:
                del self._readings[whose]

    async def _read(self, call: Call) -> CatalogueSnapshot | None:
        """All pages of the list, in the upstream session of this call; None where that gives no list."""
        if call.fetch is None:
            return None
        try:
            async with asyncio.timeout(self._patience):
                pages = await all_pages(self._lists, call.fetch, modern=call.modern)
        except BadJson as error:
            raise UpstreamBroken("The upstream server's list of tools is not valid JSON.") from error
        except TimeoutError:
            raise UpstreamSilent(
                f"The upstream server did not list its tools within {self._patience:g} s; try again."
            ) from None
        if pages is None:
            return None
        found = await sighting_of(self._lists, pages)
        if self._definitions is not None:
            self._definitions.keep(found.catalogue.digest, tools_on(pages))
        return found


def _tells(text: bytes) -> bool:
    return _WORD in text and _CHANGED.search(text) is not None


def _required(found: CatalogueSnapshot | None) -> CatalogueSnapshot:
    if found is None:
        raise UpstreamBroken(UNREADABLE)
    return found


def _tell(reading: asyncio.Future[CatalogueSnapshot | None], error: Exception) -> None:
    reading.set_exception(error)
    # They may all have left, and then nobody would ask for it.
    reading.exception()
