"""Lists of tools as clients see them: shaped by policy, with the adapter's own tools, written once for equal bytes."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import BadJson, UpstreamBroken
from adapter.relay.background import SingleFlight, in_turns
from adapter.relay.param_headers import ParamHeaders
from adapter.rules.results.tool_results import rpc_result
from adapter.rules.text.unicode import has_no_reading, reading, shown
from adapter.rules.tools.catalogue import CatalogueSnapshot, Verdict, catalogue_piecewise
from adapter.rules.tools.definitions import Tool
from adapter.rules.tools.lists import ListRefused
from adapter.rules.tools.tool_pages import (
    BOUNDS,
    ListLimits,
    NoTools,
    PageRules,
    PolicyNote,
    ToolPage,
    allowed_texts,
    edited_texts,
    read_page,
    warned_texts,
    write_page,
)
from adapter.rules.tools.visibility import ShapeTool
from adapter.wire.envelope import dump
from adapter.wire.piecewise import Piecewise
from adapter.wire.spans import MessagePieces

KEPT = 16
"""Pages of one server that are kept shaped. Bytes that come again, but for their id, are not read again."""

KEPT_BYTES = 64 << 20
"""Bytes of them that are kept, though always one page."""

WAYS = 4
"""Ways in which one page is kept written."""

UNREAD = 1000
"""Tools of one server that are known to be hidden for their size."""

LOGGED = 10_000
"""Tools of one server of which it is remembered that the log has them."""

LOGGED_AT_ONCE = 10
"""Tools of one page that the log names; of the others it has the number."""

_ID = rb'"id"\s*+:\s*+(-?[0-9]{1,15}|"[^"\\]{0,100}")'
_BEGINNING = re.compile(rb'\s*+\{\s*+"jsonrpc"\s*+:\s*+"2\.0"\s*+,\s*+' + _ID)
_ENDING = re.compile(rb',\s*+"jsonrpc"\s*+:\s*+"2\.0"\s*+,\s*+' + _ID + rb"\s*+\}\s*+\Z")
"""The usual places of the id: most SDKs write it first, the one for TypeScript last. Other responses are shaped anew
each time.
"""
_LONGEST_BEGINNING = 400
_LONGEST_ENDING = 200
_LONGEST_NAME = 128


Pieces = tuple[bytes | memoryview, ...]
"""A response in pieces. Those of a long list are parts of what is kept, so that no client has a copy of its own."""


class SplitResponse:
    """A response before, at and behind its id (JSON), which is empty if it is in no usual place.

    Equal are those with equal bytes around their ids. No bytes are copied, because lists may have megabytes.
    """

    __slots__ = ("_response", "before", "behind", "request_id")

    def __init__(self, response: bytes, start: int, end: int) -> None:
        view = memoryview(response)
        self._response = response
        self.before, self.request_id, self.behind = view[:start], response[start:end], view[end:]

    def __repr__(self) -> str:
        return f"<SplitResponse of {len(self)} bytes>"

    def __len__(self) -> int:
        return len(self._response)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SplitResponse):
            return NotImplemented
        whole = MessagePieces([other._response])
        return self.is_of(whole, len(other.before), len(other) - len(other.behind))

    def __hash__(self) -> int:
        return hash((len(self.before), len(self.behind)))

    def is_of(self, response: MessagePieces, start: int, end: int) -> bool:
        """Tell whether ``response`` is this one, apart from an id from ``start`` to ``end``."""
        size = len(self._response)
        # Equal bytes are found by comparing them: a digest of a long list costs more than all the rest.
        return (
            len(self.before) == start
            and len(self.behind) == response.size - end
            and response.has_at(0, self._response, 0, start)
            and response.has_at(end, self._response, size - len(self.behind), size)
        )

    def with_id(self, request_id: bytes) -> Pieces:
        """The response under this id."""
        if not self.behind:
            return (self._response,)
        return (b"".join((self.before, request_id)), self.behind)


class PageWriter(NamedTuple):
    """A way to write a page: for an era, and reduced to what a ``verdict`` allows, or with its warnings. ``for_host``:
    with the edits for a host that understands them.
    """

    modern: bool
    verdict: Verdict | None = None
    warns: bool = False
    for_host: bool = False


UNJUDGED = {
    for_host: (PageWriter(modern=False, for_host=for_host), PageWriter(modern=True, for_host=for_host))
    for for_host in (False, True)
}
"""The ways of a page that no verdict touches: for a host that understands the edits or not, by whether it is modern."""


@dataclass(eq=False, slots=True)
class Listed:
    """One page of the upstream's tools. Equal bytes share one, so that a thousand scopes hold one catalogue.

    ``page`` is None if the upstream has no tools. ``written`` is the page by the ways in which it was written.
    """

    page: ToolPage | None
    split: SplitResponse
    first: bool
    tools: Sequence[Tool] = ()
    snapshot: CatalogueSnapshot | None = None
    written: OrderedDict[PageWriter, SplitResponse] = field(default_factory=OrderedDict)

    @property
    def cursor(self) -> str | None:
        """The cursor of the next page of the list."""
        return self.page.cursor if self.page is not None else None

    @property
    def size(self) -> int:
        """Bytes of the page, in all the ways in which it was written."""
        return sum(map(len, (self.split, *self.written.values())))


FoundPage = tuple[Listed, bytes]
"""A page, and the id (JSON) of the response that it is; the id is empty if it is in no usual place."""


@dataclass(eq=False)
class ToolLists:
    """The lists of one server. ``own`` are the adapter's tools, which stand first on the first page. ``for_host`` edits
    the definitions of tools, by name, for hosts that understand what is added.
    """

    server: str
    shape: ShapeTool
    own: Sequence[dict[str, Any]]
    mirrors: ParamHeaders
    log: FilteringBoundLogger
    limits: ListLimits = BOUNDS
    for_host: Mapping[str, Callable[[bytes], bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._own = tuple(self.own)
        self.own_names = frozenset(tool["name"] for tool in self.own)
        self._rules = PageRules(self.shape, tuple(map(dump, self.own)), self.own_names, self.limits)
        self._kept: list[Listed] = []
        self._logged: set[str] = set()
        self.unread: OrderedDict[str, None] = OrderedDict()
        """The readings of tools whose definitions were not read."""
        self._reading = SingleFlight[tuple[SplitResponse, bool], Listed | NoTools]()
        self._writing = SingleFlight[tuple[Listed, PageWriter], SplitResponse]()
        self._snapshots = SingleFlight[Listed, CatalogueSnapshot]()

    def __repr__(self) -> str:
        return f"<ToolLists of {self.server!r}: {len(self._kept)} pages kept>"

    # --- pages that are known ---------------------------------------------------------------------------------

    def known(self, response: MessagePieces, *, first: bool) -> FoundPage | None:
        """The page that is kept of these bytes."""
        if (span := _span_of_id(response)) is None:
            return None
        for place, listed in enumerate(self._kept):
            if listed.first == first and listed.split.is_of(response, *span):
                if place:
                    self._kept.insert(0, self._kept.pop(place))
                return listed, response.at(*span)
        return None

    # --- pages that came --------------------------------------------------------------------------------------

    async def page(self, response: bytes, id_bytes: bytes, *, first: bool) -> FoundPage | None:
        """The page that the upstream answered ``tools/list`` with; None for an answer that is none, and stays as it is.

        Raises UpstreamBroken.
        """
        try:
            listed = await self.read(response, first=first)
        except BadJson as error:
            raise UpstreamBroken("The upstream server's list of tools is not valid JSON.") from error
        if isinstance(listed, Listed):
            return listed, _split(response).request_id
        if listed.absent and self._own and first:
            return Listed(None, _split(response), first), id_bytes
        return None

    async def read(self, response: bytes, *, first: bool) -> Listed | NoTools:
        """One page of the upstream's tools. Raises BadJson, UpstreamBroken."""
        found = self.known(MessagePieces([response]), first=first)
        if found is not None:
            return found[0]
        split = _split(response)
        read = partial(self._read, response, split, first=first)
        return await (self._reading.get((split, first), read) if split.request_id else read())

    async def _read(self, response: bytes, split: SplitResponse, *, first: bool) -> Listed | NoTools:
        try:
            page = await in_turns(read_page(response, self._rules, first=first))
        except ListRefused as error:
            raise UpstreamBroken(f"The upstream server's list of tools {error}.") from None
        if isinstance(page, NoTools):
            return page
        await in_turns(self._log_notes(page.entries.notes))
        tools = tuple(tool for tool in page.entries.tools if tool is not None)
        self._note_unread(page.entries.notes, tools)
        self.mirrors.learn((tool.name for tool in tools), page.entries.headers)
        listed = Listed(page, split, first, tools)
        if split.request_id:
            self._kept.insert(0, listed)
            self._drop_pages()
        return listed

    def _note_unread(self, notes: Sequence[PolicyNote], tools: Sequence[Tool]) -> None:
        """Remember the tools whose definitions are not read, and forget those whose definition is by now."""
        if self.unread:
            for tool in tools:
                self.unread.pop(reading(tool.name), None)
        for note in notes:
            if note.unread:
                self.unread[reading(note.name)] = None
                if len(self.unread) > UNREAD:
                    self.unread.popitem(last=False)

    def refuses(self, name: str) -> bool:
        """Tell whether a server might take the name for a tool whose definition was not read."""
        return has_no_reading(name) or reading(name) in self.unread

    def _log_notes(self, notes: Sequence[PolicyNote]) -> Piecewise[None]:
        """Write one line for a definition and what policy did to it, however often it is listed."""
        count = 0
        for note in notes:
            if note.key not in self._logged and len(self._logged) < LOGGED:
                self._logged.add(note.key)
                count += 1
                if count <= LOGGED_AT_ONCE:
                    name = shown(note.name, _LONGEST_NAME)
                    self.log.info(note.event, server=self.server, tool=name, what=note.what)
                yield None
        if count > LOGGED_AT_ONCE:
            more = count - LOGGED_AT_ONCE
            self.log.info("policy hid or changed more tools", server=self.server, count=more)

    # --- pages that leave -------------------------------------------------------------------------------------

    async def written(self, found: FoundPage, way: PageWriter) -> Pieces:
        """The response with a page, written in this way.

        A warning stands first in the description of each drifted tool. Without warnings, only the adapter's own tools
        and the allowed ones are left.
        """
        listed, request_id = found
        if listed.page is None:
            return (own_list(request_id, self._own, modern=way.modern),)
        written = listed.written.get(way)
        if written is None:
            write = partial(self._write, listed, listed.page, way)
            written = await self._writing.get((listed, way), write)
        return written.with_id(request_id)

    async def _write(self, listed: Listed, page: ToolPage, way: PageWriter) -> SplitResponse:
        texts = await _texts(page, way)
        if way.for_host and self.for_host:
            texts = await in_turns(edited_texts(page, texts, self.for_host))
        text = await in_turns(write_page(page, texts, private=way.modern))
        if not listed.split.request_id:
            return SplitResponse(text, len(text), len(text))
        written = listed.written[way] = listed.split if text is page.response else _split(text)
        if len(listed.written) > WAYS:
            listed.written.popitem(last=False)
        self._drop_pages()
        return written

    async def snapshot(self, listed: Listed) -> CatalogueSnapshot:
        """The tools that this page alone shows and hides."""
        if listed.snapshot is None:
            listed.snapshot = await self._snapshots.get(listed, partial(_snapshot, listed))
        return listed.snapshot

    def _drop_pages(self) -> None:
        """Drop the pages that were not used for longest, until the others fit."""
        del self._kept[KEPT:]
        size = sum(listed.size for listed in self._kept)
        while size > KEPT_BYTES and len(self._kept) > 1:
            size -= self._kept.pop().size


