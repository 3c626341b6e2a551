"""Schemas and values that are small enough for the event loop, and were made to hold it for long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from adapter.pipeline.schema_checks import PARTS_AT_ONCE, STEPS_AT_ONCE
from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.cost import OutOfSteps, SchemaInvalid, SchemaTooLarge

SECONDS = 0.05
"""CPU that one check may take on the event loop."""

ATTEMPTS = 3
"""Machines have other work; what takes long takes long each time."""

TEXT = "x" * 2_400_000
COLLIDING = 2**61 - 1
"""All its multiples have the same hash."""

DIGITS = 10**4200


class Attack(NamedTuple):
    """``schema`` and ``value`` make them anew: equal texts that are one object are compared in no time."""

    schema: Callable[[], dict[str, Any]]
    value: Callable[[], Any] = dict


def often(part: dict[str, Any], times: int = 1200) -> Callable[[], dict[str, Any]]:
    """A schema that refers to one part of its own so many times."""
    return lambda: {"$defs": {"x": part}, "allOf": [{"$ref": "#/$defs/x"}] * times}


def nested(inner: Any, times: int, name: str = "k") -> Any:
    for _ in range(times):
        inner = {name: inner}
    return inner


def pattern_of_each(form: str, times: int = 900) -> Callable[[], dict[str, Any]]:
    return lambda: {"allOf": [{"pattern": f"{form}{n}"} for n in range(times)]}


ATTACKS: dict[str, Attack] = {
    "numbers of one hash": Attack(
        lambda: {"uniqueItems": True}, lambda: [n * COLLIDING for n in range(1, 4900)]
    ),
    "a long text, compared": Attack(often({"const": TEXT}), lambda: TEXT[:-1] + "y"),
    "a long option, compared": Attack(often({"enum": [TEXT]}), lambda: TEXT[:-1] + "y"),
    "a long option that fits": Attack(often({"oneOf": [{"const": TEXT}] * 2}), lambda: TEXT[:-1] + "x"),
    "a long item": Attack(often({"uniqueItems": True}), lambda: [TEXT, [1]]),
    "a long item far within": Attack(often({"uniqueItems": True}), lambda: [nested([TEXT[:2_000_000]], 60)]),
    "long names of items": Attack(
        often({"uniqueItems": True}), lambda: [{f"{TEXT[:1000]}{n}": 1 for n in range(4000)}]
    ),
    "nested, compared": Attack(often({"const": nested(1, 90, "a")}), lambda: nested(2, 90, "a")),
    "many digits": Attack(often({"multipleOf": 0.1}), lambda: DIGITS + 1),
    "more digits": Attack(often({"multipleOf": DIGITS}), lambda: DIGITS * 7 + 1),
    "far apart": Attack(often({"multipleOf": 5e-324}), lambda: 1e308),
    "digits as options": Attack(often({"enum": [DIGITS + n for n in range(50)]}), lambda: DIGITS),
    "a long name": Attack(
        lambda: {"properties": {TEXT: {"items": {"type": "string"}}}}, lambda: {TEXT: [1] * 200}
    ),
    "long names, nested": Attack(
        lambda: {"additionalProperties": {"$ref": "#"}, "type": "object"},
        lambda: nested(1, 99, TEXT[:20_000]),
    ),
    "items that may not be": Attack(often({"items": False}), lambda: [1] * 4900),
    "members that may not be": Attack(
        often({"additionalProperties": False}), lambda: {str(n): 1 for n in range(4500)}
    ),
    "members that nobody expects": Attack(
        often({"unevaluatedProperties": False}), lambda: {f"{TEXT[:500]}{n}": 1 for n in range(4500)}
    ),
    "members that are missing": Attack(often({"required": [str(n) for n in range(5000)]})),
    "many options": Attack(often({"enum": list(range(5000))})),
    "a long address": Attack(
        lambda: {
            "$id": "http://x/" + "a/" * 500_000,
            "$defs": {str(n): {"$id": f"b{n}"} for n in range(1400)},
        }
    ),
    "references to a long address": Attack(
        lambda: (
            {"$id": "http://x/" + "a/" * 2_000, "allOf": [{"$ref": f"b{n}"} for n in range(1000)]}
            | {"$defs": {str(n): {"$id": f"b{n}"} for n in range(1000)}}
        )
    ),
    "a long reference": Attack(lambda: {"allOf": [{"$ref": "#/" + "%41" * 300_000}]}),
    "unknown keywords": Attack(lambda: {f"k{n}": 1 for n in range(600_000)}),
    "anchors everywhere": Attack(
        lambda: {
            "$defs": {str(n): {"$anchor": f"a{n}", "$dynamicAnchor": f"a{n}"} for n in range(900)},
            "allOf": [{"$dynamicRef": f"#a{n}"} for n in range(900)],
        }
    ),
    "no patterns": Attack(pattern_of_each("(" * 4000), lambda: "é" * 3000),
    "patterns to translate": Attack(pattern_of_each(r"[\s\d]" * 500), lambda: "é" * 3000),
    "patterns of many letters": Attack(pattern_of_each(r"[\p{L}\p{N}]{10,20}"), lambda: "é" * 3000),
    "patterns that grow": Attack(pattern_of_each("(?:a?){200}a{200}"), lambda: "a" * 3000),
    "patterns of names": Attack(
        lambda: {"patternProperties": {f"^a{n}[a-z]{{100}}x": {} for n in range(1000)}}, lambda: {"b": 1}
    ),
    "a long text, any pattern": Attack(lambda: {"pattern": "(?:a?){60}a{60}b"}, lambda: "a" * 2_000_000),
}


def checked(schema: dict[str, Any], value: Any) -> float:
    """Seconds of CPU that a check takes on the event loop, whatever comes of it."""
    begun = time.process_time()
    try:
        checker = compile_schema(schema, parts=PARTS_AT_ONCE, large=False)
        checker.judged(value, steps=STEPS_AT_ONCE)
    except (OutOfSteps, SchemaTooLarge, SchemaInvalid):
        pass
    return time.process_time() - begun


@pytest.mark.parametrize("name", ATTACKS)
def test_no_check_holds_the_event_loop(name: str) -> None:
    """What costs more than some milliseconds is given up there, whoever wrote schema and value."""
    attack = ATTACKS[name]
    spent = [checked(attack.schema(), attack.value()) for _ in range(ATTEMPTS)]
    assert min(spent) < SECONDS


def test_a_huge_value_is_not_read_to_its_end() -> None:
    """Whatever it is made of."""
    huge = ([[1] * 20_000] * 20_000, {str(n): n for n in range(1_000_000)}, [{"a" * 4_000: 1}] * 19_000)
    checker = compile_schema({}, parts=PARTS_AT_ONCE)
    for value in huge:
        begun = time.process_time()
        with pytest.raises(OutOfSteps):
            checker.judged(value, steps=STEPS_AT_ONCE)
        assert time.process_time() - begun < SECONDS


def test_a_long_address_is_refused_with_a_sentence() -> None:
    """And many that are long only together are too much for the event loop."""
    with pytest.raises(SchemaInvalid, match="A URI of the schema is longer than 4096 characters"):
        compile_schema({"$id": "http://x/" + "a" * 5_000})
    with pytest.raises(SchemaTooLarge):
        parts = {str(n): {"$id": f"b{n}"} for n in range(500)}
        compile_schema({"$id": "http://x/" + "a" * 4_000, "$defs": parts}, parts=PARTS_AT_ONCE)
