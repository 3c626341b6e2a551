"""Inputs as a whole: ranges, lengths, patterns, formats, arrays and objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.input_schemas import (
    MOST_VALUES,
    TYPES,
    DeclaredInputs,
    keywords_of,
    too_long,
    too_many,
)
from adapter.rules.calls.inputs import Input, InputsRefused
from adapter.rules.schema.cost import OutOfSteps


def declared(kind: str, /, **said: Any) -> Input:
    """One input, as a configuration declares it."""
    known = {name: said.pop(name) for name in ("optional", "default", "enum") if name in said}
    return Input(TYPES[kind], keywords=keywords_of(TYPES[kind], said), **known)


def inputs(**each: Input) -> DeclaredInputs:
    return DeclaredInputs.of(each)


def refusal(whole: DeclaredInputs, **arguments: Any) -> InputsRefused:
    with pytest.raises(InputsRefused) as refused:
        whole.fitted(arguments)
    return refused.value


def told(whole: DeclaredInputs, **arguments: Any) -> list[str]:
    """What callers read of each fault."""
    return [f"{fault.field}: {fault.text}" for fault in refusal(whole, **arguments).faults]


# --- scalars --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "said", "fits", "not_so"),
    [
        ("int", {"minimum": 0, "maximum": 150}, ["0", 150], [-1, "151"]),
        ("integer", {"multipleOf": 5}, [10], [11]),
        ("number", {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, ["0.5"], [0, 1]),
        ("string", {"minLength": 2, "maxLength": 3}, ["ab", 123], ["a", "abcd"]),
        ("string", {"pattern": "^[a-z]+$"}, ["abc"], ["ab1", ""]),
        ("string", {"format": "email"}, ["a@b.org"], ["a at b"]),
    ],
)
def test_v5_a_scalar_is_coerced_and_then_checked(
    kind: str, said: dict[str, Any], fits: list[Any], not_so: list[Any]
) -> None:
    """As its type reads it: a text that spells a number counts as that number."""
    whole = inputs(x=declared(kind, **said))
    for value in fits:
        assert whole.fitted({"x": value})
    for value in not_so:
        assert told(whole, x=value)[0].startswith("x: ")


def test_v5_all_that_is_wrong_is_told_at_once() -> None:
    """Missing, of another type, out of range, not in its format and unknown, each in its own words."""
    whole = inputs(
        id=declared("int"),
        n=declared("int", minimum=0),
        age=declared("int", minimum=0, maximum=150),
        email=declared("string", format="email"),
    )
    refused = refusal(whole, n="x", age="151", email="ann", hack=1)
    missing, wrong, *checked, unknown = refused.faults
    assert [fault.sentence.partition("for field ")[2] for fault in (missing, wrong, unknown)] == [
        "'id': required input 'id' is missing",
        "'n': type validation failed: expected int, got a string that spells none",
        "'hack': unknown input field 'hack'",
    ]
    assert [f"{fault.field}: {fault.text}" for fault in checked] == [
        "age: 151 is greater than the maximum of 150 You sent: 151.",
        "email: Invalid email You sent: 'ann'. Expected format: email.",
    ]
    assert str(refused).endswith("field 'id': required input 'id' is missing")


def test_h10_the_sentence_of_a_fault_is_like_the_others() -> None:
    """Where nothing else is wrong."""
    whole = inputs(age=declared("int", maximum=150), email=declared("string", format="email"))
    begin = "input validation failed: validation error for field"
    assert (
        str(refusal(whole, age=151, email="a@b"))
        == f"{begin} 'age': type validation failed: 151 is greater than the maximum of 150"
    )
    assert str(refusal(whole, age=1, email="x")) == f"{begin} 'email': type validation failed: Invalid email"


def test_h18_what_is_declared_is_told_to_clients() -> None:
    """In JSON Schema's words, whichever were used."""
    address = {"street": {"type": "string"}, "floor": {"type": "int"}, "since": {"type": "datetime"}}
    whole = inputs(
        tags=declared("array", items={"type": "string"}, maxItems=5),
        age=declared("int", minimum=0),
        address=declared("object", properties=address, required=["street"], optional=True),
        other=declared("any", optional=True),
    )
    assert whole.schema == {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
            "age": {"type": "integer", "minimum": 0},
            "address": {
                "type": "object",
                "properties": {
                    "street": {"type": "string"},
                    "floor": {"type": "integer"},
                    "since": {"type": "string", "format": "date-time"},
                },
                "required": ["street"],
                "additionalProperties": False,
            },
            "other": {},
        },
        "required": ["tags", "age"],
        "additionalProperties": False,
    }


