"""One page of ``tools/list``: its tools as policy shapes them, and the page with them written anew. Pure.

A hostile page may have any length, number of tools and depth. It is read piece by piece, and what is too large is
left out or refused; all else of an honest one keeps its bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from adapter.errors import BadJson
from adapter.rules.calls.param_headers import NO_HEADERS, Headers, headers_of
from adapter.rules.text.unicode import reading
from adapter.rules.tools.definitions import Tool, is_doubtful, read_tool
from adapter.rules.tools.drift import Drift, warned
from adapter.rules.tools.lists import says_no_such_method
from adapter.wire.ambiguity import doubt_of_answer
from adapter.wire.envelope import dump, parse
from adapter.wire.names import RESULT, TOOL
from adapter.wire.outline import Outline, TooManyItems, member, outline
from adapter.wire.piecewise import Piecewise, one_piece
from adapter.wire.scan import Span, find
from adapter.wire.spans import Edit, Insert, edit


class Entries:
    """Writes ``result[key]`` of a response, which has one by its outline. ``before`` are entries that stand first.

    Each item of the outline is to be kept or dropped, in their order.
    """

    def __init__(self, response: bytes, outline: Outline, key: str, before: bytes) -> None:
        assert outline.list_at is not None, "there is a list"
        self._response = response
        self._outline = outline
        self._key = key
        self._kept_to = outline.list_at[0] + 1
        self._joins = True
        self._pieces = [b"[", before]
        self._is_empty = not before
        self.edited = bool(before)

    def drop(self) -> None:
        """Leave the next entry out."""
        self.edited = True
        self._joins = False

    def keep(self, span: Span, text: bytes) -> None:
        """Write ``text`` in the place of the next entry, whose span this is."""
        start, end = span
        gap = self._response[self._kept_to : start] if self._joins else b""
        if b"," not in gap and not self._is_empty:
            gap = b"," + gap
        self.edited = self.edited or text != self._response[start:end]
        self._pieces += (gap, text)
        self._kept_to, self._joins, self._is_empty = end, True, False

    def written(self, edits: Sequence[Edit] = ()) -> bytes:
        """The response with these entries, and with ``edits`` of what stands beside the list.

        The very object that came where no entry was touched.
        """
        if not self.edited:
            return self._response
        response, outline = self._response, self._outline
        assert outline.list_at is not None, "there is a list"
        end = outline.items[-1] if outline.items else outline.list_at[0] + 1
        rest = edit(outline.rest(response), edits)
        place = find(rest, ("result", self._key))
        assert place is not None, "the list is there"
        tail = response[end : outline.list_at[1]]
        return b"".join((rest[: place[0]], *self._pieces, tail, rest[place[1] :]))


LONGEST_REST = 1 << 20
"""Bytes of a page beside its tools."""

DEEPEST = 1000
"""Levels of nesting of a definition that are read; ten would do for an honest one."""

_EACH = 256
_LONGEST_NAME = 1 << 16

_PRIVATE = Insert(("result", "cacheScope"), b'"private"')
"""What is made for one scope alone nobody may share (MCP 2026-07-28, caching)."""

_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|([\[{]++)|([\]}]++)', re.DOTALL)


class PageRefused(Exception):
    """A page that nobody reads to its end; ``str(error)`` says why."""


class Shaping(NamedTuple):
    """The result of policy for one definition: its bytes, and what was changed. If ``raw`` is None, the tool is hidden.

    ``blocked``: the tool is hidden for what its definition says, not for its name.
    """

    raw: bytes | None
    changed: frozenset[str] = frozenset()
    blocked: bool = False


ShapeTool = Callable[[str, bytes], Shaping]


class ListLimits(NamedTuple):
    """``tools`` of one server on all pages of its list, bytes of one ``page``, and bytes of one ``definition``."""

    tools: int = 20_000
    page: int = 32 << 20
    definition: int = 1 << 20


BOUNDS = ListLimits()


@dataclass(frozen=True, slots=True)
class PageRules:
    """The rules that shape pages. ``own`` are the adapter's tools as JSON, which stand first on a first page."""

    shape: ShapeTool
    own: Sequence[bytes] = ()
    own_names: frozenset[str] = frozenset()
    limits: ListLimits = BOUNDS


