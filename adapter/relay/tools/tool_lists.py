"""Lists of tools as clients see them: shaped by policy, with the adapter's own tools, made once for equal bytes."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import UpstreamBroken
from adapter.relay.background import SingleFlight
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.replies import LARGE
from adapter.relay.turns import in_turns, own_turn
from adapter.rules.results.tool_results import rpc_result
from adapter.rules.text.unicode import has_no_reading, reading, shown
from adapter.rules.tools.catalogue import catalogue_piecewise
from adapter.rules.tools.definitions import Tool
from adapter.rules.tools.tool_pages import (
    BOUNDS,
    ListLimits,
    NoTools,
    PageRefused,
    PageRules,
    PolicyNote,
    ShapeTool,
    ToolPage,
    allowed_texts,
    read_page,
    warned_texts,
    write_page,
)
from adapter.rules.tools.verdicts import CatalogueSnapshot, Verdict
from adapter.wire.envelope import dump
from adapter.wire.piecewise import Piecewise

KEPT = 16
"""Pages of one server that are kept shaped. Bytes that come again, id apart, are not looked into again."""

KEPT_BYTES = 64 << 20
"""Bytes of them that are kept, though always one page."""

WAYS = 4
"""Ways in which one page is kept written: for each era, and for scopes that first saw other tools."""

UNREAD = 1000
"""Tools of one server that are known to be hidden for their size."""

TOLD = 10_000
"""Tools of one server of which it is remembered that the log was told."""

TOLD_AT_ONCE = 10
"""Tools of one page that the log is told of by name; of the others it learns how many they are."""

_ID = rb'"id"\s*+:\s*+(-?[0-9]{1,15}|"[^"\\]{0,100}")'
_BEGINNING = re.compile(rb'\s*+\{\s*+"jsonrpc"\s*+:\s*+"2\.0"\s*+,\s*+' + _ID)
_ENDING = re.compile(rb',\s*+"jsonrpc"\s*+:\s*+"2\.0"\s*+,\s*+' + _ID + rb"\s*+\}\s*+\Z")
"""Where responses have their id as a rule: most SDKs write it first, the one for TypeScript last. What is spelled
otherwise is shaped anew each time.
"""
_LONGEST_BEGINNING = 400
_LONGEST_ENDING = 200
_LONGEST_NAME = 128


class Around(NamedTuple):
    """A response before, at and behind its id; three times nothing where that stands in no usual place."""

    before: bytes
    request_id: bytes
    behind: bytes


@dataclass(eq=False, slots=True)
class Listed:
    """The upstream's tools on one page, behind the adapter's own. Equal bytes share one, so that a thousand scopes
    hold one catalogue.

    ``page`` is None where the upstream has none. ``written`` are the ways in which it leaves.
    """

    page: ToolPage | None
    around: Around
    first: bool
    tools: Sequence[Tool] = ()
    snapshot: CatalogueSnapshot | None = None
    written: OrderedDict[object, Around] = field(default_factory=OrderedDict)

    @property
    def cursor(self) -> str | None:
        """The cursor of the next page of the list."""
        return self.page.cursor if self.page is not None else None

    @property
    def size(self) -> int:
        """Bytes that the page takes, in all the ways in which it leaves."""
        return sum(len(way.before) + len(way.behind) for way in (self.around, *self.written.values()))

    def is_of(self, response: bytes, start: int, end: int) -> bool:
        """Tell whether ``response`` is this page, apart from an id from ``start`` to ``end``."""
        before, _, behind = self.around
        # Equal bytes are found by comparing them: a digest of a long list costs more than all the rest.
        return (
            len(before) == start
            and len(behind) == len(response) - end
            and response.startswith(before)
            and response.endswith(behind)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: the response for the client. ``listed`` is None where that is no list of tools.

    ``absent``: the upstream has no tools at all.
    """

    response: bytes
    listed: Listed | None
    request_id: bytes = b""
    absent: bool = False


