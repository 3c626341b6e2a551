"""Forms of the values that keywords of a schema have: which are none, and where schemas stand in them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.rules.schema.assertions import TYPES, is_number

Part = tuple[tuple[str | int, ...], Any]
"""Where a schema stands within the value of a keyword, and the schema."""


@dataclass(frozen=True, slots=True)
class KeywordForm:
    """``expected`` names the form for whoever wrote another; ``parts`` are the schemas in a value that has it."""

    expected: str
    has: Callable[[Any], bool]
    parts: Callable[[Any], Iterator[Part]] | None = None


def _all(value: Any, has: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(has, value))


def _each(value: Any, has: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(has, value.values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_names(value: Any) -> bool:
    return _all(value, _is_text) and len(set(value)) == len(value)


def _are_types(value: Any) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return _are_names(value) and bool(value) and TYPES.issuperset(value)


def _is_size(value: Any) -> bool:
    return is_number(value) and value >= 0 and value == value // 1


def is_schema(value: Any) -> bool:
    """Tell whether this may be a schema, judged by its type alone."""
    return isinstance(value, dict | bool)


def _itself(value: Any) -> Iterator[Part]:
    yield (), value


def _items(value: Any) -> Iterator[Part]:
    yield from (((number,), part) for number, part in enumerate(value))


def _members(value: Any) -> Iterator[Part]:
    yield from (((name,), part) for name, part in value.items())


def _one_or_items(value: Any) -> Iterator[Part]:
    yield from _items(value) if isinstance(value, list) else _itself(value)


def _schemas_among(value: Any) -> Iterator[Part]:
    yield from (((name,), part) for name, part in value.items() if not isinstance(part, list))


SCHEMA = KeywordForm("a schema is an object or a boolean", is_schema, _itself)
OBJECT_SCHEMA = KeywordForm("a schema is an object", lambda value: isinstance(value, dict), _itself)
SCHEMAS = KeywordForm(
    "one or more schemas are expected", lambda value: _all(value, is_schema) and bool(value), _items
)
OBJECT_SCHEMAS = KeywordForm(
    "one or more schemas are expected",
    lambda value: _all(value, lambda each: isinstance(each, dict)) and bool(value),
    _items,
)
MAP = KeywordForm("schemas by their names are expected", lambda value: _each(value, is_schema), _members)
OBJECT_MAP = KeywordForm(
    "schemas by their names are expected",
    lambda value: _each(value, lambda each: isinstance(each, dict)),
    _members,
)
SCHEMA_OR_SCHEMAS = KeywordForm(
    "a schema or schemas are expected",
    lambda value: is_schema(value) or (_all(value, is_schema) and bool(value)),
    _one_or_items,
)
OBJECT_OR_OBJECTS = KeywordForm(
    "a schema or schemas are expected",
    lambda value: (
        isinstance(value, dict) or (_all(value, lambda each: isinstance(each, dict)) and bool(value))
    ),
    _one_or_items,
)
DEPENDENCIES = KeywordForm(
    "schemas or names by names are expected",
    lambda value: _each(value, lambda each: is_schema(each) or _are_names(each)),
    _schemas_among,
)
OLD_DEPENDENCIES = KeywordForm(
    "schemas or names by names are expected",
    lambda value: _each(value, lambda each: isinstance(each, dict) or (_are_names(each) and bool(each))),
    _schemas_among,
)
NAMES_BY_NAME = KeywordForm("names by names are expected", lambda value: _each(value, _are_names))
TYPE = KeywordForm("a type, or different ones, are expected", _are_types)
NUMBER = KeywordForm("a number is expected", is_number)
POSITIVE = KeywordForm("a number above 0 is expected", lambda value: is_number(value) and value > 0)
SIZE = KeywordForm("a whole number from 0 is expected", _is_size)
BOOLEAN = KeywordForm("a boolean is expected", lambda value: isinstance(value, bool))
TEXT = KeywordForm("a text is expected", _is_text)
NAMES = KeywordForm("different names are expected", _are_names)
SOME_NAMES = KeywordForm(
    "one or more different names are expected", lambda value: _are_names(value) and bool(value)
)
LIST = KeywordForm("a list is expected", lambda value: isinstance(value, list))
SOME_LIST = KeywordForm(
    "a list with something in it is expected", lambda value: isinstance(value, list) and bool(value)
)
BOOLEANS = KeywordForm(
    "booleans by their names are expected",
    lambda value: _each(value, lambda each: isinstance(each, bool)),
)

Forms = Mapping[str, KeywordForm]