class PolicyNote(NamedTuple):
    """A note on what policy did to a tool. ``key`` is equal for the same definition.

    ``unread``: nobody may call the tool, since nobody knows what its definition says.
    """

    key: str
    name: str
    event: str
    what: object
    unread: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class ToolPage:
    """A page as it came, and its entries as they leave: ``texts`` are None for what is left out, ``tools`` for what
    is left out or no tool. ``own`` is what stands before them. ``hidden`` are the readings of tools that are hidden
    for what they say. ``notes`` are for the log.
    """

    response: bytes
    outline: Outline
    own: bytes
    texts: Sequence[bytes | None]
    tools: Sequence[Tool | None]
    cursor: str | None = None
    hidden: frozenset[str] = frozenset()
    headers: Mapping[str, Headers] = field(default_factory=dict)
    notes: Sequence[PolicyNote] = ()


@dataclass(frozen=True, slots=True)
class NoTools:
    """The upstream answered with something that is not a list. ``absent``: it knows no such method at all."""

    absent: bool = False


def read_page(response: bytes, rules: PageRules, *, first: bool) -> Piecewise[ToolPage | NoTools]:
    """The upstream's response to ``tools/list``, shaped. Raises BadJson, PageRefused."""
    limits = rules.limits
    if len(response) > limits.page:
        raise PageRefused(f"has a page of more than core.max_tool_list_bytes ({limits.page})")
    try:
        found = yield from outline(response, "tools", limits.tools)
    except TooManyItems:
        raise PageRefused(f"has more than core.max_tools ({limits.tools}) tools") from None
    rest = response if found is None else found.rest(response)
    if len(rest) > LONGEST_REST:
        raise PageRefused(f"has more than {LONGEST_REST} bytes besides its tools")
    message = yield from one_piece(partial(parse, rest), len(rest))
    doubt = yield from one_piece(partial(_doubt, message, rest), len(rest))
    if doubt is not None:
        raise PageRefused(f"can be read in two ways: {doubt.removesuffix('.')}")
    if found is None or found.list_at is None:
        return NoTools(says_no_such_method(message))
    entries = _Entries(rules)
    for span in found.spans:
        yield from entries.take(response[slice(*span)])
    cursor = message["result"].get("nextCursor")
    return ToolPage(
        response,
        found,
        b",".join(rules.own) if first else b"",
        entries.texts,
        entries.tools,
        cursor if isinstance(cursor, str) else None,
        frozenset(entries.hidden),
        entries.headers,
        entries.notes,
    )


def write_page(page: ToolPage, texts: Sequence[bytes | None], *, private: bool) -> Piecewise[bytes]:
    """The page with these texts in the place of its entries; ``private``, if that is another, for nobody else."""
    entries = Entries(page.response, page.outline, "tools", page.own)
    for place, (span, text) in enumerate(zip(page.outline.spans, texts, strict=True)):
        if text is None:
            entries.drop()
        else:
            entries.keep(span, text)
        if place % _EACH == 0:
            yield None
    return entries.written([_PRIVATE] if private else [])


def warned_texts(page: ToolPage, found: Drift) -> Piecewise[list[bytes | None]]:
    """The page's texts with a warning first in the description of each tool that is not what it was."""
    texts: list[bytes | None] = []
    for text, tool in zip(page.texts, page.tools, strict=True):
        if text is not None and tool is not None and tool.name in found.unsettled:
            text = yield from one_piece(partial(with_warning, text, tool.name, found), len(text))
        texts.append(text)
        if len(texts) % _EACH == 0:
            yield None
    return texts


def allowed_texts(page: ToolPage, allowed: Set[str]) -> Piecewise[list[bytes | None]]:
    """The page's texts of the allowed tools, without what is no tool at all."""
    texts: list[bytes | None] = []
    for text, tool in zip(page.texts, page.tools, strict=True):
        texts.append(text if tool is not None and tool.name in allowed else None)
        if len(texts) % _EACH == 0:
            yield None
    return texts


