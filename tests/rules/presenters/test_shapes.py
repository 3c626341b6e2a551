"""Declared shapes: what is not declared is gone, what does not fit is refused without a word of its value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.redacted_values import Censored
from adapter.rules.presenters.shapes import ShapeInvalid, ShapeRefused, StepsLeft, json_shape, shape_of

USER = {
    "id": "int",
    "name": "string",
    "score": "float?",
    "active": "bool?",
    "tags?": "list[string]",
    "client": {"id": "int"},
    "lines": [{"n": "int?"}],
    "extra": "any?",
}
GOOD = {"id": 1, "name": "A", "client": {"id": 2, "x": 3}, "lines": [{"n": 1, "y": 2}, {}], "hack": True}


def test_v10_what_is_not_declared_is_taken_out() -> None:
    """At every level; what is optional may be absent or null."""
    assert shape_of(USER).parsed(GOOD | {"score": None}) == {
        "id": 1,
        "name": "A",
        "score": None,
        "client": {"id": 2},
        "lines": [{"n": 1}, {}],
    }


def test_v9_each_item_of_a_list_is_parsed() -> None:
    """A list is a list of what is declared."""
    assert shape_of({"id": "int"}).parsed([{"id": 1, "x": 2}, {"id": 3}]) == [{"id": 1}, {"id": 3}]


def test_v10_all_that_is_wrong_is_said_at_once() -> None:
    """One bullet for each field, with types and no values."""
    wrong = {"id": "secret", "name": 5, "score": True, "client": [], "lines": [{"n": 1.5}, None], "tags": [1]}
    with pytest.raises(ShapeRefused) as refused:
        shape_of(USER).parsed(wrong)
    assert list(refused.value.bullets()) == [
        '  - "id": Expected integer, received string',
        '  - "name": Expected string, received number',
        '  - "score": Expected number, received boolean',
        '  - "tags.0": Expected string, received number',
        '  - "client": Expected object, received array',
        '  - "lines.0.n": Expected integer, received number',
        '  - "lines.1": Expected object, received null',
    ]
    with pytest.raises(ShapeRefused, match='"id": Required'):
        shape_of({"id": "int"}).parsed({})


@pytest.mark.parametrize("data", ["text", 5, None, [1], [[]]])
def test_v10_data_of_another_kind_is_refused(data: Any) -> None:
    """Nothing slips through for not being an object."""
    with pytest.raises(ShapeRefused, match="Expected object"):
        shape_of({"a": "any?"}).parsed(data)


def test_numbers_without_a_fraction_are_integers() -> None:
    """3.0 is one, 3.9 and true are none."""
    parsed = shape_of({"n": "int"}).parsed
    assert parsed({"n": 3.0}) == {"n": 3}
    for wrong in (3.9, True, "3"):
        with pytest.raises(ShapeRefused):
            parsed({"n": wrong})


def test_nested_lists_have_their_own_types() -> None:
    """list[list[int]] with spaces and options."""
    parsed = shape_of({"grid": "list[ list[int?] ]"}).parsed
    assert parsed({"grid": [[1, None], []]}) == {"grid": [[1, None], []]}


@pytest.mark.parametrize("declared", ["text", "list[]", "list[x]", 5, None, [], ["int", "int"], "int??", ""])
def test_a_schema_that_declares_nothing_is_refused(declared: Any) -> None:
    """A typing mistake is found at start."""
    with pytest.raises(ShapeInvalid):
        shape_of({"a": declared})


def test_what_is_censored_passes_as_any_type() -> None:
    """It was one before it was withheld."""
    parsed = shape_of({"id": "int", "c": {"x": "int"}, "l": "list[int]"}).parsed
    data = {"id": Censored("#"), "c": Censored("#"), "l": Censored("#")}
    assert parsed(data) == data


def known(value: Any, _: StepsLeft) -> Iterator[tuple[list[str | int], str]]:
    if not isinstance(value, dict) or not isinstance(value.get("id"), int):
        yield ["id"], "type"


def test_v10_json_schema_strips_what_no_part_of_it_names() -> None:
    """References, alternatives and items count; an open object stays open."""
    schema = {
        "properties": {"id": {"type": "integer"}, "c": {"$ref": "#/$defs/c"}, "open": {"type": "object"}},
        "anyOf": [{"properties": {"n": {}}}],
        "$defs": {
            "c": {"properties": {"l": {"items": {"properties": {"x": {}}}}, "self": {"$ref": "#/$defs/c"}}}
        },
    }
    shape = json_shape(schema, known)
    assert shape.keys == ("id", "c", "open", "n")
    data = {
        "id": 1,
        "n": 2,
        "hack": 3,
        "open": {"any": 1},
        "c": {"l": [{"x": 1, "y": 2}], "z": 0, "self": {"z": 1}},
    }
    assert shape.parsed(data) == {"id": 1, "n": 2, "open": {"any": 1}, "c": {"l": [{"x": 1}], "self": {}}}
    assert json_shape({"properties": {"id": {}}, "additionalProperties": {}}, known).parsed(
        {"id": 1, "x": 2}
    ) == {"id": 1, "x": 2}


def test_v10_json_schema_refusals_name_place_and_keyword() -> None:
    """Never the value, which a validator's own sentence would quote."""
    with pytest.raises(ShapeRefused) as refused:
        json_shape({}, known).parsed([{"id": "hunter2"}])
    assert str(refused.value) == '"0.id": Does not satisfy type'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*USER, "z"]), inner),
    max_leaves=20,
)


@given(JSON)
def test_v10_whatever_comes_only_what_is_declared_leaves(data: Any) -> None:
    """Data is parsed or refused; what is parsed has no other keys."""
    try:
        parsed = shape_of({"id": "any?", "client?": {"id": "any?"}}).parsed(data)
    except ShapeRefused:
        return
    for item in parsed if isinstance(parsed, list) else [parsed]:
        assert item.keys() <= {"id", "client"}
        assert (item.get("client") or {}).keys() <= {"id"}
