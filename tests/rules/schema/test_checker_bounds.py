"""Schemas and values that were made to keep a checker busy, or to fill its memory: each ends, and soon."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from adapter.rules.results.refusals import read_fault
from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.cost import OutOfSteps, SchemaInvalid, SchemaTooLarge
from tests.cpu_time import at_most

STEPS = 100_000
SECONDS = 2.0
"""CPU that so many steps may take at most, on a slow machine too."""

WORST = "(a+)+$"
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def doubling(times: int) -> dict[str, Any]:
    """A schema of which each part refers twice to the next."""
    parts: dict[str, Any] = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(times)}
    return {"$ref": "#/$defs/0", "$defs": {**parts, str(times): {}}}


@contextmanager
def soon() -> Iterator[None]:
    """The body takes no more CPU than SECONDS."""
    with at_most(SECONDS):
        yield


BOMBS: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    "doubling references": (doubling(40), dict),
    "doubling alternatives": (
        {
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"anyOf": [{"$ref": "#/$defs/b"}] * 300, "type": "string"},
                "b": {"anyOf": [{"$ref": "#/$defs/c"}] * 300},
                "c": {"anyOf": [{"type": "string"}] * 300},
            },
        },
        dict,
    ),
    "nested unevaluated": (
        {
            "$defs": {
                "a": {"anyOf": [{"$ref": "#/$defs/b"}] * 200, "unevaluatedProperties": False},
                "b": {"allOf": [{"properties": {"x": {}}}] * 200, "unevaluatedProperties": False},
            },
            "$ref": "#/$defs/a",
        },
        lambda: {str(n): n for n in range(2000)},
    ),
    "options for each item": (
        {"items": {"enum": [[n] * 50 for n in range(2000)]}},
        lambda: [[n] * 49 + [-1] for n in range(2000)],
    ),
    "names for each item": (
        {"items": {"required": [str(n) for n in range(5000)]}},
        lambda: [{str(n): n for n in range(5000)}] * 1000,
    ),
    "patterns for each name": (
        {"patternProperties": {f"^{n}[a-z]*x": {} for n in range(1000)}},
        lambda: {f"{n}a": n for n in range(5000)},
    ),
    "a wide pattern": ({"pattern": "(?:a?){300}a{300}b"}, lambda: "a" * 300_000),
    "contained in each": ({"items": {"contains": {"const": 1}}}, lambda: [[0] * 1000] * 1000),
    "names that patterns speak of": (
        {"unevaluatedProperties": False, "patternProperties": {f"(a?){{{n}}}$": {} for n in range(1, 500)}},
        lambda: {"b" * 50 + str(n): n for n in range(5000)},
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_after_so_many_steps(name: str) -> None:
    """A step is a step of work, whatever the keyword."""
    schema, value = BOMBS[name]
    checker = compile_schema(schema)
    made = value()
    with soon(), pytest.raises(OutOfSteps):
        checker.judged(made, steps=STEPS)


QUICK: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    "many items that are unlike": ({"uniqueItems": True}, lambda: [{"a": [n]} for n in range(10_000)]),
    "many numbers that are unlike": ({"uniqueItems": True}, lambda: [n * 1.0 for n in range(50_000)]),
    "mixed items": ({"uniqueItems": True}, lambda: [x for n in range(10_000) for x in (n, str(n), [n])]),
    "one long text, many ways": ({"anyOf": [{"maxLength": 1}] * 20_000}, lambda: "x" * 1_000_000),
    "a large value, many mistakes": ({"allOf": [{"maxItems": 1}] * 10_000}, lambda: ["x" * 1000] * 1000),
    "a false schema for a large value": ({"allOf": [False] * 10_000}, lambda: ["x" * 1000] * 1000),
}


@pytest.mark.parametrize("name", QUICK)
def test_what_looks_like_much_is_little_or_refused(name: str) -> None:
    """Neither is anything compared with everything, nor a value written down for each mistake."""
    schema, value = QUICK[name]
    checker, made = compile_schema(schema), value()
    tracemalloc.start()
    try:
        with soon(), suppress(OutOfSteps):
            checker.judged(made)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": WORST}}},
        {"$schema": DRAFT, "$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {"pattern": WORST}}}}},
        {"$schema": DRAFT, "properties": {"a": {"pattern": WORST}, "b": {"$ref": "#"}}},
        {"allOf": [{"$schema": DRAFT, "properties": {"a": {"pattern": WORST}}}]},
        {
            "allOf": [
                {
                    "$id": "x",
                    "$schema": "http://json-schema.org/draft-07/schema#",
                    "properties": {"a": {"pattern": WORST}},
                }
            ]
        },
        {
            "const": {"allOf": [{"$schema": DRAFT, "properties": {"a": {"pattern": WORST}}}]},
            "not": {"$ref": "#/const"},
        },
        {"properties": {"a": {"propertyNames": {"pattern": WORST}}}, "propertyNames": {"pattern": WORST}},
        {"patternProperties": {WORST: {"pattern": WORST}}, "additionalProperties": False},
        {"patternProperties": {WORST: {}}, "unevaluatedProperties": {"pattern": WORST}},
    ],
)
def test_no_road_leads_to_an_engine_that_tries_for_years(schema: dict[str, Any]) -> None:
    """Not by another draft's name within, by a reference to the root, or by what is unevaluated."""
    text = "a" * 41 + "!"
    with soon():
        for value in ({"a": text}, {"b": {"a": text}}, {text: text}):
            compile_schema(schema).judged(value)