def with_warning(definition: bytes, name: str, found: Drift) -> bytes:
    """The definition of a drifted tool of this name with a warning first in its description."""
    described = parse(definition).get("description")
    text = warned(described if isinstance(described, str) else None, found.reasons.get(name))
    return edit(definition, [Insert(("description",), dump(text))])


class _Taken(NamedTuple):
    """The result for one entry of a page."""

    text: bytes | None
    tool: Tool | None = None
    headers: Headers = NO_HEADERS
    note: PolicyNote | None = None


class _Entries:
    """Takes the entries of a page one by one."""

    def __init__(self, rules: PageRules) -> None:
        self._rules = rules
        self.texts: list[bytes | None] = []
        self.tools: list[Tool | None] = []
        self.hidden: set[str] = set()
        self.headers: dict[str, Headers] = {}
        self.notes: list[PolicyNote] = []

    def take(self, raw: bytes) -> Piecewise[None]:
        """Raises BadJson."""
        taken = yield from self._taken(raw)
        self.texts.append(taken.text)
        self.tools.append(taken.tool)
        if taken.note is not None:
            self.notes.append(taken.note)
            if taken.text is None:
                self.hidden.add(reading(taken.note.name))
        if taken.tool is not None and taken.headers:
            self.headers[taken.tool.name] = taken.headers

    def _taken(self, raw: bytes) -> Piecewise[_Taken]:
        longest = self._rules.limits.definition
        if len(raw) > longest:
            why = f"its definition is larger than core.max_tool_definition_bytes ({longest})"
            return (yield from _left_out(raw, why))
        try:
            return (yield from one_piece(partial(self._looked_into, raw), len(raw)))
        except BadJson:
            if not (yield from one_piece(partial(_is_too_deep, raw), len(raw))):
                raise
            return (yield from _left_out(raw, f"its definition is nested more than {DEEPEST} levels deep"))

    def _looked_into(self, raw: bytes) -> _Taken:
        value = parse(raw)
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str):
            # What some client could take for a tool is left out as well.
            other = isinstance(value, dict) and TOOL.second_spelling(value) is not None
            return _Taken(None if other else raw)
        if name in self._rules.own_names:
            # Who calls one of the adapter's own names gets the adapter's tool, on whatever page another one stands.
            return _Taken(None)
        shaping = self._rules.shape(name, raw)
        if shaping.raw is None:
            why = "what its definition says"
            return _Taken(None, note=_note(raw, name, "policy hid a tool", why) if shaping.blocked else None)
        is_same = shaping.raw is raw
        said = value if is_same else parse(shaping.raw)
        tool = read_tool(shaping.raw, said)
        if tool is None or (tool.doubtful if is_same else is_doubtful(raw, value)):
            why = "its definition can be read in two ways"
            return _Taken(None, note=_note(raw, name, "policy hid a tool", why)._replace(unread=True))
        changed = sorted(shaping.changed)
        note = _note(raw, name, "policy changed a tool", changed) if changed else None
        return _Taken(shaping.raw, tool, headers_of(shaping.raw, said), note)


def _doubt(message: object, rest: bytes) -> str | None:
    """Return a sentence on what else a client could find beside the tools, None if there is nothing."""
    return doubt_of_answer(rest, RESULT) if isinstance(message, dict) else None


def _left_out(raw: bytes, why: str) -> Piecewise[_Taken]:
    """Return the result for a definition that is not examined: it is hidden, under the name that it has."""
    span = yield from member(raw, "name")
    said = parse(raw[slice(*span)]) if span is not None and span[1] - span[0] <= _LONGEST_NAME else None
    name = said if isinstance(said, str) else ""
    return _Taken(None, note=_note(raw, name, "policy hid a tool", why)._replace(unread=True))


def _note(raw: bytes, name: str, event: str, what: object) -> PolicyNote:
    return PolicyNote(hashlib.sha256(raw).hexdigest(), name, event, what)


def _is_too_deep(raw: bytes) -> bool:
    depth = 0
    for found in _BRACKETS.finditer(raw):
        depth += len(found[1] or b"") - len(found[2] or b"")
        if depth > DEEPEST:
            return True
    return False
