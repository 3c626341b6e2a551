"""Lists of tools as clients see them: shaped by policy, with the adapter's own tools, made once for equal bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import UpstreamBroken
from adapter.relay.mirrors import Mirrors
from adapter.relay.offering import reasons
from adapter.rules.catalogue import catalogue_of
from adapter.rules.drift import Drift, warned
from adapter.rules.lists import has_no_such_method
from adapter.rules.results import rpc_result
from adapter.rules.tools import Tool, read_tool
from adapter.rules.unicode import reading
from adapter.rules.verdicts import Sighting
from adapter.wire.ambiguity import doubt_of_answer
from adapter.wire.entries import Entries
from adapter.wire.envelope import dump, parse
from adapter.wire.names import RESULT, TOOL
from adapter.wire.spans import Drop, Edit, Insert, edit

KEPT = 16
"""Pages of one server that are kept shaped. Bytes that come again, id apart, are not looked into again."""

KEPT_BYTES = 16 << 20
"""Bytes of them that are kept, though always one page."""

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
_LONGEST_ENDING = 200

_PRIVATE = Insert(("result", "cacheScope"), b'"private"')
"""What is made for one scope alone nobody may share (MCP 2026-07-28, caching)."""


class Shaping(NamedTuple):
    """What policy makes of one definition: its bytes, and what was changed; ``raw`` None hides the tool.

    ``blocked``: it is hidden for what it says, not for its name.
    """

    raw: bytes | None
    changed: frozenset[str] = frozenset()
    blocked: bool = False


Shape = Callable[[str, bytes], Shaping]


@dataclass(frozen=True)
class Listed:
    """The upstream's tools on one page, and their places in the response, behind the adapter's own.

    ``hidden`` are the readings of those that are hidden for what they say.
    """

    tools: tuple[Tool, ...]
    places: tuple[int, ...]
    own: int = 0
    length: int = 0
    cursor: str | None = None
    hidden: frozenset[str] = frozenset()

    @cached_property
    def sighting(self) -> Sighting:
        """The page by itself. Equal bytes share one, so that a thousand scopes hold one catalogue."""
        catalogue = catalogue_of(self.tools)
        return Sighting(catalogue, self.hidden, frozenset({catalogue.digest}))


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: the response for the client. ``listed`` is None where that is no list of tools."""

    response: bytes
    listed: Listed | None

    def with_warnings(self, found: Drift, *, modern: bool) -> bytes:
        """The response with a warning first in the description of each tool that is not what it was."""
        if self.listed is None:
            return self.response
        why = reasons(found)
        edits: list[Edit] = []
        for place, tool in zip(self.listed.places, self.listed.tools, strict=True):
            if tool.name in found.unsettled:
                described = tool.value.get("description")
                text = warned(described if isinstance(described, str) else None, why.get(tool.name))
                edits.append(Insert(("result", "tools", place, "description"), dump(text)))
        return self._edited(edits, modern=modern)

    def only(self, allowed: Set[str], *, modern: bool) -> bytes:
        """The response with the adapter's own tools and the allowed ones, without what is no tool at all."""
        if self.listed is None:
            return self.response
        listed = self.listed
        stay = {
            place for place, tool in zip(listed.places, listed.tools, strict=True) if tool.name in allowed
        }
        leave = (place for place in range(listed.own, listed.length) if place not in stay)
        return self._edited([Drop(("result", "tools", place)) for place in leave], modern=modern)

    def _edited(self, edits: list[Edit], *, modern: bool) -> bytes:
        if not edits:
            return self.response
        return edit(self.response, [*edits, _PRIVATE] if modern else edits)


class _Kept(NamedTuple):
    """A response before and behind its id, as it came and as it leaves."""

    before: bytes
    behind: bytes
    first: bool
    modern: bool
    shaped_before: bytes
    shaped_behind: bytes
    listed: Listed

    @property
    def size(self) -> int:
        return len(self.before) + len(self.behind) + len(self.shaped_before) + len(self.shaped_behind)


