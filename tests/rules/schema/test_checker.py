"""Arguments against JSON Schemas: what is told of each mistake, and that no schema makes the checking endless."""

from __future__ import annotations

import copy
import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from adapter.rules.results import refusals
from adapter.rules.schema.checker import DRAFTS, MOST_FAULTS, compile_schema
from adapter.rules.schema.cost import OutOfSteps, SchemaInvalid

USER = {
    "type": "object",
    "properties": {
        "email": {"type": "string"},
        "age": {"type": "integer", "minimum": 18},
        "role": {"enum": ["admin", "guest"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "home": {
            "type": "object",
            "properties": {"city": {"type": ["string", "null"]}},
            "required": ["city"],
        },
    },
    "required": ["email"],
    "additionalProperties": False,
}


def errors(schema: dict[str, Any], arguments: Any, **more: bool) -> list[dict[str, str]]:
    return [fault.error for fault in compile_schema(schema, **more).judged(arguments).faults]


def texts(schema: dict[str, Any], arguments: Any, **more: bool) -> list[tuple[str, str]]:
    return [(fault.field, fault.text) for fault in compile_schema(schema, **more).judged(arguments).faults]


def sentence(schema: dict[str, Any], arguments: Any, **more: bool) -> str:
    return compile_schema(schema, **more).judged(arguments).faults[0].sentence


# --- for models ---------------------------------------------------------------------------------------------------


def test_v5_all_issues_are_told_at_once_with_their_paths() -> None:
    """One call is enough to learn everything that is wrong."""
    arguments = {"email": 1, "age": 3, "role": "king", "tags": ["a", 2], "home": {}, "x": 1, "y": 2}
    assert texts(USER, arguments) == [
        ("email", "Expected string, received number You sent: 1. Expected type: string."),
        ("age", "3 is less than the minimum of 18 You sent: 3."),
        ("role", "Invalid option You sent: 'king'. Valid options: 'admin', 'guest'."),
        ("tags.1", "Expected string, received number You sent: 2. Expected type: string."),
        ("home.city", "Required You sent: (missing). Expected type: string or null."),
        (
            "(root)",
            "Unrecognized key(s) in object: 'x', 'y' You sent: (missing). "
            "Remove or correct unrecognized fields: 'x', 'y'. Check for typos.",
        ),
    ]


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_alternatives_that_are_types_are_told_as_types(word: str) -> None:
    """As generators of schemas write what is optional."""
    schema = {"properties": {"n": {word: [{"type": "integer"}, {"type": "null"}]}}}
    expected = "Expected integer or null, received string"
    assert texts(schema, {"n": "x"})[0][1].startswith(expected)


def test_a_constant_is_an_option_of_one() -> None:
    """A schema's ``const``."""
    assert texts({"properties": {"v": {"const": 2}}}, {"v": 1}) == [
        ("v", "Invalid option You sent: 1. Valid options: 2.")
    ]


def test_a_long_value_does_not_drown_the_message() -> None:
    """Neither in what models read nor in what programs do."""
    (fault,) = compile_schema({"properties": {"a": {"maxLength": 3}}}).judged({"a": "x" * 5000}).faults
    assert fault.message == "The value is longer than 3 characters"
    assert len(fault.text) < 120


def test_h10_the_sentence_tells_of_the_first_fault() -> None:
    """In the words that tools with declared inputs use."""
    start = "input validation failed: validation error for field"
    assert sentence(USER, {}) == f"{start} 'email': required input 'email' is missing"
    assert sentence(USER, {"email": "a", "x": 1}) == f"{start} 'x': unknown input field 'x'"
    assert sentence(USER, {"email": 1}) == (
        f"{start} 'email': type validation failed: Expected string, received number"
    )


# --- for programs -------------------------------------------------------------------------------------------------


def test_errors_have_a_pointer_a_message_and_a_keyword() -> None:
    """E15: what is missing is pointed at itself, not at what it is missing in."""
    assert errors({"required": ["a"]}, {}) == [
        {"path": "/a", "message": '"a" is a required property', "keyword": "required"}
    ]
    assert errors(USER, {"email": "x", "tags": [1], "q": 1}) == [
        {"path": "/tags/0", "message": '1 is not of type "string"', "keyword": "type"},
        {
            "path": "",
            "message": "Additional properties are not allowed ('q' was unexpected)",
            "keyword": "additionalProperties",
        },
    ]


def test_a_pointer_escapes_what_means_something_in_it() -> None:
    """RFC 6901."""
    assert errors({"required": ["a/b~c"]}, {})[0]["path"] == "/a~1b~0c"


def test_what_is_no_object_may_be_checked_too() -> None:
    """The HTTP API is asked about anything."""
    assert errors(USER, [])[0]["keyword"] == "type"
    assert errors({}, []) == []


def test_each_missing_member_is_named() -> None:
    """Also two of one object, and one whose name has quotes."""
    schema = {"required": ["a", "it's", 'say "x"']}
    assert [error["path"] for error in errors(schema, {})] == ["/a", "/it's", '/say "x"']


# --- strict -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object"}, {"properties": {"a": {}}, "title": "T", "x-order": 1}]
)
def test_v5_strict_refuses_what_is_not_declared(schema: dict[str, Any]) -> None:
    """A tool that declares no parameters at all takes none."""
    assert compile_schema(schema).judged({"q": 1}).faults == []
    (fault,) = compile_schema(schema, strict=True).judged({"q": 1}).faults
    assert fault == refusals.unrecognized((), ["q"])
    assert errors(schema, {"q": 1}, strict=True) == [
        {
            "path": "",
            "message": "Additional properties are not allowed ('q' was unexpected)",
            "keyword": "additionalProperties",
        }
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"additionalProperties": True},
        {"additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^q": {}}},
        {"allOf": [{"properties": {"q": {}}}]},
        {"$ref": "#/$defs/q", "$defs": {"q": {"properties": {"q": {}}}}},
        {"propertyNames": {"maxLength": 3}},
        {"required": ["q"]},
    ],
)
def test_strict_allows_what_the_schema_may_allow(more: dict[str, Any]) -> None:
    """It goes no further than what is certain."""
    assert compile_schema({"properties": {"a": {}}, **more}, strict=True).judged({"q": 1}).faults == []


