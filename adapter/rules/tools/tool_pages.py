"""One page of ``tools/list``: its tools as policy shapes them, and the page with them written anew. Pure.

A hostile page may have any length, number of tools and depth. It is read piece by piece, and parts that are too large
are left out or refused; all other parts keep their bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from adapter.errors import BadJson
from adapter.rules.calls.arguments import NO_HEADERS, Headers, headers_of
from adapter.rules.text.unicode import reading
from adapter.rules.tools.definitions import Tool, is_doubtful, read_tool
from adapter.rules.tools.drift import Drift
from adapter.rules.tools.drift_report import warned
from adapter.rules.tools.lists import PRIVATE, Entries, ListRefused, certain_outline, says_no_such_method
from adapter.rules.tools.visibility import ShapeTool
from adapter.wire.envelope import dump, parse
from adapter.wire.names import RESULT, TOOL
from adapter.wire.outline import Outline, member
from adapter.wire.piecewise import Piecewise, one_piece
from adapter.wire.spans import Insert, edit

DEEPEST = 1000
"""Levels of nesting of a definition that are read; usual definitions have fewer than ten."""

_EACH = 256
_LONGEST_NAME = 1 << 16

_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|([\[{]++)|([\]}]++)', re.DOTALL)


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

    ``unread``: the tool is refused, since its definition was not read.
    """

    key: str
    name: str
    event: str
    what: object
    unread: bool = False


@dataclass(eq=False, slots=True)
class PageEntries:
    """The entries of a page as they leave: ``texts`` are None for those left out, ``tools`` for those and for no tools.

    ``hidden`` are the readings of tools that are hidden for their definition. ``notes`` are for the log.
    """

    texts: list[bytes | None] = field(default_factory=list)
    tools: list[Tool | None] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    headers: dict[str, Headers] = field(default_factory=dict)
    notes: list[PolicyNote] = field(default_factory=list)

    def add(self, entry: _Entry) -> None:
        self.texts.append(entry.text)
        self.tools.append(entry.tool)
        if entry.note is not None:
            self.notes.append(entry.note)
            if entry.text is None:
                self.hidden.add(reading(entry.note.name))
        if entry.tool is not None and entry.headers:
            self.headers[entry.tool.name] = entry.headers


@dataclass(frozen=True, eq=False, slots=True)
class ToolPage:
    """A page as it came, and its entries as they leave. ``own`` is the JSON of the tools that stand before them."""

    response: bytes
    outline: Outline
    own: bytes
    entries: PageEntries
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class NoTools:
    """The upstream answered with something that is not a list. ``absent``: it knows no such method at all."""

    absent: bool = False


def read_page(response: bytes, rules: PageRules, *, first: bool) -> Piecewise[ToolPage | NoTools]:
    """The upstream's response to ``tools/list``, shaped. Raises BadJson, ListRefused."""
    limits = rules.limits
    if len(response) > limits.page:
        raise ListRefused(f"has a page of more than {limits.page} bytes")
    found, message = yield from certain_outline(response, "tools", RESULT, limits.tools, "tools")
    if found is None or found.list_at is None:
        return NoTools(says_no_such_method(message))
    entries = PageEntries()
    for span in found.spans:
        entries.add((yield from _read_entry(response[slice(*span)], rules)))
    cursor = message["result"].get("nextCursor")
    own = b",".join(rules.own) if first else b""
    return ToolPage(response, found, own, entries, cursor if isinstance(cursor, str) else None)


def write_page(page: ToolPage, texts: Sequence[bytes | None], *, private: bool) -> Piecewise[bytes]:
    """The page with these texts in the place of its entries; if it differs and is ``private``, it is marked so."""
    entries = Entries(page.response, page.outline, "tools", page.own)
    for place, (span, text) in enumerate(zip(page.outline.spans, texts, strict=True)):
        if text is None:
            entries.drop()
        else:
            entries.keep(span, text)
        if place % _EACH == 0:
            yield None
    return entries.written([PRIVATE] if private else [])


def warned_texts(page: ToolPage, drift: Drift) -> Piecewise[list[bytes | None]]:
    """The page's texts with a warning first in the description of each drifted tool."""
    edits = {name: partial(with_warning, name=name, drift=drift) for name in drift.unsettled}
    return edited_texts(page, page.entries.texts, edits)


