"""The declared shape of a tool's data: undeclared members are removed, wrong types are refused. Pure.

A refusal names places and types, never a value, because the value may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from adapter.rules.access.redacted_values import EVERY, Censored, Segment
from adapter.rules.results.refusals import json_type
from adapter.rules.schema.cost import STEPS
from adapter.rules.text.json_values import is_number

_TYPE = re.compile(r"(?:list\[(?P<item>.*)\]|(?P<name>\w+))(?P<optional>\?)?")
_DEEPEST = 32

Path = tuple[str | int, ...]
Problem = tuple[Path, str]
Parse = Callable[[Any, Path, list[Problem]], Any]

MOST_PROBLEMS = 100
"""So many are told of one result; a list of a million items may have one in each."""


@dataclass(slots=True)
class StepsLeft:
    """Steps that all checks of one presentation together may still take."""

    left: int


Check = Callable[[Any, StepsLeft], Iterable[tuple[Sequence[str | int], str]]]
"""Data, to what JSON Schema has against it: each place, and the keyword that does not hold there. It takes its steps
from those that are left, and raises what it raises when there are none.
"""


class ShapeInvalid(ValueError):
    """A schema that declares nothing that could be checked."""


class ShapeRefused(Exception):
    """Data that is not as declared; ``problems`` are all that was found, each a place and a sentence."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(f'"{_dotted(path)}": {text}' for path, text in problems))
        self.problems = tuple(problems)

    def bullets(self) -> Iterator[str]:
        """One line for each problem."""
        for path, text in self.problems:
            yield f'  - "{_dotted(path)}": {text}'


@dataclass(frozen=True, slots=True)
class Shape:
    """The declared form of one item of data. ``keys`` are its declared members, if any are declared, and ``schema`` is
    the JSON Schema that names all members within it.

    ``check`` judges an item before anything is removed from it.
    """

    keys: tuple[str, ...]
    schema: Mapping[str, Any]
    parse: Parse
    check: Check | None = None

    def parsed(self, data: Any, left: StepsLeft | None = None) -> Any:
        """The data with nothing in it that is not declared; each item's, if it is a list.

        Without ``left`` it may take as many steps as a check may. Raises ShapeRefused, and what the check raises when
        its steps are taken.
        """
        problems: list[Problem] = []
        steps = StepsLeft(STEPS) if left is None else left
        if not isinstance(data, list):
            seen: Any = self._item(data, (), problems, steps)
        else:
            seen = []
            for index, item in enumerate(data):
                seen.append(self._item(item, (index,), problems, steps))
                if len(problems) >= MOST_PROBLEMS:
                    break
        if problems:
            raise ShapeRefused(problems[:MOST_PROBLEMS])
        return seen

    def _item(self, item: Any, path: Path, problems: list[Problem], steps: StepsLeft) -> Any:
        if self.check is not None:
            found = [
                (path + tuple(at), f"Does not satisfy {keyword}") for at, keyword in self.check(item, steps)
            ]
            problems += found
            if found:
                return None
        return self.parse(item, path, problems)


def shape_of(schema: Mapping[str, Any]) -> Shape:
    """The shape in short notation: names with ``string, int, float, bool, any, list[T]``, a mapping, or a list of one.

    ``?`` behind a type or a name says that it may be absent or null. Raises ShapeInvalid.
    """
    parse = _members(schema, 0)
    return Shape(tuple(name.removesuffix("?") for name in schema), as_json_schema(schema), parse)


def json_shape(schema: Mapping[str, Any], check: Check) -> Shape:
    """Return the shape of a JSON Schema, which ``check`` judges.

    Members that no part of the schema names are removed, unless additionalProperties or patternProperties describe
    them. A schema that forbids them has refused them before.
    """
    known = JsonDeclaration(schema)

    def parse(value: Any, _: Path, __: list[Problem]) -> Any:
        return known.kept(value, [schema], 0)

    return Shape(tuple(known.within([schema]).members), schema, parse, check)


# --- the short notation ---------------------------------------------------------------------------------------