class ToolLists:
    """The lists of one server. ``own`` are the adapter's tools, which stand first on the first page."""

    def __init__(
        self,
        server: str,
        shape: Shape,
        own: Sequence[dict[str, Any]],
        mirrors: Mirrors,
        log: FilteringBoundLogger,
    ) -> None:
        self._server = server
        self._shape = shape
        self._own = tuple(own)
        self._own_text = b",".join(map(dump, own))
        self.own_names = frozenset(tool["name"] for tool in own)
        self._mirrors = mirrors
        self._log = log
        self._kept: list[_Kept] = []
        self._told: set[int] = set()
        self._untold = 0

    def __repr__(self) -> str:
        return f"<ToolLists of {self._server!r}: {len(self._kept)} pages kept>"

    def page(self, response: bytes, id_bytes: bytes, *, first: bool, modern: bool) -> Page:
        """The upstream's response to ``tools/list`` as a client may see it. Raises BadJson."""
        span = _span_of_id(response)
        if span is None:
            return self._shaped(response, id_bytes, first=first, modern=modern)
        # Equal bytes are found by comparing them: a digest of a long list costs more than all the rest.
        before, request_id, behind = response[: span[0]], response[slice(*span)], response[span[1] :]
        for place, kept in enumerate(self._kept):
            if (
                kept.first == first
                and kept.modern == modern
                and kept.before == before
                and kept.behind == behind
            ):
                if place:
                    self._kept.insert(0, self._kept.pop(place))
                return Page(kept.shaped_before + request_id + kept.shaped_behind, kept.listed)
        page = self._shaped(response, id_bytes, first=first, modern=modern)
        again = _span_of_id(page.response)
        if page.listed is not None and again is not None:
            shaped = page.response[: again[0]], page.response[again[1] :]
            self._keep(_Kept(before, behind, first, modern, *shaped, page.listed))
        return page

    def recognizes(self, response: bytes) -> bytes | None:
        """The id (JSON) of a page like one that is kept, so that nobody has to read it again; None of any other."""
        span = _span_of_id(response)
        if span is None:
            return None
        before, behind = response[: span[0]], response[span[1] :]
        known = any(kept.before == before and kept.behind == behind for kept in self._kept)
        return response[slice(*span)] if known else None

    def _keep(self, kept: _Kept) -> None:
        self._kept.insert(0, kept)
        del self._kept[KEPT:]
        size = sum(each.size for each in self._kept)
        while size > KEPT_BYTES and len(self._kept) > 1:
            size -= self._kept.pop().size

    def _shaped(self, response: bytes, id_bytes: bytes, *, first: bool, modern: bool) -> Page:
        own = self._own if first else ()
        if own and has_no_such_method(response):
            return Page(self._only_own(id_bytes, modern=modern), Listed((), (), len(own), len(own)))
        message = parse(response)
        result = message.get("result") if isinstance(message, dict) else None
        values = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(result, dict) or not isinstance(values, list):
            if isinstance(message, dict):
                _require_clear(response)
            return Page(response, None)
        text = Entries(response, [self._own_text] if own else [])
        _require_clear(text.frame)
        tools: list[Tool] = []
        places: list[int] = []
        hidden: set[str] = set()
        length = len(own)
        self._untold = -TOLD_AT_ONCE
        for span, value in zip(text.spans, values, strict=True):
            raw = response[slice(*span)]
            tool = read_tool(raw, value)
            shaped = self._shaped_tool(tool, raw, hidden) if tool is not None else _shaped_other(raw, value)
            if shaped.raw is None:
                text.drop()
                continue
            text.keep(span, shaped.raw)
            if tool is not None:
                if shaped.raw is not raw:
                    tool = read_tool(shaped.raw) or tool
                if modern:
                    self._mirrors.learn(tool.name, tool.value.get("inputSchema"))
                tools.append(tool)
                places.append(length)
            length += 1
        if self._untold > 0:
            self._log.info("policy hid or changed more tools", server=self._server, count=self._untold)
        cursor = result.get("nextCursor")
        listed = Listed(
            tuple(tools),
            tuple(places),
            len(own),
            length,
            cursor if isinstance(cursor, str) else None,
            frozenset(hidden),
        )
        if not text.edited:
            return Page(response, listed)
        return Page(edit(text.written(), [_PRIVATE]) if modern else text.written(), listed)

    def _shaped_tool(self, tool: Tool, raw: bytes, hidden: set[str]) -> Shaping:
        """What policy makes of one tool; ``hidden`` is told of one that is hidden for what it says."""
        if tool.name in self.own_names:
            # Who calls one of the adapter's own names gets the adapter's tool, on whatever page another one stands.
            return Shaping(None)
        if tool.doubtful:
            self._tell("a tool was hidden", tool, "its definition can be read in two ways")
            return Shaping(None)
        shaped = self._shape(tool.name, raw)
        if shaped.blocked:
            hidden.add(reading(tool.name))
            self._tell("policy hid a tool", tool, "what its definition says")
        elif shaped.changed:
            self._tell("policy changed a tool", tool, sorted(shaped.changed))
        return shaped

    def _only_own(self, id_bytes: bytes, *, modern: bool) -> bytes:
        result: dict[str, Any] = {"tools": list(self._own)}
        if modern:
            result = {"resultType": "complete", **result, "ttlMs": 0, "cacheScope": "private"}
        return rpc_result(id_bytes, result)

    def _tell(self, event: str, tool: Tool, what: object) -> None:
        """One line for a definition and what policy did to it, however often it is listed."""
        # Only a hash of it: a name may be as long as a list, and there may be TOLD of them.
        key = hash((tool.name, tool.known))
        if key not in self._told and len(self._told) < TOLD:
            self._told.add(key)
            self._untold += 1
            if self._untold <= 0:
                self._log.info(event, server=self._server, tool=tool.name, what=what)


def _require_clear(response: bytes) -> None:
    """Raise UpstreamBroken for a list in which some client could find other tools."""
    doubt = doubt_of_answer(response, RESULT)
    if doubt is not None:
        raise UpstreamBroken(f"The upstream server's list of tools can be read in two ways: {doubt}")


def _shaped_other(raw: bytes, value: object) -> Shaping:
    """An entry that is no tool stays, unless some client could take it for one."""
    doubtful = isinstance(value, dict) and TOOL.second_spelling(value) is not None
    return Shaping(None if doubtful else raw)


def _span_of_id(response: bytes) -> tuple[int, int] | None:
    """Where a response has its id, if that is one of the usual places."""
    found = _BEGINNING.match(response)
    if found is None:
        found = _ENDING.search(response, max(0, len(response) - _LONGEST_ENDING))
    return found.span(1) if found is not None else None
