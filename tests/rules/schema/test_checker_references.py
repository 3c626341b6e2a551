"""Where references lead within a schema, and schemas that are none."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.cost import SchemaInvalid


@pytest.mark.parametrize(
    "reference",
    [
        *(
            "http://127.0.0.1:9/schema",
            "#/nowhere",
            "#anchor",
            "file:///etc/passwd",
            "#/allOf/1",
            "#/allOf/x",
        ),
        *("#/title/x", "#/allOf/-1", "http://[", "#%ff", "other.json"),
    ],
)
def test_what_is_not_there_is_not_fetched(reference: str) -> None:
    """What the schema does not hold itself it does not have."""
    with pytest.raises(SchemaInvalid, match="refers to a part that does not exist"):
        compile_schema({"$ref": reference, "allOf": [{}], "title": "t"})


def test_what_is_referred_to_is_a_schema() -> None:
    """Not any value."""
    with pytest.raises(SchemaInvalid):
        compile_schema({"$ref": "#/title", "title": "t"})
    with pytest.raises(SchemaInvalid):
        compile_schema({"$ref": "#/x-mine", "x-mine": {"type": "none"}})
    assert compile_schema({"$ref": "#/x-mine", "x-mine": {"type": "null"}}).judged(None).faults == []


def test_a_draft_of_json_schema_can_be_referred_to() -> None:
    """By its URI, for tools that take schemas."""
    uri = "https://json-schema.org/draft/2020-12/schema"
    checker = compile_schema({"properties": {"schema": {"$ref": uri}}})
    assert checker.judged({"schema": {"type": "object"}}, steps=None).faults == []
    (fault,) = checker.judged({"schema": {"properties": {"a": {"minLength": -1}}}}, steps=None).faults
    assert fault.pointer == "/schema/properties/a/minLength"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "nosuch"}, 'at type: "nosuch" is not valid under any'),
        (
            {"properties": {"a": {"minLength": -1}}},
            "at properties.a.minLength: -1 is less than the minimum of 0",
        ),
        (
            {"allOf": [{}, {"required": ["a", "a"]}]},
            'at allOf.1.required: ["a", "a"] has non-unique elements',
        ),
        ({"items": 7}, 'at items: 7 is not of types "boolean", "object"'),
        ({"x" * 1000: {"$ref": 1}, "not": {"title": 5}}, 'at not.title: 5 is not of type "string"'),
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
    with pytest.raises(SchemaInvalid):
        compile_schema(schema)


def test_a_checker_says_what_it_is() -> None:
    """For whoever looks at it while something is wrong."""
    checker = compile_schema({"patternProperties": {"c": {}}, "not": {"pattern": "b"}}, strict=True)
    assert repr(checker) == "<Checker of any members>"
    assert repr(compile_schema({"properties": {"a": {}}}, strict=True)) == "<Checker of 1 members>"


@pytest.mark.parametrize("odd", ["\ud800", {"\ud800": 1}, 2**100, 1e999, -1e999, [None, "Infinity", 1e999]])
def test_what_is_odd_json_is_judged_as_what_it_is(odd: Any) -> None:
    """Lone surrogates and numbers of any size are legal."""
    kind = {"str": "string", "dict": "object", "list": "array"}.get(type(odd).__name__, "number")
    assert compile_schema({"type": kind, "title": "\udfff"}).judged(odd).faults == []
    (fault,) = compile_schema({"type": "boolean"}).judged(odd).faults
    assert fault.keyword == "type"
    assert compile_schema({"items": {"not": {"type": "null"}}}).judged([1e999, "\ud800"]).faults == []


def test_of_a_number_beyond_all_floats_nobody_says_that_it_is_small() -> None:
    """What it was is not known, but that it is large."""
    assert compile_schema({"minimum": 10**300}).judged(float("inf")).faults == []


def test_additional_members_are_told_up_to_a_hundred() -> None:
    """As everything else."""
    schema = {"additionalProperties": {"type": "string"}}
    assert len(compile_schema(schema).judged({str(n): n for n in range(200)}).faults) == 100


def test_what_a_pattern_that_is_not_judged_may_speak_of_is_not_unknown() -> None:
    """Of members as of texts: the tool itself decides."""
    schema = {
        "properties": {"a": {"patternProperties": {"(?=x)": {}, "^y": {}}, "additionalProperties": False}}
    }
    checker = compile_schema(schema)
    assert checker.judged({"a": {"x": 1, "z": 1}}).faults == []
    assert list(checker.unjudged) == ["(?=x)"]
    many = compile_schema({"allOf": [{"pattern": "(?!a)"}, {"pattern": "^b"}]})
    assert [fault.message for fault in many.judged("a").faults] == ['"a" does not match "^b"']
