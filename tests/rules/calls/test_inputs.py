"""What a hosted tool takes: its schema, and arguments made into its types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.input_schemas import DeclaredInputs
from adapter.rules.calls.inputs import Input, InputsRefused, InputType, input_schema

TYPES: tuple[InputType, ...] = ("string", "int", "float", "boolean", "datetime")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def one(kind: InputType, value: Any) -> Any:
    """The argument as the only input gets it."""
    return coerced({"x": Input(kind)}, {"x": value})["x"]


def coerced(inputs: dict[str, Input], arguments: dict[str, Any]) -> dict[str, Any]:
    """The values of inputs that nothing but their types is said of."""
    return DeclaredInputs.of(inputs).fitted(arguments)


def refusal(inputs: dict[str, Input], arguments: dict[str, Any]) -> InputsRefused:
    with pytest.raises(InputsRefused) as refused:
        coerced(inputs, arguments)
    return refused.value


# --- the schema -----------------------------------------------------------------------------------------------


def test_h18_types_have_their_words_in_json_schema() -> None:
    """Five types, four words; a datetime is a string with a format."""
    schema = input_schema({kind: Input(kind, optional=True) for kind in TYPES})
    assert schema == {
        "type": "object",
        "properties": {
            "string": {"type": "string"},
            "int": {"type": "integer"},
            "float": {"type": "number"},
            "boolean": {"type": "boolean"},
            "datetime": {"type": "string", "format": "date-time"},
        },
        "additionalProperties": False,
    }


def test_h18_required_is_what_is_neither_optional_nor_has_a_default() -> None:
    """An empty text is a default as any other; null is none."""
    schema = input_schema(
        {
            "id": Input("int"),
            "lang": Input("string", default=""),
            "page": Input("int", optional=True),
            "none": Input("int", default=None),
        }
    )
    assert schema["required"] == ["id", "none"]


def test_h18_what_is_declared_is_told() -> None:
    """Description, enum and default stand in the schema, in the input's own type."""
    schema = input_schema({"n": Input("int", description="How many", default="2", enum=("1", 2.0))})
    assert schema["properties"]["n"] == {
        "type": "integer",
        "description": "How many",
        "enum": [1, 2],
        "default": 2,
    }


# --- coercion -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sent", "value"),
    [
        ("string", "a", "a"),
        ("string", "", ""),
        ("string", 3, "3"),
        ("string", 1.5, "1.5"),
        ("string", True, "true"),
        ("int", 42, 42),
        ("int", "42", 42),
        ("int", "-7", -7),
        ("int", 3.0, 3),
        ("float", "1.5", 1.5),
        ("float", 2, 2.0),
        ("float", "1e3", 1000.0),
        *(("boolean", text, True) for text in ("1", "t", "T", "TRUE", "true", "True")),
        *(("boolean", text, False) for text in ("0", "f", "F", "FALSE", "false", "False")),
        ("boolean", True, True),
        ("datetime", "2024-02-29", "2024-02-29"),
        ("datetime", "2024-01-01 23:59:59", "2024-01-01 23:59:59"),
        ("datetime", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("datetime", "2024-01-01T00:00:00.123456789+05:30", "2024-01-01T00:00:00.123456789+05:30"),
    ],
)
def test_h19_arguments_become_the_declared_type(kind: InputType, sent: Any, value: Any) -> None:
    """What spells a value of the type is one; a datetime keeps its text."""
    assert one(kind, sent) == value
    assert type(one(kind, sent)) is type(value)


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("string", ["a"]),
        ("string", {"$ne": ""}),
        ("string", "\ud800"),
        ("string", float("nan")),
        ("int", 3.9),
        ("int", True),
        ("int", "4.0"),
        ("int", " 4"),
        ("int", "1_000"),
        ("int", "\u0663"),
        ("int", 2**63),
        ("int", 1e300),
        ("int", "9" * 5000),
        ("float", "nan"),
        ("float", float("inf")),
        ("float", 10**400),
        ("float", "1e999"),
        ("float", False),
        ("boolean", 1),
        ("boolean", "yes"),
        ("boolean", "tRUE"),
        ("datetime", "2023-02-29"),
        ("datetime", "1900-02-29"),
        ("datetime", "2024-13-01"),
        ("datetime", "2024-01-01T24:00:00Z"),
        ("datetime", "2024-01-01T00:00:00"),
        ("datetime", "2024-01-01T00:00:00+24:00"),
        ("datetime", "2024-01-01 00:00:00Z"),
        ("datetime", "2024-01-01'; --"),
        ("datetime", "2024-01-01\n"),
        ("datetime", 1704067200),
    ],
)
def test_w5_what_is_not_of_the_type_is_refused(kind: InputType, sent: Any) -> None:
    """Nothing is cut, rounded or guessed."""
    assert str(refusal({"x": Input(kind)}, {"x": sent})).startswith(
        f"input validation failed: validation error for field 'x': type validation failed: expected {kind}"
    )