def test_strict_is_about_the_arguments_themselves_only() -> None:
    """Objects within them are the schema's own affair, also where it refers to itself."""
    schema = {"properties": {"a": {"$ref": "#"}}}
    assert compile_schema(schema, strict=True).judged({"a": {"q": 1}}).faults == []


def test_strict_does_not_make_empty_what_asks_for_members() -> None:
    """An object with at least one member of any name can be satisfied."""
    assert compile_schema({"minProperties": 1}, strict=True).judged({"q": 1}).faults == []
    assert (
        compile_schema({"minProperties": 1, "properties": {"a": {}}}, strict=True).judged({"q": 1}).faults
        != []
    )


# --- schemas of strangers -----------------------------------------------------------------------------------------


def test_an_unknown_draft_is_the_newest() -> None:
    """Without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_schema({"$schema": "https://example.org/mine"}).judged({}).faults == []


def test_arguments_nested_too_deeply_are_refused() -> None:
    """They are no error of the adapter, and neither is a schema that refers to itself."""
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(OutOfSteps):
        compile_schema({"properties": {"a": {"$ref": "#"}}}).judged(deep)
    assert compile_schema({"$ref": "#"}).judged({}, steps=None).faults == []


def test_no_more_faults_are_told_than_help() -> None:
    """A thousand wrong items are told as a hundred."""
    schema = {"properties": {"a": {"items": {"type": "string"}}}}
    assert len(compile_schema(schema).judged({"a": list(range(1000))}).faults) == MOST_FAULTS


# --- properties ---------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text("ab/~", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
LEAVES = st.sampled_from(
    [
        True,
        False,
        {},
        {"type": "string"},
        {"type": ["integer", "null"]},
        {"enum": ["a", 1]},
        {"const": None},
        {"minimum": 1},
        {"pattern": "^a"},
        {"maxLength": 1},
        {"uniqueItems": True},
        {"multipleOf": 0.1},
    ]
)
NAMES = st.text("ab/~", max_size=2)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "."]), inner, max_size=2),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "unevaluatedProperties": inner,
        },
    ),
    max_leaves=8,
)


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), VALUES)
def test_what_is_at_fault_is_what_the_standard_says(schema: Any, value: Any) -> None:
    """Neither the bounds nor the wording change what fits, and nothing that is looked at is changed."""
    schema_before, value_before = copy.deepcopy(schema), copy.deepcopy(value)
    faults = compile_schema(schema).judged(value).faults
    assert (faults == []) == Draft202012Validator(schema).is_valid(value)
    assert all(fault.text and fault.message and fault.keyword for fault in faults)
    assert (schema, value) == (schema_before, value_before)


# The library leaves empty names out of its paths, so there are none here.
NAMED_VALUES = st.dictionaries(NAMES, VALUES, max_size=3).filter(lambda value: '""' not in json.dumps(value))


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), NAMED_VALUES)
def test_every_pointer_leads_to_what_is_at_fault(schema: Any, value: dict[str, Any]) -> None:
    """Of what is missing to the object in which it is missing."""
    for fault in compile_schema(schema, strict=True).judged(value).faults:
        found: Any = value
        for part in fault.path[:-1] if fault.keyword == "required" else fault.path:
            found = found[part]
        assert fault.keyword != "required" or fault.path[-1] not in found


# --- where references lead within a schema, and schemas that are none --------------------------------------------


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
    assert fault.error["path"] == "/schema/properties/a/minLength"


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


@pytest.mark.parametrize("schema", ["text", None, 7, [], [{}], {"$schema": 7}])
def test_a_schema_is_an_object(schema: Any) -> None:
    """Or a boolean, which no tool has."""
    with pytest.raises(SchemaInvalid):
        compile_schema(schema)


@pytest.mark.parametrize("odd", ["\ud800", {"\ud800": 1}, 2**100, 1e999, -1e999, [None, "Infinity", 1e999]])
def test_what_is_odd_json_is_judged_as_what_it_is(odd: Any) -> None:
    """Lone surrogates and numbers of any size are legal."""
    kind = {"str": "string", "dict": "object", "list": "array"}.get(type(odd).__name__, "number")
    assert compile_schema({"type": kind, "title": "\udfff"}).judged(odd).faults == []
    (fault,) = compile_schema({"type": "boolean"}).judged(odd).faults
    assert fault.keyword == "type"
    assert compile_schema({"items": {"not": {"type": "null"}}}).judged([1e999, "\ud800"]).faults == []


def test_a_number_beyond_all_floats_is_no_null_behind_many_values() -> None:
    """Hosts hand on values that no reader of JSON has counted."""
    checker = compile_schema({"items": {"items": {"type": "number"}}})
    assert checker.judged([[1.0] * 50_100, [float("inf")]], steps=None).faults == []


def test_of_a_number_beyond_all_floats_nobody_says_that_it_is_small() -> None:
    """What it was is not known, but that it is large."""
    assert compile_schema({"minimum": 10**300}).judged(float("inf")).faults == []


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


@pytest.mark.parametrize(
    ("schema", "pattern", "value"),
    [
        ({"properties": {"0": {"pattern": "(?=a)b"}}}, "(?=a)b", {"0": "c"}),
        ({"properties": {"1": {}, "+01": {"pattern": "(?=a)b"}}}, "(?=a)b", {"+01": "c"}),
        ({"properties": {"1": {"not": {}}, "01": {"not": {"pattern": "(?=a)b"}}}}, "(?=a)b", {}),
        ({"allOf": [{"patternProperties": {"01": {"pattern": "(?=a)b"}}}]}, "(?=a)b", {"01": "c"}),
        ({"patternProperties": {"+1": {"type": "null"}}}, "+1", {"1": "c"}),
    ],
)
def test_a_pattern_is_found_below_names_that_read_as_numbers(
    schema: dict[str, Any], pattern: str, value: dict[str, Any]
) -> None:
    """The library tells the number."""
    for draft in DRAFTS:
        checker = compile_schema({"$schema": draft, **schema})
        assert list(checker.unjudged) == [pattern]
        assert checker.judged(value).faults == []