def allowed_texts(page: ToolPage, allowed: Set[str]) -> Piecewise[list[bytes | None]]:
    """The page's texts of the allowed tools, without entries that are no tools."""
    texts: list[bytes | None] = []
    for text, tool in zip(page.entries.texts, page.entries.tools, strict=True):
        texts.append(text if tool is not None and tool.name in allowed else None)
        if len(texts) % _EACH == 0:
            yield None
    return texts


def edited_texts(
    page: ToolPage, texts: Sequence[bytes | None], edits: Mapping[str, Callable[[bytes], bytes]]
) -> Piecewise[list[bytes | None]]:
    """The texts, with the definitions of tools of these names as the edits make them."""
    edited: list[bytes | None] = []
    for text, tool in zip(texts, page.entries.tools, strict=True):
        if text is not None and tool is not None and tool.name in edits:
            text = yield from one_piece(partial(edits[tool.name], text), len(text))
        edited.append(text)
        if len(edited) % _EACH == 0:
            yield None
    return edited


def with_warning(definition: bytes, name: str, drift: Drift) -> bytes:
    """The definition of a drifted tool of this name with a warning first in its description."""
    described = parse(definition).get("description")
    text = warned(described if isinstance(described, str) else None, drift.reasons.get(name))
    return edit(definition, [Insert(("description",), dump(text))])


class _Entry(NamedTuple):
    """One entry of a page as it leaves."""

    text: bytes | None
    tool: Tool | None = None
    headers: Headers = NO_HEADERS
    note: PolicyNote | None = None


def _read_entry(raw: bytes, rules: PageRules) -> Piecewise[_Entry]:
    """Shape one entry. Raises BadJson."""
    longest = rules.limits.definition
    if len(raw) > longest:
        why = f"its definition is larger than {longest} bytes"
        return (yield from _unexamined(raw, why))
    try:
        return (yield from one_piece(partial(_examined, raw, rules), len(raw)))
    except BadJson:
        if not (yield from one_piece(partial(_is_too_deep, raw), len(raw))):
            raise
        return (yield from _unexamined(raw, f"its definition is nested more than {DEEPEST} levels deep"))


def _examined(raw: bytes, rules: PageRules) -> _Entry:
    value = parse(raw)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str):
        # An entry that another reader could take for a tool is left out as well.
        other = isinstance(value, dict) and TOOL.second_spelling(value) is not None
        return _Entry(None if other else raw)
    if name in rules.own_names:
        # A call of one of the adapter's own names is for the adapter's tool, on whatever page another one stands.
        return _Entry(None)
    shaping = rules.shape(name, raw)
    if shaping.raw is None:
        return _hidden(raw, name, "what its definition says") if shaping.blocked else _Entry(None)
    plain = shaping.raw if shaping.plain is None else shaping.plain
    is_same = plain is raw
    definition = value if is_same else parse(plain)
    tool = read_tool(plain, definition)
    if tool is None or (tool.doubtful if is_same else is_doubtful(raw, value)):
        return _hidden(raw, name, "its definition can be read in two ways", unread=True)
    if shaping.raw is not plain:
        tool, definition = replace(tool, raw=shaping.raw), parse(shaping.raw)
    changed = sorted(shaping.changed)
    note = PolicyNote(_key(raw), name, "policy changed a tool", changed) if changed else None
    return _Entry(shaping.raw, tool, headers_of(shaping.raw, definition), note)


def _unexamined(raw: bytes, why: str) -> Piecewise[_Entry]:
    """The entry of a definition that is not examined: it is hidden, under the name that it has."""
    span = yield from member(raw, "name")
    name = parse(raw[slice(*span)]) if span is not None and span[1] - span[0] <= _LONGEST_NAME else None
    return _hidden(raw, name if isinstance(name, str) else "", why, unread=True)


def _hidden(raw: bytes, name: str, why: str, *, unread: bool = False) -> _Entry:
    return _Entry(None, note=PolicyNote(_key(raw), name, "policy hid a tool", why, unread))


def _key(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _is_too_deep(raw: bytes) -> bool:
    depth = 0
    for found in _BRACKETS.finditer(raw):
        depth += len(found[1] or b"") - len(found[2] or b"")
        if depth > DEEPEST:
            return True
    return False
