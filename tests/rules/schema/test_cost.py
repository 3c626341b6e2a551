"""The work of a check is known before it begins."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from adapter.rules.schema.checker import Checker, compile_schema
from adapter.rules.schema.cost import Cost, OutOfSteps, SchemaTooLarge, weight
from tests.cpu_time import least_cpu

TREE = {"properties": {"next": {"$ref": "#"}, "name": {"type": "string"}}}
FORKED = {
    "anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}, "minLength": 3}]
}


def steps(schema: dict[str, Any], value: Any, most: int = 10**9) -> int:
    return Cost(schema, 3_000).steps(value, most)


def nested(depth: int, name: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {name: value}
    return value


def test_the_steps_are_told_and_bounded() -> None:
    """What is allowed is enough, one less is not."""
    checker = compile_schema({"items": {"type": "string"}}, strict=True)
    taken = checker.judged(["a"] * 10).steps
    assert taken > 20
    assert checker.judged(["a"] * 10, steps=taken).steps == taken
    with pytest.raises(OutOfSteps):
        checker.judged(["a"] * 10, steps=taken - 1)


def test_rows_cost_what_one_row_costs() -> None:
    """Not each member what all members of a row cost: many columns make no table expensive."""
    row = {f"c{n}": {"type": "string"} for n in range(50)}
    rows = [dict.fromkeys(row, "x") for _ in range(100)]
    assert steps({"items": {"properties": row}}, rows) < 10 * weight(rows)


def test_what_refers_to_itself_costs_as_much_as_the_value_is_deep() -> None:
    """And where it does so twice, that much more at each level."""
    assert steps(TREE, nested(40, "next")) < 10_000
    assert steps(FORKED, nested(10, "a")) > 2**10
    with pytest.raises(OutOfSteps):
        steps(FORKED, nested(40, "a"))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "other.json"},
        {"$ref": "#/nowhere"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "x", "$ref": "#/$defs/b"}, "c": {"$id": "y"}}},
    ],
)
def test_what_nobody_can_tell_is_too_much(schema: dict[str, Any]) -> None:
    """A circle for one value, and a reference that only the library can follow."""
    with pytest.raises(OutOfSteps):
        steps(schema, {})


def test_anchors_are_followed() -> None:
    """They are what generators write beside pointers."""
    schema = {"properties": {"a": {"$ref": "#x"}}, "$defs": {"x": {"$anchor": "x", "enum": [1] * 100}}}
    assert steps(schema, {"a": 1}) > 100


def test_large_values_and_names_are_given_up_early() -> None:
    """Before all of them is read."""
    for value in (list(range(1_000_000)), "x" * 10_000_000, {"n" * 70_000: 1}, nested(300, "a")):
        with pytest.raises(OutOfSteps):
            steps({}, value, 1_000)
    with pytest.raises(SchemaTooLarge):
        Cost({"properties": {"n" * 5_000: {}}}, 3_000)


def test_the_weight_of_a_value_is_looked_at_no_further_than_needed() -> None:
    """Small values are counted whole, of large ones as much as is asked."""
    assert weight({"a": ["b", 1, None]}, 1000) == 1 + 1 + 1 + 3 + 1 + 1 + 1
    assert weight(["x"] * 1_000_000, 1000) >= 1000
    assert weight("x" * 1_000_000, 10_000) == 1 + (1_000_000 >> 8)


NAMES = [f"k{n}" for n in range(2_000)]
LONG = "n" * 4_000


def give_up(checker: Checker, value: Any) -> None:
    """Judge a value that takes too many steps."""
    with pytest.raises(OutOfSteps):
        checker.judged(value, steps=20_000)


def test_mistakes_that_take_long_to_tell_are_told_elsewhere() -> None:
    """The library writes down every mistake with its path, its value and the schema, before anybody is told one."""
    too_much: list[tuple[dict[str, Any], Any]] = [
        ({"items": {"required": NAMES}}, [{}] * 9),
        ({"items": {"dependentRequired": {"a": NAMES}}}, [{"a": 1}] * 1_000),
        ({"items": {"not": {"description": "x" * 100_000}}}, [1] * 5_000),
        ({"propertyNames": {"maxLength": 1}}, {f"{LONG}{n}": 1 for n in range(900)}),
        ({"additionalProperties": {"items": {"not": {"title": "x" * 9_000}}}}, {LONG: [1] * 2_000}),
    ]
    for schema, value in too_much:
        assert least_cpu(partial(give_up, compile_schema(schema), value)) < 0.05
    rows = compile_schema({"items": {"required": ["id"]}})
    assert len(rows.judged([{"name": "x" * 50}] * 1_000, steps=20_000).faults) == 100


@pytest.mark.parametrize("named", [{"$id": "http://a/b"}, {"$anchor": "x22"}])
def test_a_name_that_may_mean_two_parts_is_not_followed(named: dict[str, str]) -> None:
    """A small part is not taken for the large one that the library finds under the same name."""
    parts: dict[str, Any] = {"x0": {"type": "integer"}}
    schema: dict[str, Any]
    for n in range(22):
        parts[f"x{n + 1}"] = {"allOf": [{"$ref": f"#/$defs/x{n}"}] * 2}
    if "$anchor" in named:
        parts["x22"] |= named
        schema = {"properties": {"a": {"$ref": "#x22"}}, "$defs": parts, "default": named}
    else:
        within = {**named, "$ref": "#/$defs/x22", "$defs": parts}
        schema = {"properties": {"a": within}, "$defs": {"x22": {}}}
    with pytest.raises(OutOfSteps):
        steps(schema, {"a": "x"})


def test_a_pattern_costs_what_it_repeats() -> None:
    """An engine without backtracking looks at all its states for each character."""
    assert steps({"pattern": "^[a-z-]+$"}, "x" * 1_000) < 1_100
    for pattern in ("[ab]*a[ab]{1500}c", "(?:[ab]*a[ab]{0,300}){2}c", "a?" * 2_000):
        assert steps({"pattern": pattern}, "x" * 1_000) > 8_000


def test_long_names_and_numbers_are_parts_of_a_schema() -> None:
    """A path is written for each part below it, and numbers beyond all machine words are parsed."""
    deep: dict[str, Any] = {"properties": {f"p{n}": {} for n in range(500)}}
    for _ in range(30):
        deep = {"properties": {LONG: deep}}
    wide: dict[str, Any] = {"properties": {f"{LONG}{n}": {} for n in range(500)}}
    large: list[dict[str, Any]] = [deep, wide, {"enum": [10**4000] * 500}]
    for schema in large:
        with pytest.raises(SchemaTooLarge):
            Cost(schema, 3_000)