# --- arrays and objects ---------------------------------------------------------------------------------------

LINES = inputs(
    tags=declared(
        "array", items={"type": "string", "minLength": 1}, maxItems=3, uniqueItems=True, default=["a"]
    ),
    order=declared(
        "object",
        properties={"id": {"type": "int"}, "mail": {"type": "string", "format": "email"}},
        required=["id"],
        optional=True,
    ),
    anything=declared("any", optional=True),
)


def test_v5_arrays_and_objects_come_as_they_are() -> None:
    """Nothing within them is coerced, and a default is everybody's own."""
    sent = {"tags": ["x", "y"], "order": {"id": 7, "mail": "a@b"}, "anything": {"$gt": [1, None]}}
    assert LINES.fitted(sent) == sent
    first, second = LINES.fitted({}), LINES.fitted({})
    first["tags"].append("changed")
    assert second == {"tags": ["a"]}


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"tags": "a"}, "tags: Expected array, received string You sent: 'a'. Expected type: array."),
        ({"tags": ["a", 1]}, "tags.1: Expected string, received number You sent: 1. Expected type: string."),
        ({"tags": ["a", ""]}, 'tags.1: "" is shorter than'),
        ({"tags": ["a", "a"]}, 'tags: ["a", "a"] has non-unique elements'),
        ({"tags": ["a", "b", "c", "d"]}, 'tags: ["a", "b", "c", "d"] has more than 3 items'),
        ({"order": {}}, "order.id: Required You sent: (missing). Expected type: integer."),
        ({"order": {"id": "7"}}, "order.id: Expected integer, received string"),
        ({"order": {"id": 1, "mail": "x"}}, "order.mail: Invalid email You sent: 'x'."),
        ({"order": {"id": 1, "hack": 2}}, "order: Unrecognized key(s) in object: 'hack'"),
    ],
)
def test_v5_what_is_within_is_told_by_its_place(sent: dict[str, Any], said: str) -> None:
    """In the words that the arguments of upstreams' tools are refused with."""
    assert told(LINES, **sent)[0].startswith(said)


@pytest.mark.parametrize("value", [["\ud800"], [2**64], {"a": {"b": "\udfff"}}])
def test_v5_what_no_database_can_hold_is_refused(value: Any) -> None:
    """Halves of characters and endless numbers, at whatever depth."""
    (fault,) = refusal(LINES, anything=value).faults
    assert fault.sentence.endswith("expected valid Unicode and numbers of at most 64 bits")


def test_v5_much_is_counted_before_it_is_checked() -> None:
    """Up to a bound above which nothing is looked at, however it is nested; where types say all, nothing counts."""
    assert LINES.weight({"tags": ["a", "b"], "anything": {"a": [1]}}) == 6
    assert LINES.weight({"tags": ["a"] * 10**6}) == MOST_VALUES + 1
    nested: Any = "x"
    for _ in range(500):
        nested = [nested]
    assert LINES.weight({"anything": nested}) == 501
    assert inputs(x=declared("string")).weight({"x": "y"}) == 0
    assert f"more than {MOST_VALUES} values" in str(too_many())


