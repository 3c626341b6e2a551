"""Paths of a redaction, and the schemas that have what they lead to or not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.redacted_values import censor_of, segments
from adapter.rules.presenters.shapes import as_json_schema, shape_of, unknown_name

SCHEMA = {
    "id": "int",
    "ssn?": "string",
    "client": {"name": "string", "phones": "list[string]?"},
    "orders": [{"card": "string", "lines": [{"price": "float"}]}],
    "rows": "list[any]",
    "notes": "any",
}
ORDER = {"type": "object", "properties": {"card": {"type": "string"}}}
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "ssn": {"type": "string"},
        "orders": {"type": "array", "items": {"$ref": "#/$defs/order"}},
        "free": {"type": "object", "additionalProperties": {"type": "string"}},
        "tree": {"$ref": "#/$defs/tree"},
    },
    "$defs": {"order": ORDER, "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
}

LEADING = [
    *("ssn", "client.name", "client.phones[0]", "orders[*].card", "orders.card", "orders[0].lines[*].price"),
    *("*.ssn", "[*].ssn", "[0].id", "*", "orders.*.card", "*.*.price"),
    *("notes.anything.at.all", "rows[0].whatever", "rows.x"),
]
LEADING_IN_JSON = [
    *("ssn", "orders[*].card", "orders.card", "free.anything", "tree[0][0]"),
    *("*.ssn", "[*].orders.card", "*.card"),
]


@pytest.mark.parametrize("path", LEADING)
def test_w14_a_path_that_leads_somewhere_is_known(path: str) -> None:
    """Through members, items and whatever has any member, from the data or from each item of a list."""
    assert unknown_name(segments(path), as_json_schema(SCHEMA)) is None


@pytest.mark.parametrize("path", LEADING_IN_JSON)
def test_w14_a_path_that_leads_somewhere_in_json_schema_is_known(path: str) -> None:
    """Through references and open objects too."""
    assert unknown_name(segments(path), JSON_SCHEMA) is None


@pytest.mark.parametrize(
    ("path", "name", "nearest"),
    [
        ("snn", "snn", "ssn"),
        ("client.nam", "nam", "name"),
        ("order[*].card", "order", "orders"),
        ("orders[*].cards", "cards", "card"),
        ("orders[*].lines[*].prices", "prices", "price"),
    ],
)
def test_w14_a_misspelled_name_is_told_with_its_nearest(path: str, name: str, nearest: str) -> None:
    """The first that is not declared, and what was probably meant there."""
    said = unknown_name(segments(path), as_json_schema(SCHEMA))
    assert said == f"{name} is not declared in the schema; the nearest is {nearest}"


@pytest.mark.parametrize("path", ["id.x", "client[0].name.x", "client.phones.x", "tree.x"])
def test_w14_what_holds_nothing_has_no_names(path: str) -> None:
    """A scalar has neither members nor items."""
    assert unknown_name(segments(path), as_json_schema(SCHEMA)) is not None


@pytest.mark.parametrize(("path", "nearest"), [("snn", "ssn"), ("orders[*].cart", "card")])
def test_w14_a_misspelled_name_in_json_schema_is_told(path: str, nearest: str) -> None:
    """As in the short notation."""
    said = unknown_name(segments(path), JSON_SCHEMA)
    assert said is not None and said.endswith(f"; the nearest is {nearest}")


def test_w14_a_list_of_itself_has_an_end() -> None:
    """A schema whose items are itself is looked into no deeper than data is."""
    assert unknown_name(segments("tree.x"), JSON_SCHEMA) is not None


SCHEMAS = st.recursive(
    st.sampled_from(["string", "int", "any", "list[string]"]),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=1)
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.just("SECRET"),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "*", "[0]", "[*]"]), min_size=1, max_size=4)


@given(st.dictionaries(st.sampled_from("abc"), SCHEMAS, min_size=1), VALUES, PATHS)
def test_w14_what_a_path_hides_is_declared(schema: dict[str, Any], value: Any, steps: list[str]) -> None:
    """No path is refused that hides anything in data which fits the schema."""
    path = "".join(step if step[0] == "[" else f".{step}" for step in steps).removeprefix(".")
    try:
        parsed = shape_of(schema).parsed(value)
    except Exception:
        return
    if censor_of([path])(parsed) != parsed:
        assert unknown_name(segments(path), as_json_schema(schema)) is None
