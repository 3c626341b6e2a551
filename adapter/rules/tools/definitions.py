"""Definitions of tools: their fingerprints, which are the same for the same tool, and their prose. Pure.

Prose is the titles and descriptions that a model reads.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from adapter.rules.text.canonical_json import canonical
from adapter.wire.ambiguity import stands_twice
from adapter.wire.envelope import dump, parse
from adapter.wire.names import TOOL, repeats_a_key
from adapter.wire.piecewise import Piecewise, one_piece

KNOWN = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The members that a client's model acts on (MCP, "Tool"); all others, ``_meta`` among them, count apart."""


class PinnedTool(NamedTuple):
    """A definition as it was pinned.

    ``known`` and ``unknown`` are its fingerprint: SHA-256 (hex) over the canonical form of the known members, and over
    that of all others. They are equal for two definitions exactly when a client's model is told the same, but for
    Unicode's NFKC. ``definition`` is the canonical JSON of the known members.
    """

    known: str
    unknown: str
    definition: bytes


@dataclass(frozen=True, slots=True)
class Tool:
    """One entry of ``tools/list``: ``raw`` is its bytes as the client sees them.

    ``known`` and ``unknown`` are its fingerprint, ``form`` is the canonical JSON of its known members; all three are of
    the definition without what the adapter adds to it. ``doubtful``:
    another reader may find another definition in these bytes, as of a name or description that stands there twice.
    """

    # The parsed definition is not kept: ten thousand tools are a million objects for the garbage collector.
    name: str
    raw: bytes
    known: str
    unknown: str
    form: bytes
    doubtful: bool = False

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}: {self.known[:12]}>"


def read_tool(raw: bytes, value: object = None) -> Tool | None:
    """The tool that these bytes define, or None: they are no object with a name. Raises BadJson.

    ``value`` is what they say, where that has been read.

    Where a member appears twice, readers differ in which counts: the last does here, and all the bytes go into
    the digest of what is unknown, so that the other one does not change unseen.
    """
    if value is None:
        value = parse(raw)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    form = canonical({key: value[key] for key in KNOWN if key in value})
    unknown = _digest_of_others(value)
    doubtful = not TOOL.plain.issuperset(value) and TOOL.second_spelling(value) is not None
    if repeats_a_key(raw, value):
        unknown = _digest(unknown.encode("ascii") + raw)
        doubtful = doubtful or stands_twice(raw, TOOL)
    return Tool(value["name"], raw, _digest(form), unknown, form, doubtful)


def is_doubtful(raw: bytes, value: dict[str, Any]) -> bool:
    """Tell whether another reader of these bytes may find another definition than ``value``, which was read in them."""
    if not TOOL.plain.issuperset(value) and TOOL.second_spelling(value) is not None:
        return True
    return repeats_a_key(raw, value) and stands_twice(raw, TOOL)


def pinned(tool: Tool) -> PinnedTool:
    return PinnedTool(tool.known, tool.unknown, tool.form)


def _digest_of_others(value: dict[str, Any]) -> str:
    others = {key: item for key, item in value.items() if key not in KNOWN}
    return _digest(canonical(others)) if others else _DIGEST_OF_NO_OTHERS


def _digest(data: bytes) -> str:
    # Not hash(): it is salted per process, and a pin outlives a restart.
    return hashlib.sha256(data).hexdigest()


_DIGEST_OF_NO_OTHERS = _digest(b"{}")


# --- pins of earlier versions ---------------------------------------------------------------------------------

# They were of definitions with what the adapter adds to them: they are no drift.

EarlierForms = Callable[[str, PinnedTool], Iterable[str]]
"""Gives the digests (``known``) under which an earlier version pinned a tool of this name and definition."""

_EACH = 256


def no_earlier_forms(_name: str, _tool: PinnedTool) -> Iterable[str]:
    """See EarlierForms, for a server to whose definitions the adapter adds nothing."""
    return ()


def restated(
    tools: Mapping[str, PinnedTool], other: Mapping[str, PinnedTool], earlier: EarlierForms
) -> Piecewise[Mapping[str, PinnedTool]]:
    """The tools, with the definition that stands in ``other`` for each that is an earlier form of that.

    What differs then is what the upstream changed. With the same words the adapter would add to both, so a client is
    told the same.
    """
    found: dict[str, PinnedTool] = {}
    for place, (name, tool) in enumerate(other.items()):
        known = tools.get(name)
        if known is not None and known.known != tool.known:
            forms = yield from one_piece(partial(_forms, name, tool, earlier), len(tool.definition))
            if known.known in forms:
                found[name] = tool._replace(unknown=known.unknown)
        elif place % _EACH == 0:
            yield None
    return {**tools, **found} if found else tools


def _forms(name: str, tool: PinnedTool, earlier: EarlierForms) -> frozenset[str]:
    # Of a tool that a list names twice only the second definition is kept, which says nothing of the first.
    return frozenset(earlier(name, tool)) if tool.known == _digest(tool.definition) else frozenset()


# --- prose ----------------------------------------------------------------------------------------------------

# A key or text (1) and, where it is the key of a member, the text (2) or the container (3) behind it; or a bracket (4).
# In JSON every string ends; that its end is optional keeps what is none from being read again at each quote.
_STRING = rb'"(?:[^"\\]++|\\.)*+"?+'
_TOKEN = re.compile(
    rb"(" + _STRING + rb")(?:\s*+:\s*+(?:(" + _STRING + rb")|([\[{]))?)?|([\[\]{}])", re.DOTALL
)
_MEMBER_TEXT, _MEMBER_CONTAINER, _BRACKET = 2, 3, 4

