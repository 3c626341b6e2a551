"""The drafts of JSON Schema from 4 to 2020-12: their keywords, the forms of these, and what they check. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from adapter.rules.schema import applicators as apply
from adapter.rules.schema import assertions as check
from adapter.rules.schema import forms as form
from adapter.rules.schema.assertions import Check
from adapter.rules.schema.forms import Forms


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """One draft. ``name_keyword`` gives a schema its URI; where ``ref_is_alone``, what stands beside a ``$ref`` is
    nothing.
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
    "id": form.TEXT,
    "$schema": form.TEXT,
    "$ref": form.TEXT,
    **dict.fromkeys(("title", "description", "format", "pattern"), form.TEXT),
    **dict.fromkeys(_SIZES, form.SIZE),
    **dict.fromkeys(("minimum", "maximum"), form.NUMBER),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum", "uniqueItems"), form.BOOLEAN),
    "multipleOf": form.POSITIVE,
    "type": form.TYPE,
    "enum": form.SOME_LIST,
    "required": form.SOME_NAMES,
    **dict.fromkeys(("properties", "patternProperties", "definitions"), form.OBJECT_MAP),
    **dict.fromkeys(("additionalProperties", "additionalItems"), form.SCHEMA),
    "items": form.OBJECT_OR_OBJECTS,
    "dependencies": form.OLD_DEPENDENCIES,
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), form.OBJECT_SCHEMAS),
    "not": form.OBJECT_SCHEMA,
}
_FORMS_6: Final[dict[str, Any]] = {
    **{name: each for name, each in _FORMS_4.items() if name != "id"},
    "$id": form.TEXT,
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), form.NUMBER),
    "required": form.NAMES,
    "enum": form.LIST,
    "examples": form.LIST,
    **dict.fromkeys(("properties", "patternProperties", "definitions"), form.MAP),
    "items": form.SCHEMA_OR_SCHEMAS,
    "dependencies": form.DEPENDENCIES,
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), form.SCHEMAS),
    **dict.fromkeys(("not", "contains", "propertyNames"), form.SCHEMA),
}
_FORMS_7: Final[dict[str, Any]] = {
    **_FORMS_6,
    "readOnly": form.BOOLEAN,
    **dict.fromkeys(("$comment", "contentEncoding", "contentMediaType"), form.TEXT),
    **dict.fromkeys(("if", "then", "else"), form.SCHEMA),
}
_FORMS_2019: Final[dict[str, Any]] = {
    **_FORMS_7,
    **dict.fromkeys(("$anchor", "$recursiveRef"), form.TEXT),
    **dict.fromkeys(("$recursiveAnchor", "deprecated", "writeOnly"), form.BOOLEAN),
    "$vocabulary": form.BOOLEANS,
    **dict.fromkeys(("minContains", "maxContains"), form.SIZE),
    "dependentRequired": form.NAMES_BY_NAME,
    **dict.fromkeys(("$defs", "dependentSchemas"), form.MAP),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "contentSchema"), form.SCHEMA),
}
_FORMS_2020: Final[dict[str, Any]] = {
    **{
        name: each
        for name, each in _FORMS_2019.items()
        if name not in ("$recursiveRef", "$recursiveAnchor", "additionalItems")
    },
    **dict.fromkeys(("$dynamicRef", "$dynamicAnchor"), form.TEXT),
    "prefixItems": form.SCHEMAS,
    "items": form.SCHEMA,
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