def _members(schema: Mapping[str, Any], depth: int) -> Parse:
    if depth > _DEEPEST:
        raise ShapeInvalid(f"A schema may be nested at most {_DEEPEST} levels deep.")
    fields: dict[str, tuple[Parse, bool]] = {}
    for name, declared in schema.items():
        parse, optional = _declared(declared, depth + 1)
        fields[name.removesuffix("?")] = (parse, optional or name.endswith("?"))

    def parse_object(value: Any, path: Path, problems: list[Problem]) -> Any:
        if isinstance(value, Censored):
            return value
        if not isinstance(value, Mapping):
            problems.append((path, f"Expected object, received {json_type(value)}"))
            return None
        parsed: dict[str, Any] = {}
        for name, (parse, optional) in fields.items():
            if value.get(name) is None and optional:
                if name in value:
                    parsed[name] = None
            elif name not in value:
                problems.append(((*path, name), "Required"))
            else:
                parsed[name] = parse(value[name], (*path, name), problems)
        return parsed

    return parse_object


def _declared(declared: Any, depth: int) -> tuple[Parse, bool]:
    if isinstance(declared, Mapping):
        return _members(declared, depth), False
    if isinstance(declared, list) and len(declared) == 1:
        return _items(_declared(declared[0], depth + 1)), False
    found = _TYPE.fullmatch(declared.replace(" ", "")) if isinstance(declared, str) else None
    if found is None or depth > _DEEPEST:
        raise ShapeInvalid(f"A type must be a name, list[T], a mapping or a list of one; not {declared!r}.")
    optional = found["optional"] is not None
    if found["item"] is not None:
        return _items(_declared(found["item"], depth + 1)), optional
    if found["name"] not in _SCALARS:
        raise ShapeInvalid(f"A type must be one of {', '.join(_SCALARS)}, list[T]; not {declared!r}.")
    return _SCALARS[found["name"]], optional


def _items(item: tuple[Parse, bool]) -> Parse:
    parse, optional = item

    def parse_list(value: Any, path: Path, problems: list[Problem]) -> Any:
        if isinstance(value, Censored):
            return value
        if not isinstance(value, list):
            problems.append((path, f"Expected array, received {json_type(value)}"))
            return None
        return [
            None if each is None and optional else parse(each, (*path, index), problems)
            for index, each in enumerate(value)
        ]

    return parse_list


def _scalar(expected: str, fits: Callable[[Any], bool]) -> Parse:
    def parse(value: Any, path: Path, problems: list[Problem]) -> Any:
        if not (isinstance(value, Censored) or fits(value)):
            problems.append((path, f"Expected {expected}, received {json_type(value)}"))
        return value

    return parse


