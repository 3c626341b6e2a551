"""Output schemas that are made wider for results that are shortened."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.structured_artifacts import shortenable, widened
from adapter.rules.results.short_json import shortened
from adapter.rules.schema.checker import compile_schema

ITEM = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "text": {"type": "string", "minLength": 1000, "pattern": "^x+$"},
    },
    "required": ["id", "text"],
    "additionalProperties": False,
}
PAGE = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 50, "uniqueItems": True},
        "kind": {"oneOf": [{"const": "page"}, {"type": "string", "minLength": 10}]},
    },
    "required": ["rows", "kind"],
    "$defs": {"item": ITEM},
}


def fits(schema: Any, value: Any) -> bool:
    return not compile_schema(schema).judged(value, steps=None).faults


def test_lists_may_be_shorter_and_texts_cut() -> None:
    """What is required stays so, and of the right type."""
    wide = widened(PAGE)
    assert fits(wide, {"rows": [], "kind": "page"})
    assert fits(wide, {"rows": [{"id": 1, "text": "x…"}], "kind": "page"})
    assert not fits(wide, {"rows": []}) and not fits(
        wide, {"rows": [{"id": "1", "text": "x"}], "kind": "page"}
    )


@given(st.integers(50, 200), st.integers(1000, 1200), st.integers(200, 5000))
def test_value_that_is_shortened_fits(rows: int, text: int, room: int) -> None:
    """The wider schema allows what the tool promised, and whatever is left of it."""
    value = {"rows": [{"id": n, "text": "x" * text} for n in range(rows)], "kind": "page"}
    doc = json.dumps(value).encode()
    assert fits(PAGE, value) and fits(widened(PAGE), value)
    short = shortened(doc, (0, len(doc)), room, "members")
    assert short is not None and fits(widened(PAGE), json.loads(short))


LEAVES = st.sampled_from(
    [
        *({"type": "integer"}, {"type": "string", "minLength": 3}, {"const": "abc"}, {"enum": [1, "abc"]}),
        *(
            {"type": "array", "minItems": 2, "items": {"type": "integer"}},
            {"type": "string", "pattern": "^a"},
            {},
        ),
        *({"contains": {"type": "string"}}, {"uniqueItems": True}),
    ]
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(lambda *each: {"oneOf": list(each)}, inner, inner)
        | st.builds(lambda *each: {"anyOf": list(each)}, inner, inner)
        | st.builds(lambda *each: {"allOf": list(each)}, inner, inner)
        | st.builds(lambda each: {"not": each}, inner)
        | st.builds(lambda *each: dict(zip(("if", "then", "else"), each, strict=True)), inner, inner, inner)
        | st.builds(lambda each: {"properties": {"a": each}, "additionalProperties": False}, inner)
        | st.builds(
            lambda *each: {"oneOf": [each[0]], "anyOf": [each[1]], "allOf": [each[2]]}, inner, inner, inner
        )
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.integers(0, 2) | st.sampled_from(["abc", "a", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner),
    max_leaves=6,
)


@given(SCHEMAS, VALUES)
def test_wider_schema_allows_whatever_the_tool_promised(schema: Any, value: Any) -> None:
    """Also below conditions, where a wider schema would allow less."""
    assert not fits(schema, value) or fits(widened(schema), value)


def test_schema_that_refers_to_one_of_several_stays() -> None:
    """The reference would lead nowhere, and clients could read no result by it."""
    schema = {
        "properties": {
            "a": {"oneOf": [{"type": "string"}, {"type": "null"}]},
            "b": {"$ref": "#/properties/a/oneOf/0"},
        }
    }
    assert shortenable(schema) == schema and "artifacts" in shortenable(PAGE)["properties"]