def own_list(id_bytes: bytes, tools: Sequence[dict[str, Any]], *, modern: bool) -> bytes:
    """A response to ``tools/list`` with tools of the adapter's own alone."""
    result: dict[str, Any] = {"tools": list(tools)}
    if modern:
        result = {"resultType": "complete", **result, "ttlMs": 0, "cacheScope": "private"}
    return rpc_result(id_bytes, result)


async def _texts(page: ToolPage, way: PageWriter) -> Sequence[bytes | None]:
    if way.verdict is None:
        return page.entries.texts
    if way.warns:
        assert way.verdict.drift is not None, "there is something to warn of"
        return await in_turns(warned_texts(page, way.verdict.drift))
    return await in_turns(allowed_texts(page, way.verdict.allowed))


async def _snapshot(listed: Listed) -> CatalogueSnapshot:
    catalogue = await in_turns(catalogue_piecewise(listed.tools))
    hidden = listed.page.entries.hidden if listed.page is not None else ()
    return CatalogueSnapshot(catalogue, frozenset(hidden), frozenset({catalogue.digest}), listed.tools)


def _split(response: bytes) -> SplitResponse:
    span = _span_of_id(MessagePieces([response])) or (len(response), len(response))
    return SplitResponse(response, *span)


def _span_of_id(response: MessagePieces) -> tuple[int, int] | None:
    """The start and end of the id in a response, if it is in one of the usual places."""
    found = _BEGINNING.match(response.beginning(_LONGEST_BEGINNING))
    if found is not None:
        return found.span(1)
    ending = response.ending(_LONGEST_ENDING)
    found = _ENDING.search(ending)
    if found is None:
        return None
    skipped = response.size - len(ending)
    return skipped + found.start(1), skipped + found.end(1)