_SCALARS: Mapping[str, Parse] = {
    "string": _scalar("string", lambda value: isinstance(value, str)),
    "int": _scalar("integer", lambda value: is_number(value) and value == value // 1),
    "float": _scalar("number", is_number),
    "bool": _scalar("boolean", lambda value: isinstance(value, bool)),
    "any": _scalar("any", lambda _: True),
}


# --- JSON Schema ----------------------------------------------------------------------------------------------


class Within(NamedTuple):
    """The members (by name) and items that a JSON Schema declares within a value.

    Each is given as schemas that apply together. ``free``: there may be members that no schema names.
    """

    members: Mapping[str, Sequence[Any]]
    items: Sequence[Any]
    free: bool


class JsonDeclaration:
    """The members that a JSON Schema names, also through its references and the parts that may apply together."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def within(self, schemas: Sequence[Any]) -> Within:
        """Return the members and items declared within a value to which all these schemas may apply."""
        parts = [part for schema in schemas for part in self._parts(schema, 0)]
        named = any("properties" in part for part in parts)
        is_open = any(part.get("additionalProperties") not in (None, False) for part in parts)
        is_open = is_open or any("patternProperties" in part for part in parts)
        return Within(
            self._properties(parts),
            [part["items"] for part in parts if "items" in part],
            is_open or not named,
        )

    def kept(self, value: Any, schemas: Sequence[Any], depth: int) -> Any:
        if depth > _DEEPEST:
            return None
        within = self.within(schemas)
        if isinstance(value, Mapping):
            if within.free and not within.members:
                return value
            return {
                name: self.kept(member, within.members.get(name, ()), depth + 1)
                for name, member in value.items()
                if name in within.members or within.free
            }
        if isinstance(value, list):
            return [self.kept(item, within.items, depth + 1) for item in value] if within.items else value
        return value

    @staticmethod
    def _properties(parts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for part in parts:
            for name, schema in part.get("properties", {}).items():
                found.setdefault(name, []).append(schema)
        return found

    def _parts(self, schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return
        yield schema
        beside = [each for word in ("allOf", "anyOf", "oneOf") for each in schema.get(word, ())]
        beside += [schema[word] for word in ("if", "then", "else") if word in schema]
        if isinstance(schema.get("$ref"), str):
            beside.append(self._referred(schema["$ref"]))
        for each in beside:
            yield from self._parts(each, depth + 1)

    def _referred(self, reference: str) -> Any:
        """Follow a pointer into this same schema; any other reference names no members."""
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for part in filter(None, reference[1:].split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        return found


def _dotted(path: Path) -> str:
    return ".".join(map(str, path)) or "(root)"


# --- paths into declared data: one that leads nowhere is a mistake ----------------------------------------------

Place = Sequence[Any]
"""A place in the data: the schemas that apply there."""

ANYTHING: Place = ()
"""The place that holds whatever a path asks for."""


def as_json_schema(declared: Any) -> Mapping[str, Any]:
    """The JSON Schema with the members and items of what is declared in short notation; a scalar has neither."""
    if isinstance(declared, Mapping):
        members = {str(name).removesuffix("?"): as_json_schema(inner) for name, inner in declared.items()}
        return {"properties": members}
    if isinstance(declared, list):
        return {"items": as_json_schema(declared[0])} if declared else {}
    text = str(declared).replace(" ", "").removesuffix("?")
    if text.startswith("list["):
        return {"items": as_json_schema(text[5:-1])}
    return {} if text == "any" else {"properties": {}}


def unknown_name(path: Sequence[Segment], schema: Mapping[str, Any]) -> str | None:
    """Return a sentence on the first name of the path that is not declared, with the most similar declared name; None
    for a path that leads somewhere. ``schema`` is the JSON Schema of one item of the data.
    """
    declaration = JsonDeclaration(schema)
    root: Place = [schema]
    places: list[Place] = [root]
    for number, segment in enumerate(path):
        known: set[str] = set()
        within = list(_places_within(places, segment, declaration, known))
        if ANYTHING in within:
            return None
        if number == 0 and not isinstance(segment, str):
            # The data may be a list, of which the root is an item.
            within.append(root)
        places = within
        if not places:
            likely = get_close_matches(str(segment), sorted(known), n=1, cutoff=0)
            nearest = f"; the nearest is {likely[0]}" if likely else ""
            return f"{_spelled(segment)} is not declared in the schema{nearest}"
    return None


def _places_within(
    places: Iterable[Place], segment: Segment, declaration: JsonDeclaration, known: set[str], depth: int = 0
) -> Iterator[Place]:
    """Yield the places to which the segment leads from these places; add the names that exist there to ``known``."""
    for place in places if depth <= _DEEPEST else ():
        members, items, free = declaration.within(place)
        if free and not items:
            yield ANYTHING
            return
        known.update(members)
        if segment is EVERY:
            yield from (*([items] if items else ()), *members.values())
        elif isinstance(segment, int):
            yield from [items] if items else ()
        elif segment in members:
            yield members[str(segment)]
        elif items:
            # A name leads through the items of a list that is in its way.
            yield from _places_within([items], segment, declaration, known, depth + 1)


def _spelled(segment: Segment) -> str:
    return "*" if segment is EVERY else f"[{segment}]" if isinstance(segment, int) else str(segment)
