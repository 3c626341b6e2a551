"""Lists of tools as clients see them: shaped by policy, with the adapter's own tools, made once for equal bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.relay.mirrors import Mirrors
from adapter.rules.lists import begun_with, has_no_such_method, next_cursor
from adapter.rules.results import rpc_result
from adapter.rules.tools import Tool, read_tool
from adapter.wire.envelope import parse
from adapter.wire.spans import Drop, Edit, Insert, Replace, edit, find, items

KEPT = 16
"""Pages of one server that are kept shaped. Bytes that come again, id apart, are not looked into again."""

_BEGINNING = re.compile(
    rb'\s*+\{\s*+"jsonrpc"\s*+:\s*+"2\.0"\s*+,\s*+"id"\s*+:\s*+(-?[0-9]{1,15}|"[^"\\]{0,100}")'
)
"""How responses begin as a rule. One that is spelled otherwise is shaped anew each time."""


class Shaping(NamedTuple):
    """What policy makes of one definition: its bytes, and what was changed; ``raw`` None hides the tool."""

    raw: bytes | None
    changed: frozenset[str] = frozenset()


Shape = Callable[[str, bytes], Shaping]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: the response for the client, the upstream's tools in it, and the next cursor.

    ``tools`` is None where the response is no list of tools.
    """

    response: bytes
    tools: tuple[Tool, ...] | None
    cursor: str | None = None


class _Kept(NamedTuple):
    behind: bytes
    first: bool
    modern: bool
    shaped: bytes
    page: Page


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
        self.own_names = frozenset(tool["name"] for tool in own)
        self._mirrors = mirrors
        self._log = log
        self._kept: list[_Kept] = []
        self._told: set[tuple[str, str]] = set()

    def __repr__(self) -> str:
        return f"<ToolLists of {self._server!r}: {len(self._kept)} pages kept>"

    def page(self, response: bytes, id_bytes: bytes, *, first: bool, modern: bool) -> Page:
        """The upstream's response to ``tools/list`` as a client may see it. Raises BadJson."""
        beginning = _BEGINNING.match(response)
        if beginning is None:
            return self._shaped(response, id_bytes, first=first, modern=modern)
        # Equal bytes are found by comparing them: a digest of a long list costs more than all the rest.
        behind = response[beginning.end() :]
        for place, kept in enumerate(self._kept):
            if kept.first == first and kept.modern == modern and kept.behind == behind:
                if place:
                    self._kept.insert(0, self._kept.pop(place))
                return replace(kept.page, response=response[: beginning.end()] + kept.shaped)
        page = self._shaped(response, id_bytes, first=first, modern=modern)
        again = _BEGINNING.match(page.response)
        if page.tools is not None and again is not None:
            self._kept.insert(0, _Kept(behind, first, modern, page.response[again.end() :], page))
            del self._kept[KEPT:]
        return page

    def _shaped(self, response: bytes, id_bytes: bytes, *, first: bool, modern: bool) -> Page:
        if first and self._own and has_no_such_method(response):
            return Page(self._only_own(id_bytes, modern=modern), ())
        message = parse(response)
        result = message.get("result") if isinstance(message, dict) else None
        span = find(response, ("result", "tools"))
        if not isinstance(result, dict) or not isinstance(result.get("tools"), list) or span is None:
            return Page(response, None)
        edits: list[Edit] = []
        tools: list[Tool] = []
        for place, (start, end) in enumerate(items(response, span[0])):
            raw = response[start:end]
            tool = read_tool(raw)
            if tool is None:
                continue
            shaped = self._shape(tool.name, raw)
            self._tell(tool.name, shaped)
            if shaped.raw is None:
                edits.append(Drop(("result", "tools", place)))
                continue
            if shaped.raw is not raw:
                edits.append(Replace(("result", "tools", place), shaped.raw))
                tool = read_tool(shaped.raw) or tool
            if modern:
                self._mirrors.learn(tool.name, tool.value.get("inputSchema"))
            tools.append(tool)
        if edits and modern:
            edits.append(Insert(("result", "cacheScope"), b'"private"'))
        cursor = next_cursor(response)
        response = edit(response, edits) if edits else response
        if first:
            for own in reversed(self._own):
                response = begun_with(response, "tools", own, modern=modern)
        return Page(response, tuple(tools), cursor)

    def _only_own(self, id_bytes: bytes, *, modern: bool) -> bytes:
        result: dict[str, Any] = {"tools": list(self._own)}
        if modern:
            result = {"resultType": "complete", **result, "ttlMs": 0, "cacheScope": "private"}
        return rpc_result(id_bytes, result)

    def _tell(self, name: str, shaped: Shaping) -> None:
        """One line for a tool and what policy did to it, however often it is listed."""
        for what in sorted(shaped.changed):
            if (name, what) not in self._told and len(self._told) < 10_000:
                self._told.add((name, what))
                self._log.info("policy changed a tool", server=self._server, tool=name, what=what)