def test_v5_a_missing_member_is_told_once() -> None:
    """By its type; that JSON Schema misses it too is no second fault."""
    refused = refusal(inputs(n=declared("int", minimum=1)))
    assert [(fault.keyword, fault.path) for fault in refused.faults] == [("required", ("n",))]


# --- what cannot be meant -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "said", "why"),
    [
        ("string", {"minimum": 1}, "minimum does not apply to the type string; this type may have minLength"),
        (
            "boolean",
            {"pattern": "x"},
            "pattern does not apply to the type boolean; this type may have nothing",
        ),
        ("string", {"format": "e-mail"}, "format must be one of date, .* the nearest is email"),
        ("string", {"pattern": "(a"}, r"pattern '\(a' is not a valid regular expression: "),
        ("string", {"pattern": "(?=a)b"}, r"pattern '\(\?=a\)b' is not a valid regular expression: "),
        ("array", {"items": {"pattern": r"(a)\1"}}, "items: pattern .* is not a valid regular expression"),
        (
            "array",
            {"items": {"type": "array", "items": {"format": "x"}}},
            "items.items: format must be one of",
        ),
        ("array", {"items": "string"}, "items: must be a schema, such as"),
        ("object", {"properties": {"a": {"optional": True}}}, "a: may not have optional: list the required"),
        ("object", {"properties": ["a"]}, "properties must be a mapping"),
    ],
)
def test_h14_what_says_nothing_is_refused(kind: str, said: dict[str, Any], why: str) -> None:
    """With what could be meant, at its place."""
    with pytest.raises(ValueError, match=why):
        declared(kind, **said)


@pytest.mark.parametrize(
    ("each", "why"),
    [
        ({"x": declared("array", items={"type": "strnig"})}, "The schema is invalid at"),
        (
            {"x": declared("array", items={"not": {"pattern": "(?!a)"}})},
            "is not a valid regular expression",
        ),
        (
            {"x": declared("array", items={"allOf": [{"required": [str(n)]} for n in range(200_000)]})},
            "too many parts for a schema",
        ),
        ({"x": declared("array", items={"type": "string"}, default=[1])}, "the default of x does not fit"),
        ({"x": declared("int", maximum=5, default=6)}, "the default of x does not fit: 6 is greater"),
        (
            {"x": declared("string", format="email", default="x")},
            "the default of x does not fit: Invalid email",
        ),
    ],
)
def test_h20_inputs_that_contradict_themselves_are_refused(each: dict[str, Input], why: str) -> None:
    """A schema that is none, and a default that its own schema refuses."""
    with pytest.raises(ValueError, match=why):
        DeclaredInputs.of(each)


def test_v5_a_pattern_is_one_of_ecma_262() -> None:
    """Escapes that Python does not know are no mistake."""
    words = inputs(word=declared("string", pattern=r"^\p{L}+$"))
    assert words.fitted({"word": "Köln"}) == {"word": "Köln"}
    assert refusal(words, word="K1").faults[0].keyword == "pattern"


def test_v5_a_check_may_take_so_many_steps() -> None:
    """Whoever asks gives them, and begins anew elsewhere when they do not suffice."""
    with pytest.raises(OutOfSteps):
        LINES.fitted({"tags": ["a"] * 5, "anything": [1] * 500}, steps=10)
    assert "needs more than 10 steps" in str(too_long(10))


def test_v5_nesting_has_an_end() -> None:
    """Of what a configuration declares."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(40):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ValueError, match="nested deeper than 32 levels"):
        declared("array", items=schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["tags", "order", "anything", "hack"]), JSON))
def test_v5_any_arguments_fit_or_are_refused(arguments: dict[str, Any]) -> None:
    """In sentences, whatever they are."""
    try:
        values = LINES.fitted(arguments)
    except InputsRefused as refused:
        assert str(refused) and refused.faults
    else:
        assert set(values) <= set(LINES.each)
