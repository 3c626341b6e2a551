"""Where references lead within a schema, and what of it is remembered."""

from __future__ import annotations

from typing import Any

import pytest

from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.documents import SchemaDocument, SchemaInvalid
from adapter.rules.schema.drafts import DRAFT_7
from adapter.rules.schema.evaluation import OutOfSteps


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
        compile_schema({"$ref": reference, "allOf": [{}], "title": "t"}).faults({})


def test_what_is_referred_to_is_a_schema() -> None:
    """Not any value, and what was looked at by nobody else is looked at then."""
    with pytest.raises(SchemaInvalid, match="is not a schema: #/title"):
        compile_schema({"$ref": "#/title", "title": "t"}).faults({})
    with pytest.raises(SchemaInvalid, match=r"is invalid at #/x-mine\.type"):
        compile_schema({"$ref": "#/x-mine", "x-mine": {"type": "none"}}).faults({})
    assert compile_schema({"$ref": "#/x-mine", "x-mine": {"type": "null"}}).faults(None) == []


def test_a_draft_of_json_schema_can_be_referred_to() -> None:
    """By its URI, with its own meaning, for tools that take schemas."""
    for uri in ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"):
        checker = compile_schema({"properties": {"schema": {"$ref": uri}}})
        assert checker.faults({"schema": {"type": "object"}}) == []
        (fault,) = checker.faults({"schema": {"properties": {"a": {"minLength": -1}}}})
        assert fault.pointer == "/schema/properties/a/minLength"


def test_a_document_says_what_it_is() -> None:
    """For whoever looks at it while something is wrong."""
    schema = {"$id": "http://example.org/a", "not": {}, "pattern": "b", "allOf": [{"pattern": "c"}]}
    document = SchemaDocument(schema, 100)
    assert repr(document) == "<SchemaDocument: 3 parts>"
    assert repr(document.root.resource) == "<SchemaResource 'http://example.org/a'>"
    assert repr(DRAFT_7) == "<Draft 7>"
    checker = compile_schema({"patternProperties": {"c": {}}, "not": {"pattern": "b"}}, strict=True)
    assert (repr(checker), checker.patterns) == ("<Checker of any members>", ("c", "b"))
    assert repr(compile_schema({"properties": {"a": {}}}, strict=True)) == "<Checker of 1 members>"


def test_all_steps_are_counted() -> None:
    """What was taken is told, and more than was given is taken by nobody."""
    checker = compile_schema({"items": {"type": "string"}}, strict=True)
    taken = checker.judged(["a"] * 10).steps
    assert taken > 20
    with pytest.raises(OutOfSteps):
        checker.judged(["a"] * 10, steps=taken - 1)
    assert checker.judged(["a"] * 10, steps=taken).steps == taken
    many: Any = {str(n): n for n in range(1000)}
    with pytest.raises(OutOfSteps):
        compile_schema({}, strict=True).judged(many, steps=100)


def test_a_value_that_takes_more_than_any_has_that_for_its_fault() -> None:
    """Where nobody asked for fewer steps."""
    doubling: dict[str, Any] = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)}
    (fault,) = compile_schema({"$ref": "#/$defs/0", "$defs": {**doubling, "40": {}}}).faults({})
    assert fault.message == "Checking the arguments needs more than 2000000 steps."


def test_a_pattern_that_takes_long_to_compile_is_not_compiled_for_everybody() -> None:
    """It is a step too many where large patterns are not wanted."""
    checker = compile_schema({"pattern": r"^\p{L}{1,40}$"})
    assert checker.judged("é").faults == []
    with pytest.raises(OutOfSteps):
        checker.judged("é", large=False)


def test_a_pattern_that_nobody_judges_is_named_once() -> None:
    """With the reason, however often it was met."""
    judgement = compile_schema({"items": {"pattern": "(?=a)"}}).judged(["a", "b", "c"])
    assert (judgement.faults, judgement.unjudged) == ([], {"(?=a)": "look-around"})


def test_of_a_number_beyond_all_floats_nobody_says_that_it_is_no_multiple() -> None:
    """What it was is not known any more."""
    assert compile_schema({"multipleOf": 7}).faults(float("inf")) == []


def test_additional_members_are_told_up_to_a_hundred() -> None:
    """As everything else."""
    schema = {"additionalProperties": {"type": "string"}}
    assert len(compile_schema(schema).faults({str(n): n for n in range(200)})) == 100
