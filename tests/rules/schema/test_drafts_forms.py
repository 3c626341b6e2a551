"""Schemas that are none: refused with the place, exactly where the drafts' own meta-schemas refuse them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
from jsonschema.exceptions import SchemaError

from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.documents import SchemaInvalid
from adapter.rules.schema.drafts import DRAFTS

THEIRS: dict[str, Any] = {
    "4": Draft4Validator,
    "6": Draft6Validator,
    "7": Draft7Validator,
    "2019-09": Draft201909Validator,
    "2020-12": Draft202012Validator,
}
KEYWORDS = sorted(
    {keyword for draft in DRAFTS.values() for keyword in draft.forms} - {"$schema", "$ref", "$id", "id"}
)
# What the drafts say of anchors and vocabularies is about text, which is not looked at here.
KEYWORDS = [
    keyword for keyword in KEYWORDS if not keyword.startswith("$") or keyword in ("$defs", "$comment")
]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 1.5, 2.0])
    | st.sampled_from(["string", "integer", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=2, unique_by=repr)
        | st.dictionaries(st.sampled_from([*KEYWORDS, "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.mark.parametrize(("uri", "name"), [(uri, draft.name) for uri, draft in DRAFTS.items()])
def test_what_is_a_schema_is_what_its_draft_says(uri: str, name: str) -> None:
    """Keyword by keyword, for values of every kind."""

    @given(st.dictionaries(st.sampled_from(KEYWORDS), VALUES, min_size=1, max_size=2))
    def judge(members: dict[str, Any]) -> None:
        # Draft 4 wants a maximum beside exclusiveMaximum, and has 2.0 for no whole number: neither is worth a refusal.
        assume(name != "4" or re.search(r"exclusiveM|2\.0", repr(members)) is None)
        schema = {"$schema": uri, **members}
        try:
            THEIRS[name].check_schema(schema, format_checker=None)
            theirs = True
        except SchemaError:
            theirs = False
        try:
            compile_schema(schema)
            ours = True
        except SchemaInvalid:
            ours = False
        assert ours == theirs, schema

    judge()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "nosuch"}, "at type: 'nosuch' is not valid: a type, or different ones, are expected"),
        (
            {"properties": {"a": {"minLength": -1}}},
            "at properties.a.minLength: -1 is not valid: a whole number",
        ),
        (
            {"allOf": [{}, {"required": ["a", "a"]}]},
            "at allOf.1.required: the value is not valid: different names",
        ),
        ({"items": 7}, "at items: 7 is not valid: a schema is an object or a boolean"),
        ({"x" * 1000: {"$ref": 1}, "not": {"title": 5}}, "at not.title: 5 is not valid: a text is expected"),
    ],
)
def test_whoever_wrote_it_reads_where_it_is_wrong(schema: dict[str, Any], said: str) -> None:
    """And what is expected there."""
    with pytest.raises(SchemaInvalid) as refused:
        compile_schema(schema)
    assert str(refused.value).startswith(f"The schema is invalid {said}")


@pytest.mark.parametrize("schema", ["text", None, 7, [], [{}]])
def test_a_schema_is_an_object(schema: Any) -> None:
    """Or a boolean, which no tool has."""
    with pytest.raises(SchemaInvalid, match="at its root"):
        compile_schema(schema)