# The kinds of containers in which the walk stands.
_TOOL, _ANNOTATIONS, _SCHEMA, _NAMED, _DATA = range(5)
_OF_TOOL = {b'"annotations"': _ANNOTATIONS, b'"inputSchema"': _SCHEMA, b'"outputSchema"': _SCHEMA}
# Keywords of JSON Schema whose value is no schema: data, or schemas under names that are no keywords.
_OF_SCHEMA = {
    **dict.fromkeys((b'"default"', b'"const"', b'"enum"', b'"examples"', b'"example"'), _DATA),
    **dict.fromkeys(
        (b'"properties"', b'"patternProperties"', b'"dependentSchemas"', b'"dependencies"'), _NAMED
    ),
    **dict.fromkeys((b'"$defs"', b'"definitions"'), _NAMED),
}
_TITLE, _DESCRIPTION = b'"title"', b'"description"'


class Prose(NamedTuple):
    """A title or description: ``where`` is the member of the tool it is or stands in, the rest is positions.

    The member begins at ``member`` with its key's quote; its value, a JSON string, is at ``start`` to ``end``.
    """

    where: str
    is_title: bool
    member: int
    start: int
    end: int

    @property
    def in_schema(self) -> bool:
        return self.where.endswith("Schema")

    def text(self, definition: bytes) -> str:
        """The text of this prose. A lone surrogate in it stays one."""
        quoted = definition[self.start : self.end]
        if b"\\" not in quoted:
            return quoted[1:-1].decode("utf-8")
        text: str = json.loads(quoted)
        return text


def prose(definition: bytes) -> Iterator[Prose]:
    """Every title and description of a tool, its annotations and its schemas, in their order.

    ``definition`` is valid JSON; if it is no object there are none. Within a schema, members of whatever is no
    known keyword count as well, but what stands in a ``default``, ``const``, ``enum`` or ``examples`` is data.
    """
    within: list[int] = []
    where = b""
    for token in _TOKEN.finditer(definition):
        kind = token.lastindex
        if kind == _BRACKET:
            bracket = token[4]
            if bracket in b"]}":
                within.pop()
            elif within:
                # An item of a list: names have no lists, so whatever is in one is read as a schema.
                within.append(_SCHEMA if within[-1] == _NAMED else within[-1])
            elif bracket == b"{":
                within.append(_TOOL)
            else:
                return
        elif kind == _MEMBER_CONTAINER:
            key, outer = _plain(token[1]), within[-1]
            if outer == _TOOL:
                where = key
            within.append(_inside(outer, key))
        elif kind == _MEMBER_TEXT and within[-1] < _NAMED:
            key = _plain(token[1])
            if key == _TITLE or (key == _DESCRIPTION and within[-1] != _ANNOTATIONS):
                place = key if within[-1] == _TOOL else where
                member, (start, end) = token.start(), token.span(2)
                yield Prose(place[1:-1].decode("ascii"), key == _TITLE, member, start, end)


def rewritten(definition: bytes, texts: Sequence[tuple[Prose, str | None]]) -> bytes:
    """``definition`` with these texts in place of what was there, in its order; None takes the member away."""
    pieces: list[bytes] = []
    # What is cut away last begins and ends here: a member that is last in its object takes a comma before it.
    at = 0
    for piece, text in texts:
        if text is not None:
            pieces += (definition[at : piece.start], dump(text))
            at = piece.end
            continue
        pieces.append(definition[at : piece.member])
        at = _behind(definition, piece.end)
        if at == piece.end:
            _take_comma(pieces)
    pieces.append(definition[at:])
    return b"".join(pieces)


def _plain(quoted: bytes) -> bytes:
    """A key with its quotes, as it is spelled without needless escapes."""
    return quoted if b"\\" not in quoted else dump(json.loads(quoted))


def _inside(outer: int, key: bytes) -> int:
    if outer == _SCHEMA:
        return _OF_SCHEMA.get(key, _SCHEMA)
    if outer == _NAMED:
        return _SCHEMA
    return _OF_TOOL.get(key, _DATA) if outer == _TOOL else _DATA


_COMMA = re.compile(rb"\s*+,\s*+")


def _behind(definition: bytes, end: int) -> int:
    """The index where the next member begins, or ``end`` if there is none."""
    found = _COMMA.match(definition, end)
    return found.end() if found else end


def _take_comma(pieces: list[bytes]) -> None:
    """Remove the comma at the end of ``pieces``, if there is one."""
    while pieces:
        kept = pieces.pop().rstrip()
        if kept:
            pieces.append(kept.removesuffix(b","))
            return


_READS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


def own_tool(
    name: str, title: str, description: str, properties: dict[str, Any], *, reads: bool = True
) -> dict[str, Any]:
    """A tool of the adapter's own, as a client sees it in the list. Its first property is required; with ``reads`` it
    changes nothing.
    """
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if properties:
        schema["required"] = [next(iter(properties))]
    schema["additionalProperties"] = False
    hints = {"title": title, **(_READS if reads else {})}
    return {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema,
        "annotations": hints,
    }