class ToolLists:
    """The lists of one server. ``own`` are the adapter's tools, which stand first on the first page."""

    def __init__(
        self,
        server: str,
        shape: ShapeTool,
        own: Sequence[dict[str, Any]],
        mirrors: ParamHeaders,
        log: FilteringBoundLogger,
        limits: ListLimits = BOUNDS,
    ) -> None:
        self._server = server
        self._own = tuple(own)
        self.own_names = frozenset(tool["name"] for tool in own)
        self.limits = limits
        self._rules = PageRules(shape, tuple(map(dump, own)), self.own_names, self.limits)
        self._mirrors = mirrors
        self._log = log
        self._kept: list[Listed] = []
        self._told: set[str] = set()
        self.unread: OrderedDict[str, None] = OrderedDict()
        """The readings of tools into whose definitions nobody looked."""
        self._reading = SingleFlight[tuple[bytes, bytes, bool], Listed | NoTools]()
        self._writing = SingleFlight[tuple[Listed, object], Around]()
        self._seeing = SingleFlight[Listed, CatalogueSnapshot]()

    def __repr__(self) -> str:
        return f"<ToolLists of {self._server!r}: {len(self._kept)} pages kept>"

    # --- pages that are known ---------------------------------------------------------------------------------

    def known(self, response: bytes, *, first: bool, modern: bool) -> Page | None:
        """The upstream's response as a client of that era may see it, if one like it is kept."""
        span = _span_of_id(response)
        listed = self._find(response, *span, first=first) if span is not None else None
        written = listed.written.get(modern) if listed is not None else None
        if span is None or written is None:
            return None
        request_id = response[span[0] : span[1]]
        return Page(written.before + request_id + written.behind, listed, request_id)

    def recognizes(self, response: bytes) -> bytes | None:
        """The id (JSON) of a page like one that is kept, so that nobody has to read it again; None of any other."""
        span = _span_of_id(response)
        if span is None:
            return None
        known = any(listed.is_of(response, *span) for listed in self._kept)
        return response[slice(*span)] if known else None

    def _find(self, response: bytes, start: int, end: int, *, first: bool) -> Listed | None:
        for place, listed in enumerate(self._kept):
            if listed.first == first and listed.is_of(response, start, end):
                if place:
                    self._kept.insert(0, self._kept.pop(place))
                return listed
        return None

    # --- pages that came --------------------------------------------------------------------------------------

    async def page(self, response: bytes, id_bytes: bytes, *, first: bool, modern: bool) -> Page:
        """The upstream's response to ``tools/list`` as a client may see it. Raises BadJson, UpstreamBroken."""
        known = self.known(response, first=first, modern=modern)
        if known is not None:
            return known
        around = _around_id(response)
        listed = await self._listed(response, around, first=first)
        if isinstance(listed, Listed):
            written = await self._as_written(listed, around.request_id, modern, modern=modern)
            return Page(written, listed, around.request_id)
        if listed.absent and self._own and first:
            own = Listed(None, around, first)
            return Page(self._only_own(id_bytes, modern=modern), own, absent=True)
        return Page(response, None, absent=listed.absent)

    async def _listed(self, response: bytes, around: Around, *, first: bool) -> Listed | NoTools:
        if not around.request_id:
            return await self._read(response, around, first=first)
        start = len(around.before)
        listed = self._find(response, start, start + len(around.request_id), first=first)
        if listed is not None:
            return listed
        key = around.before, around.behind, first
        return await self._reading.get(key, partial(self._read, response, around, first=first))

    async def _read(self, response: bytes, around: Around, *, first: bool) -> Listed | NoTools:
        try:
            page = await in_turns(read_page(response, self._rules, first=first))
        except PageRefused as error:
            raise UpstreamBroken(f"The upstream server's list of tools {error}.") from None
        if isinstance(page, NoTools):
            return page
        await in_turns(self._tell(page.notes))
        tools = tuple(tool for tool in page.tools if tool is not None)
        self._note_unread(page.notes, tools)
        self._mirrors.learn((tool.name for tool in tools), page.headers)
        listed = Listed(page, around, first, tools)
        if around.request_id:
            self._kept.insert(0, listed)
            self._let_go()
        return listed

    def _note_unread(self, notes: Sequence[PolicyNote], tools: Sequence[Tool]) -> None:
        """Remember tools into whose definitions nobody looks, and forget those of which one does by now."""
        if self.unread:
            for tool in tools:
                self.unread.pop(reading(tool.name), None)
        for note in notes:
            if note.unread:
                self.unread[reading(note.name)] = None
                if len(self.unread) > UNREAD:
                    self.unread.popitem(last=False)

    def refuses(self, name: str) -> bool:
        """Tell whether the name is refused: a server might take it for a tool whose definition nobody looked into."""
        return has_no_reading(name) or reading(name) in self.unread

    def _only_own(self, id_bytes: bytes, *, modern: bool) -> bytes:
        result: dict[str, Any] = {"tools": list(self._own)}
        if modern:
            result = {"resultType": "complete", **result, "ttlMs": 0, "cacheScope": "private"}
        return rpc_result(id_bytes, result)

    def _tell(self, notes: Sequence[PolicyNote]) -> Piecewise[None]:
        """One line for a definition and what policy did to it, however often it is listed."""
        told = 0
        for note in notes:
            if note.key not in self._told and len(self._told) < TOLD:
                self._told.add(note.key)
                told += 1
                if told <= TOLD_AT_ONCE:
                    name = shown(note.name, _LONGEST_NAME)
                    self._log.info(note.event, server=self._server, tool=name, what=note.what)
                yield None
        if told > TOLD_AT_ONCE:
            count = told - TOLD_AT_ONCE
            self._log.info("policy hid or changed more tools", server=self._server, count=count)

    # --- pages that leave -------------------------------------------------------------------------------------

    async def warned(self, page: Page, verdict: Verdict, *, modern: bool) -> bytes:
        """The response with a warning first in the description of each tool that is not what it was."""
        found, listed = verdict.drift, page.listed
        if found is None or listed is None or listed.page is None:
            return page.response
        texts = partial(warned_texts, listed.page, found)
        return await self._as_written(listed, page.request_id, (verdict, modern), texts, modern=modern)

    async def only(self, page: Page, verdict: Verdict, *, modern: bool) -> bytes:
        """The response with the adapter's own tools and the allowed ones, without what is no tool at all."""
        listed = page.listed
        if listed is None or listed.page is None:
            return page.response
        texts = partial(allowed_texts, listed.page, verdict.allowed)
        return await self._as_written(listed, page.request_id, (verdict, modern), texts, modern=modern)

    async def _as_written(
        self,
        listed: Listed,
        request_id: bytes,
        way: object,
        texts: Callable[[], Piecewise[list[bytes | None]]] | None = None,
        *,
        modern: bool,
    ) -> bytes:
        written = listed.written.get(way)
        if written is None:
            write = partial(self._write, listed, way, texts, modern=modern)
            written = await self._writing.get((listed, way), write)
            if len(written.before) + len(written.behind) > LARGE:
                # All who waited for it go on at once, and each copies megabytes.
                await own_turn()
        return written.before + request_id + written.behind

    async def _write(
        self,
        listed: Listed,
        way: object,
        texts: Callable[[], Piecewise[list[bytes | None]]] | None,
        *,
        modern: bool,
    ) -> Around:
        page = listed.page
        assert page is not None, "what is written was read"
        chosen = page.texts if texts is None else await in_turns(texts())
        text = await in_turns(write_page(page, chosen, private=modern))
        if not listed.around.request_id:
            return Around(text, b"", b"")
        written = listed.written[way] = listed.around if text is page.response else _around_id(text)
        if len(listed.written) > WAYS:
            listed.written.popitem(last=False)
        self._let_go()
        return written

    async def snapshot(self, listed: Listed) -> CatalogueSnapshot:
        """The tools that the page shows and hides by itself."""
        if listed.snapshot is None:
            listed.snapshot = await self._seeing.get(listed, partial(_seen, listed))
        return listed.snapshot

    def _let_go(self) -> None:
        """Keep no more pages than there is room for."""
        del self._kept[KEPT:]
        size = sum(listed.size for listed in self._kept)
        while size > KEPT_BYTES and len(self._kept) > 1:
            size -= self._kept.pop().size


async def _seen(listed: Listed) -> CatalogueSnapshot:
    catalogue = await in_turns(catalogue_piecewise(listed.tools))
    hidden = listed.page.hidden if listed.page is not None else frozenset[str]()
    return CatalogueSnapshot(catalogue, hidden, frozenset({catalogue.digest}))


def _around_id(response: bytes) -> Around:
    span = _span_of_id(response)
    if span is None:
        return Around(b"", b"", b"")
    return Around(response[: span[0]], response[slice(*span)], response[span[1] :])


def _span_of_id(response: bytes) -> tuple[int, int] | None:
    """The start and end of the id in a response, if it is in one of the usual places."""
    found = _BEGINNING.match(response, 0, _LONGEST_BEGINNING)
    if found is None:
        found = _ENDING.search(response, max(0, len(response) - _LONGEST_ENDING))
    return found.span(1) if found is not None else None