def test_a_schema_of_too_many_parts_is_not_read_to_its_end() -> None:
    """Reading takes as long as what is read."""
    many: dict[str, Any] = {"properties": {str(n): {} for n in range(100_000)}}
    for schema in (many, {"allOf": [many]}, {"required": [str(n) for n in range(1_000_000)]}):
        with soon(), pytest.raises(SchemaTooLarge):
            compile_schema(schema, parts=10_000)


def test_a_schema_nested_too_deeply_is_refused() -> None:
    """With a sentence."""
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"not": deep}
    with pytest.raises(SchemaInvalid, match="nested too deeply"):
        compile_schema(deep)


def test_what_is_told_is_short_whatever_was_sent() -> None:
    """Names, options, places and values are cut, and so is the list of all mistakes."""
    long = "n" * 4_000
    schema = {
        "properties": {
            "option": {"enum": [f"{n}{long}" for n in range(1000)]},
            long: {"type": "integer"},
            "other": {"const": long},
            "list": {"items": {"type": "string"}},
        },
        "required": [f"{n}{long}" for n in range(300)],
        "additionalProperties": False,
    }
    value: dict[str, Any] = {"option": long, long: long, "other": [long], "list": [1] * 1000}
    value |= {f"x{n}{long}": 1 for n in range(1000)}
    faults = compile_schema(schema).judged(value, steps=None).faults
    assert sum(len(fault.error["path"]) + len(fault.message) + len(fault.text) for fault in faults) < 500_000
    assert max(len(fault.text) for fault in faults) < 5_000


def test_a_fault_is_the_same_when_it_has_been_written() -> None:
    """Where another process has judged, nobody notices."""
    schema = {
        "properties": {"a": {"type": "string"}, "b": {"enum": [1, "x"]}, "c": {"minItems": 3}},
        "required": ["a", "d"],
        "additionalProperties": False,
    }
    values: tuple[Any, ...] = ({"b": 7, "c": [1], "q": 1}, {"a": 10**400}, {"a": {"x": 1}}, [])
    for value in values:
        for fault in compile_schema(schema, strict=True).judged(value).faults:
            again = read_fault(fault.written())
            assert (again.error, again.sentence) == (fault.error, fault.sentence)
            assert (again.field, again.text) == (fault.field, fault.text)
