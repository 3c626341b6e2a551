"""The tools, resources and prompts of one server that a caller may see and use. Pure.

A rule concerns callers by their principal, scopes and claims. Of several rules that concern a caller each allows what
its patterns match, and what one of them denies is denied. No rule, nothing allowed.

Lists of tools, resources, templates and prompts, reduced to what one caller may see. Pure.

What stays keeps its bytes. An entry in which another reader could find another name is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, partial
from typing import Any, NamedTuple

from adapter.errors import BadJson, ToolUnknown
from adapter.rules.access.principals import Caller, is_of_token, name_of, principals_named
from adapter.rules.text.expressions import NamePattern, name_reading, uri_part_reading, uri_reading
from adapter.rules.text.unicode import shown
from adapter.rules.tools.lists import (
    MOST_ITEMS,
    PRIVATE,
    Entries,
    ListRefused,
    certain_outline,
    next_cursor,
    says_no_such_method,
)
from adapter.wire.ambiguity import stands_twice
from adapter.wire.envelope import INVALID_PARAMS, METHOD_NOT_FOUND, error_response, parse
from adapter.wire.names import Names, repeats_a_key
from adapter.wire.outline import Outline
from adapter.wire.piecewise import Piecewise, one_piece

KEPT_VIEWS = 256
"""Combinations of rules of which the views are kept."""

KEPT_NAMES = 4096
"""Names of one view of which the decision is kept."""

LONGEST_KEPT = 512
"""Characters of a name of which the decision is kept."""

MOST_SEGMENTS = 16
"""Members within members that the name of a claim may lead through."""

Scalar = str | int | float | bool


class OfferKind(Enum):
    """The kinds of things that servers offer."""

    TOOL = "tool"
    RESOURCE = "resource"
    TEMPLATE = "template"
    PROMPT = "prompt"

    # Members are equal only to themselves, and Enum's own hash is a function of Python's.
    __hash__ = object.__hash__


_URIS = frozenset((OfferKind.RESOURCE, OfferKind.TEMPLATE))


class OwnOfferings(NamedTuple):
    """The adapter's own offerings, which no pattern has to name: tools that stand for all others, URIs of resources,
    and the beginning of URIs of the caller's own files, None where there are none.

    The tools are for callers whom some rule allows tools. A rule may deny each of these.
    """

    tools: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    files: str | None = None


NO_OWN = OwnOfferings()


class AllowPatterns(NamedTuple):
    """The patterns of one rule for what it allows; templates are compared like the URIs of resources."""

    tools: tuple[NamePattern, ...] = ()
    resources: tuple[NamePattern, ...] = ()
    prompts: tuple[NamePattern, ...] = ()

    def of(self, kind: OfferKind) -> tuple[NamePattern, ...]:
        """The patterns for one kind."""
        if kind is OfferKind.TOOL:
            return self.tools
        return self.prompts if kind is OfferKind.PROMPT else self.resources


NOTHING = AllowPatterns()


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One entry of ``servers[].access``; a condition that is None concerns everybody.

    A caller is of ``principals`` by name (that of an access token by exact value and issuer), has all ``scopes``, and
    has for each of ``claims`` one of its values.
    """

    principals: frozenset[str] | None = None
    scopes: frozenset[str] | None = None
    claims: Mapping[str, tuple[Scalar, ...]] | None = None
    allow: AllowPatterns = NOTHING
    deny: tuple[NamePattern, ...] = ()
    _of_tokens: frozenset[str] = field(default=frozenset(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        of_tokens = frozenset[str]().union(*map(principals_named, self.principals or ()))
        object.__setattr__(self, "_of_tokens", of_tokens)

    @property
    def is_for_everybody(self) -> bool:
        """Tell whether the rule has no condition."""
        return self.principals is None and self.scopes is None and self.claims is None

    def concerns(self, caller: Caller) -> bool:
        """Tell whether the rule is for this caller; every condition it has must hold."""
        if self.principals is not None and not self._names(self.principals, caller.principal):
            return False
        if self.scopes is not None and not self.scopes <= caller.scopes:
            return False
        return self.claims is None or all(
            _has_one(claim_of(caller.claims, name), values) for name, values in self.claims.items()
        )

    def _names(self, names: frozenset[str], principal: str) -> bool:
        return principal in self._of_tokens if is_of_token(principal) else name_of(principal) in names


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name; if there is none, the member that a name with dots leads to. None without one."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for segment in name.split(".", MOST_SEGMENTS):
        if not isinstance(found, Mapping) or segment not in found:
            return None
        found = found[segment]
    return found


def _has_one(claim: object, values: Sequence[Scalar]) -> bool:
    """Tell whether a claim is one of the values, or a list with one of them. True is not 1."""
    held = claim if isinstance(claim, list | tuple) else (claim,)
    return any(type(each) is type(value) and each == value for each in held for value in values)


class AccessView:
    """The decisions for all callers whom the same rules concern. ``uses_tools``: one of these rules is for tools."""

    def __init__(self, rules: Sequence[AccessRule], places: tuple[int, ...], own: OwnOfferings) -> None:
        self._rules = [rules[place] for place in places]
        self._own = own
        self._decided = lru_cache(KEPT_NAMES)(self._decide)
        self.places = places
        self.uses_tools = any(rule.allow.tools for rule in self._rules)

    def __repr__(self) -> str:
        return f"<AccessView of rules {list(self.places)}>"

    def allows(self, kind: OfferKind, name: str) -> bool:
        """Tell whether something of this kind and name may be seen and used."""
        return (self._decided if len(name) <= LONGEST_KEPT else self._decide)(kind, name)

    def denies(self, kind: OfferKind, name: str) -> bool:
        """Tell whether a rule denies this name, whatever others allow."""
        is_uri = kind in _URIS
        read = uri_reading(name) if is_uri else name_reading(name)
        if read is None:
            return True
        patterns = [each for rule in self._rules for each in rule.deny]
        if any(each.denies(name, read, uri=is_uri) for each in patterns):
            return True
        part = uri_part_reading(name) if is_uri and patterns else read
        return part is None or (part != read and any(each.denies(part, part, uri=True) for each in patterns))

    def _decide(self, kind: OfferKind, name: str) -> bool:
        if self.is_own(kind, name):
            return not self.denies(kind, name)
        is_uri = kind in _URIS
        read = uri_reading(name) if is_uri else name_reading(name)
        if read is None:
            return False
        allowed = any(
            each.allows(name, read, uri=is_uri) for rule in self._rules for each in rule.allow.of(kind)
        )
        return allowed and not self.denies(kind, name)

    def is_own(self, kind: OfferKind, name: str) -> bool:
        """Tell whether this is an offering of the adapter's own, as far as the caller may have any."""
        own = self._own
        if kind is OfferKind.TOOL:
            return name in own.tools and self.uses_tools
        if kind is not OfferKind.RESOURCE:
            return False
        return name in own.resources or (own.files is not None and name.startswith(own.files))


class AccessRules:
    """The rules of one server, in the order of the settings."""

    def __init__(self, rules: Sequence[AccessRule], own: OwnOfferings = NO_OWN) -> None:
        self._rules = tuple(rules)
        self._digest = hashlib.sha256(repr(list(map(_written, rules))).encode("ascii")).hexdigest()[:16]
        self._view = lru_cache(KEPT_VIEWS)(lambda places: AccessView(self._rules, places, own))

    def __repr__(self) -> str:
        return f"<AccessRules: {len(self._rules)} rules>"

    def view(self, caller: Caller) -> AccessView:
        """The decisions for this caller."""
        return self._view(tuple(place for place, rule in enumerate(self._rules) if rule.concerns(caller)))

    def noted(self, view: AccessView) -> list[Any]:
        """A JSON value by which ``restored`` finds the view again, also in another process."""
        return [self._digest, *view.places]

    def restored(self, note: object) -> AccessView:
        """The view of a note. If other rules made it, the view of callers whom only rules for everybody concern."""
        if isinstance(note, list) and note[:1] == [self._digest]:
            return self._view(tuple(note[1:]))
        return self._view(tuple(place for place, rule in enumerate(self._rules) if rule.is_for_everybody))


def _written(rule: AccessRule) -> str:
    """The rule in ASCII, the same for equal rules in every process."""
    conditions = [None if each is None else sorted(each) for each in (rule.principals, rule.scopes)]
    claims = None if rule.claims is None else sorted((name, repr(each)) for name, each in rule.claims.items())
    patterns = [[each.source for each in kind] for kind in (*rule.allow, rule.deny)]
    return ascii((conditions, claims, patterns))


# --- names that are not there, or that the caller may not see: the same bytes for both -------------------------


NOT_FOUND_LEGACY, NOT_FOUND_MODERN = -32002, INVALID_PARAMS
"""The code of an unknown resource, which MCP 2026-07-28 changed."""

_LONGEST_NAME = 100
_LONGEST_URI = 1000


def unknown_tool(name: str) -> ToolUnknown:
    """The failure of a call of a tool that is not there."""
    return ToolUnknown(f"Unknown tool: {shown(name, _LONGEST_NAME)}")


def unknown_prompt(id_bytes: bytes, name: str) -> bytes:
    """The response to a request for a prompt that is not there (MCP, prompts, "Error Handling")."""
    return error_response(id_bytes, INVALID_PARAMS, f"Unknown prompt: {shown(name, _LONGEST_NAME)}")


def unknown_resource(id_bytes: bytes, uri: str, *, modern: bool) -> bytes:
    """The response to a request for a resource that is not there (MCP, resources, "Error Handling")."""
    code = NOT_FOUND_MODERN if modern else NOT_FOUND_LEGACY
    return error_response(id_bytes, code, "Resource not found", {"uri": shown(uri, _LONGEST_URI)})


def unknown_method(id_bytes: bytes, method: str) -> bytes:
    """The response to a request that is not served (JSON-RPC 2.0, "Error object")."""
    return error_response(id_bytes, METHOD_NOT_FOUND, f"Method not found: {shown(method, _LONGEST_NAME)}")


LARGEST_ENTRY = 1 << 20
"""Bytes of an entry that is looked into; a larger one is left out."""

_EACH = 64


class ListShape(NamedTuple):
    """The method that lists one kind, the member of the result with the list, and the member with an entry's name."""

    method: str
    key: str
    name: str


SHAPES = {
    OfferKind.TOOL: ListShape("tools/list", "tools", "name"),
    OfferKind.RESOURCE: ListShape("resources/list", "resources", "uri"),
    OfferKind.TEMPLATE: ListShape("resources/templates/list", "resourceTemplates", "uriTemplate"),
    OfferKind.PROMPT: ListShape("prompts/list", "prompts", "name"),
}

_KNOWN = ("_meta", "resultType", "ttlMs", "cacheScope")
_OF_RESULT = {shape: Names.of(judged=(shape.key, "nextCursor"), known=_KNOWN) for shape in SHAPES.values()}
"""The members of each list's result that must be there in one spelling only."""
_OF_ENTRY = {shape: Names.of(judged=(shape.name,)) for shape in SHAPES.values()}


def visible_list(
    response: bytes, kind: OfferKind, shows: Callable[[str], bool], *, modern: bool
) -> Piecewise[bytes]:
    """The response to a list with the entries whose names ``shows`` allows; the very object if all of them are.

    A modern one is marked as private in any case, because other callers may see other entries. Raises BadJson, and
    ListRefused for what can be read in two ways.
    """
    shape = SHAPES[kind]
    found, message = yield from _outline(response, shape)
    if found is None or not isinstance(message, dict):
        raise ListRefused("is not a response")
    if found.list_at is None:
        return response
    entries = Entries(response, found, shape.key, b"")
    entries.edited = modern
    for place, span in enumerate(found.spans):
        raw = response[slice(*span)]
        name = yield from _entry_name(raw, shape)
        if name is not None and shows(name):
            entries.keep(span, raw)
        else:
            entries.drop()
        if place % _EACH == 0:
            yield None
    return entries.written([PRIVATE] if modern else [])


class ListPage(NamedTuple):
    """The entries of one page, each with its name or URI, and the cursor of the next page."""

    entries: list[tuple[str, bytes]]
    cursor: str | None = None


def read_page(response: bytes, shape: ListShape) -> Piecewise[ListPage | None]:
    """One page of a server's list: none of a server that knows no such method, None where it is no list.

    An entry without a name, or with two, cannot be used. Raises BadJson, and ListRefused for what can be read in two
    ways, or is too much.
    """
    found, message = yield from _outline(response, shape)
    if found is None or found.list_at is None:
        return ListPage([]) if says_no_such_method(message) else None
    entries = yield from read_entries(shape, (response[start:end] for start, end in found.spans))
    return ListPage(entries, next_cursor(found.rest(response)))


def read_entries(shape: ListShape, items: Iterable[bytes]) -> Piecewise[list[tuple[str, bytes]]]:
    """The entries that have one name."""
    found = []
    for item in items:
        name = yield from _entry_name(item, shape)
        if name is not None:
            found.append((name, item))
    return found


def _outline(response: bytes, shape: ListShape) -> Piecewise[tuple[Outline | None, Any]]:
    return (yield from certain_outline(response, shape.key, _OF_RESULT[shape], MOST_ITEMS, "entries"))


def _entry_name(raw: bytes, shape: ListShape) -> Piecewise[str | None]:
    """The name that all readers find in an entry, None if there is none. Raises BadJson."""
    if len(raw) > LARGEST_ENTRY:
        return None
    return (yield from one_piece(partial(_certain_name, raw, shape), len(raw)))


def _certain_name(raw: bytes, shape: ListShape) -> str | None:
    try:
        value = parse(raw)
    except BadJson:
        # Too deep, for one: of what nobody here can read nothing is shown.
        return None
    name, names = value.get(shape.name) if isinstance(value, dict) else None, _OF_ENTRY[shape]
    if not isinstance(name, str) or names.second_spelling(value) is not None:
        return None
    return None if repeats_a_key(raw, value) and stands_twice(raw, names) else name