def test_w5_null_is_absent() -> None:
    """A null argument is missing where one is required, and otherwise leaves the default or nothing."""
    inputs = {"a": Input("int", default=1), "b": Input("int", optional=True)}
    assert coerced(inputs, {"a": None, "b": None}) == {"a": 1}
    assert "is missing" in str(refusal({"x": Input("string")}, {"x": None}))


def test_h20_defaults_stand_in_for_what_is_absent() -> None:
    """A default is coerced as an argument is, an empty one counts, and an optional input without one is left out."""
    inputs = {
        "limit": Input("int", default="10"),
        "q": Input("string", default=""),
        "off": Input("boolean", default=False),
        "page": Input("int", optional=True),
    }
    assert coerced(inputs, {}) == {"limit": 10, "q": "", "off": False}
    assert coerced(inputs, {"page": "2", "q": "x"}) == {"limit": 10, "q": "x", "off": False, "page": 2}


def test_h10_the_sentences_of_a_refusal() -> None:
    """One sentence for each kind of problem."""
    inputs = {"id": Input("int"), "sort": Input("string", enum=("asc", "desc"), optional=True)}
    prefix = "input validation failed: validation error for field "
    assert str(refusal(inputs, {})) == prefix + "'id': required input 'id' is missing"
    assert str(refusal(inputs, {"id": 1, "hack": 2})) == prefix + "'hack': unknown input field 'hack'"
    assert (
        str(refusal(inputs, {"id": "abc"}))
        == prefix + "'id': type validation failed: expected int, got a string that spells none"
    )
    assert (
        str(refusal(inputs, {"id": 1, "sort": "up"}))
        == prefix + '\'sort\': type validation failed: expected one of "asc", "desc"'
    )


def test_h10_all_problems_are_listed_at_once() -> None:
    """Declared fields first, in their order, with what JSON Schema calls their types and what was sent."""
    inputs = {"id": Input("int"), "on": Input("boolean")}
    missing, wrong, unknown = refusal(inputs, {"hack": "x", "on": 2}).faults
    assert f"{missing.field}: {missing.text}" == "id: Required You sent: (missing). Expected type: integer."
    text = "type validation failed: expected boolean, got a number that is none"
    assert f"{wrong.field}: {wrong.text}" == f"on: {text} You sent: 2. Expected type: boolean."
    assert unknown.sentence.endswith("field 'hack': unknown input field 'hack'")


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    """A secret in the wrong field stays out of the sentence."""
    assert "hunter2" not in str(refusal({"n": Input("int")}, {"n": "hunter2"}))


@pytest.mark.parametrize(
    "declared",
    [
        {"type": "int", "default": "many"},
        {"type": "int", "default": 3, "enum": (1, 2)},
        {"type": "datetime", "enum": ("tomorrow",)},
        {"type": "text"},
    ],
)
def test_h20_a_declaration_that_contradicts_itself_is_refused(declared: dict[str, Any]) -> None:
    """At the start, not at the first call that needs the default."""
    with pytest.raises(ValueError, match=r"expected|is not a type"):
        Input(**declared)


@given(st.sampled_from(TYPES), json_values)
def test_h19_coercion_gives_the_type_or_refuses(kind: InputType, sent: object) -> None:
    """Whatever is sent, a value is of the type, and coercing it again changes nothing."""
    try:
        value = one(kind, sent)
    except (InputsRefused, KeyError):
        return
    python = {"string": str, "int": int, "float": float, "boolean": bool, "datetime": str}[kind]
    assert type(value) is python
    assert one(kind, value) == value


@given(st.datetimes())
def test_h19_every_time_of_the_calendar_is_a_datetime(moment: Any) -> None:
    """In each of the forms."""
    day = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    clock = f"{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}"
    for text in (day, f"{day} {clock}", f"{day}T{clock}Z", f"{day}T{clock}.{moment.microsecond:06d}-08:00"):
        assert one("datetime", text) == text
