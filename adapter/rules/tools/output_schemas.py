"""Output schemas of tools whose results may be shortened: wide enough for what is left of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapter.rules.files.structured_artifacts import allowing, free_members
from adapter.wire.envelope import dump, parse

DEEPEST = 64
"""Levels of a schema that are widened; a value that is shortened below them does not fit."""

# What a shorter list, or a text that was cut, may not meet any more.
_UNMET = frozenset(
    (
        *("minItems", "contains", "minContains", "maxContains", "uniqueItems", "unevaluatedItems"),
        *("minLength", "pattern", "format", "contentEncoding", "contentMediaType", "contentSchema"),
    )
)
_ONE = frozenset(
    (
        *("items", "additionalItems", "additionalProperties", "unevaluatedProperties"),
        *("then", "else"),
    )
)
_SEVERAL = frozenset(("allOf", "anyOf", "prefixItems", "items"))
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))


def shortenable(schema: Mapping[str, Any]) -> Any:
    """A schema that allows what this one does, and whatever is left of it, with the artifact that has the rest."""
    if b"/oneOf/" in dump(schema):
        # What refers into a place that is no longer there would make the schema one that nobody can read.
        return schema
    wide = widened(schema)
    names = free_members(wide)
    return parse(allowing(dump(wide), wide, names)) if names else wide


def widened(schema: Any, depth: int = 0) -> Any:
    """A schema that allows whatever this one does, with lists that end earlier and texts that are cut.

    What stands below ``not`` and ``if`` stays: there a wider schema would allow less.
    """
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return schema
    wide: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _UNMET:
            continue
        if key in _NAMED and isinstance(value, Mapping):
            wide[key] = {name: widened(each, depth + 1) for name, each in value.items()}
        elif key in _SEVERAL and isinstance(value, list):
            wide[key] = [widened(each, depth + 1) for each in value]
        else:
            wide[key] = widened(value, depth + 1) if key in _ONE else value
    branches = wide.pop("oneOf", None)
    if branches is not None:
        # Branches that were told apart by what is dropped may all fit: any of them will do.
        any_of = {
            "anyOf": [widened(each, depth + 1) for each in branches]
            if isinstance(branches, list)
            else branches
        }
        wide["allOf"] = [*wide["allOf"], any_of] if isinstance(wide.get("allOf"), list) else [any_of]
    return wide
