"""The drafts of JSON Schema from 4 to 2020-12: their keywords, the forms of their values, and the checks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adapter.rules.schema import applicators as apply
from adapter.rules.schema import assertions as check
from adapter.rules.schema.assertions import TYPES, Check, is_number

Part = tuple[tuple[str | int, ...], Any]
"""Where a schema stands within the value of a keyword, and the schema."""


@dataclass(frozen=True, slots=True)
class KeywordForm:
    """The form of a keyword's value. ``expected`` names it in errors; ``parts`` are the schemas in a value of this
    form.
    """

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


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """One draft. ``name_keyword`` gives a schema its URI; with ``ref_is_alone`` the keywords beside a ``$ref`` are
    ignored.
    """

    name: str
    forms: Forms
    checks: Mapping[str, Check]
    name_keyword: str = "$id"
    ref_is_alone: bool = False
    contains_evaluates: bool = False

    def __repr__(self) -> str:
        return f"<Draft {self.name}>"


_SIZES: Final = {
    "minLength": check.min_length,
    "maxLength": check.max_length,
    "minItems": check.min_items,
    "maxItems": check.max_items,
    "minProperties": check.min_properties,
    "maxProperties": check.max_properties,
}
_CHECKS_4: Final[dict[str, Check]] = {
    **_SIZES,
    "$ref": apply.ref,
    "type": check.old_type,
    "enum": check.enum,
    "multipleOf": check.multiple_of,
    "minimum": check.old_minimum,
    "maximum": check.old_maximum,
    "pattern": check.pattern,
    "uniqueItems": check.unique_items,
    "required": check.required,
    "properties": apply.properties,
    "patternProperties": apply.pattern_properties,
    "additionalProperties": apply.additional_properties,
    "items": apply.old_items,
    "additionalItems": apply.additional_items,
    "dependencies": apply.dependencies,
    "allOf": apply.all_of,
    "anyOf": apply.any_of,
    "oneOf": apply.one_of,
    "not": apply.not_,
}
_CHECKS_6: Final[dict[str, Check]] = {
    **_CHECKS_4,
    "type": check.type_,
    "const": check.const,
    "minimum": check.minimum,
    "maximum": check.maximum,
    "exclusiveMinimum": check.exclusive_minimum,
    "exclusiveMaximum": check.exclusive_maximum,
    "contains": apply.old_contains,
    "propertyNames": apply.property_names,
}
_CHECKS_7: Final[dict[str, Check]] = {**_CHECKS_6, "if": apply.if_}
_CHECKS_2019: Final[dict[str, Check]] = {
    **{name: each for name, each in _CHECKS_7.items() if name != "dependencies"},
    "$recursiveRef": apply.recursive_ref,
    "contains": apply.contains,
    "dependentRequired": check.dependent_required,
    "dependentSchemas": apply.dependent_schemas,
    "unevaluatedItems": apply.unevaluated_items,
    "unevaluatedProperties": apply.unevaluated_properties,
}
_CHECKS_2020: Final[dict[str, Check]] = {
    **{name: each for name, each in _CHECKS_2019.items() if name not in ("$recursiveRef", "additionalItems")},
    "$dynamicRef": apply.dynamic_ref,
    "prefixItems": apply.prefix_items,
    "items": apply.items,
}

_FORMS_4: Final[dict[str, Any]] = {
    "id": TEXT,
    "$schema": TEXT,
    "$ref": TEXT,
    **dict.fromkeys(("title", "description", "format", "pattern"), TEXT),
    **dict.fromkeys(_SIZES, SIZE),
    **dict.fromkeys(("minimum", "maximum"), NUMBER),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum", "uniqueItems"), BOOLEAN),
    "multipleOf": POSITIVE,
    "type": TYPE,
    "enum": SOME_LIST,
    "required": SOME_NAMES,
    **dict.fromkeys(("properties", "patternProperties", "definitions"), OBJECT_MAP),
    **dict.fromkeys(("additionalProperties", "additionalItems"), SCHEMA),
    "items": OBJECT_OR_OBJECTS,
    "dependencies": OLD_DEPENDENCIES,
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), OBJECT_SCHEMAS),
    "not": OBJECT_SCHEMA,
}
_FORMS_6: Final[dict[str, Any]] = {
    **{name: each for name, each in _FORMS_4.items() if name != "id"},
    "$id": TEXT,
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), NUMBER),
    "required": NAMES,
    "enum": LIST,
    "examples": LIST,
    **dict.fromkeys(("properties", "patternProperties", "definitions"), MAP),
    "items": SCHEMA_OR_SCHEMAS,
    "dependencies": DEPENDENCIES,
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), SCHEMAS),
    **dict.fromkeys(("not", "contains", "propertyNames"), SCHEMA),
}
_FORMS_7: Final[dict[str, Any]] = {
    **_FORMS_6,
    "readOnly": BOOLEAN,
    **dict.fromkeys(("$comment", "contentEncoding", "contentMediaType"), TEXT),
    **dict.fromkeys(("if", "then", "else"), SCHEMA),
}
_FORMS_2019: Final[dict[str, Any]] = {
    **_FORMS_7,
    **dict.fromkeys(("$anchor", "$recursiveRef"), TEXT),
    **dict.fromkeys(("$recursiveAnchor", "deprecated", "writeOnly"), BOOLEAN),
    "$vocabulary": BOOLEANS,
    **dict.fromkeys(("minContains", "maxContains"), SIZE),
    "dependentRequired": NAMES_BY_NAME,
    **dict.fromkeys(("$defs", "dependentSchemas"), MAP),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "contentSchema"), SCHEMA),
}
_FORMS_2020: Final[dict[str, Any]] = {
    **{
        name: each
        for name, each in _FORMS_2019.items()
        if name not in ("$recursiveRef", "$recursiveAnchor", "additionalItems")
    },
    **dict.fromkeys(("$dynamicRef", "$dynamicAnchor"), TEXT),
    "prefixItems": SCHEMAS,
    "items": SCHEMA,
}

DRAFT_4: Final = Draft("4", _FORMS_4, _CHECKS_4, "id", ref_is_alone=True)
DRAFT_6: Final = Draft("6", _FORMS_6, _CHECKS_6, ref_is_alone=True)
DRAFT_7: Final = Draft("7", _FORMS_7, _CHECKS_7, ref_is_alone=True)
DRAFT_2019: Final = Draft("2019-09", _FORMS_2019, _CHECKS_2019)
DRAFT_2020: Final = Draft("2020-12", _FORMS_2020, _CHECKS_2020, contains_evaluates=True)

DRAFTS: Final[Mapping[str, Draft]] = {
    "http://json-schema.org/draft-04/schema": DRAFT_4,
    "http://json-schema.org/draft-06/schema": DRAFT_6,
    "http://json-schema.org/draft-07/schema": DRAFT_7,
    "https://json-schema.org/draft/2019-09/schema": DRAFT_2019,
    "https://json-schema.org/draft/2020-12/schema": DRAFT_2020,
}
"""By the URI of their meta-schema, without the ``#`` that may stand at its end."""


def draft_of(schema: Any, default: Draft) -> Draft:
    """The draft that a schema names, the default where it names none that is known."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    return DRAFTS.get(named.removesuffix("#"), default) if isinstance(named, str) else default
