"""Checks of values: what is little is done at once, what is much is done elsewhere, and what is said is the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson
import pytest

from adapter.pipeline.validation_stage import (
    KEPT,
    KEPT_WEIGHT,
    PARTS_AT_ONCE,
    STEPS_AT_ONCE,
    TOLD_AT_ONCE,
    CheckOwner,
    CheckVerdict,
    SchemaChecks,
)
from adapter.rules.results.refusals import uncheckable
from adapter.rules.schema.checker import compile_schema
from adapter.rules.schema.cost import OutOfSteps, SchemaInvalid, SchemaTooLarge
from adapter.wire.envelope import parse
from tests.cpu_time import ATTEMPTS, least_cpu
from tests.pipeline.walking import LOG

LARGE = 20_000
"""Items that are too many for the event loop."""

WHY = "look-around or a back-reference"
NAMES = {"items": {"type": "string"}}
DOUBLING = {
    "$ref": "#/$defs/0",
    "$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)} | {"40": {}},
}


class Remote:
    """An Elsewhere that answers ``verdict`` and keeps what it was asked."""

    def __init__(self, verdict: CheckVerdict = CheckVerdict()) -> None:  # noqa: B008  (a value)
        self.verdict = verdict
        self.asked: list[tuple[CheckOwner, Any, Any, bool]] = []

    async def judge(self, owner: CheckOwner, schema: bytes, value: bytes, *, strict: bool) -> CheckVerdict:
        self.asked.append((owner, parse(schema), parse(value), strict))
        return self.verdict


def made(remote: Remote) -> SchemaChecks:
    return SchemaChecks(remote, LOG)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]


async def test_little_is_checked_at_once() -> None:
    """Nobody else is asked."""
    remote = Remote()
    (fault,) = await made(remote).of(NAMES, "one").faults(["a", 1], "ann")
    assert (fault.error["path"], remote.asked) == ("/1", [])


@pytest.mark.parametrize(
    "value", [["x"] * LARGE, ["x" * LARGE * 300], {str(n): n for n in range(LARGE)}, [[0]] * LARGE]
)
async def test_a_large_value_is_checked_elsewhere(value: Any) -> None:
    """Whole, with the schema, for whose it is; what is said there is said here."""
    told = uncheckable("too much")
    remote = Remote(CheckVerdict([told]))
    check = made(remote).of(NAMES, "one", strict=True)
    assert await check.faults(value, "ann") == [told]
    assert remote.asked == [(CheckOwner("one", "ann"), NAMES, value, True)]


@pytest.mark.parametrize(
    "odd", ["\ud800", 2**100, 1e999, -1e999, [None, "Infinity", 1e999], {"-Infinity": 1e999}]
)
async def test_what_is_odd_json_is_checked_elsewhere_too(odd: Any) -> None:
    """Lone surrogates and numbers of any size are legal."""
    remote = Remote()
    assert await made(remote).of({"title": "\udfff"}, "one").faults([odd, *range(LARGE)], "ann") == ()
    ((_, schema, value, _),) = remote.asked
    assert (schema, value[0]) == ({"title": "\udfff"}, odd)


async def test_what_is_nested_beyond_measure_is_refused() -> None:
    """Before it is written."""
    deep: Any = []
    for _ in range(LARGE):
        deep = [deep]
    with pytest.raises(SchemaInvalid, match="nested too deeply"):
        await made(Remote()).of({}, "one").faults(deep, "ann")


async def test_a_schema_that_makes_much_of_little_is_not_tried_twice() -> None:
    """The first time it takes some milliseconds, then none."""
    remote = Remote(CheckVerdict(exceeded="too much"))
    check = made(remote).of(DOUBLING, "one")
    for times in (1, 2):
        (fault,) = await check.faults({}, "ann")
        assert (fault.keyword, fault.message, len(remote.asked)) == ("schema", "too much", times)


async def test_a_large_schema_is_read_elsewhere() -> None:
    """Also what is wrong with it is found there."""
    remote = Remote(CheckVerdict(invalid="The schema is invalid."))
    check = made(remote).of({"properties": {str(n): {} for n in range(PARTS_AT_ONCE)}}, "one")
    with pytest.raises(SchemaInvalid, match="The schema is invalid"):
        await check.faults({}, "ann")


async def test_a_pattern_that_nobody_judges_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever judged, and of many patterns some."""
    checks = made(Remote(CheckVerdict(unjudged={"(?=far)": WHY})))
    schema = {"items": {"pattern": "(?=near)"}}
    for value in (["a"], ["b"], ["x"] * LARGE, ["x"] * LARGE):
        assert not await checks.of(schema, "one").faults(value, "ann")
    told = [(line["event"], line["server"], line["pattern"], line["why"]) for line in lines(capsys)]
    event = "a pattern of a schema is not judged"
    assert told == [(event, "one", "(?=near)", WHY), (event, "one", "(?=far)", WHY)]
    many = {"allOf": [{"pattern": f"(?={n})"} for n in range(20)]}
    assert not await checks.of(many, "one").faults("x", "ann")
    assert len(lines(capsys)) == TOLD_AT_ONCE


async def test_one_schema_is_compiled_once_as_long_as_it_is_asked_for() -> None:
    """By the object, not by what it says: nothing is compared."""
    checks = made(Remote())
    known = checks.known(NAMES, "one")
    assert checks.known(NAMES, "one") is known and checks.known(NAMES, "two") is not known
    for number in range(KEPT):
        checks.known({"title": str(number)}, "one")
    assert repr(checks) == f"<SchemaChecks: {KEPT} kept>"


async def test_large_schemas_are_kept_as_far_as_they_weigh_little_together() -> None:
    """A server whose tools have long schemas fills no memory; the one that was asked for last stays."""
    checks = made(Remote())
    for _ in range(5):
        checks.known({f"k{n}": 1 for n in range(KEPT_WEIGHT // 5)}, "one")
    assert repr(checks) == "<SchemaChecks: 2 kept>"
    huge = {f"k{n}": 1 for n in range(KEPT_WEIGHT)}
    known = checks.known(huge, "one")
    assert checks.known(huge, "one") is known
    assert repr(checks) == "<SchemaChecks: 1 kept>"


@pytest.mark.parametrize("schema", ["text", 7, [], {"a": {1, 2}, "required": "a"}])
async def test_what_is_no_schema_is_refused(schema: object) -> None:
    """A host may have anything for one."""
    with pytest.raises(SchemaInvalid):
        made(Remote()).known(schema, "one", read=False)


@pytest.mark.parametrize(("schema", "faults"), [({"required": ("a",)}, 1), ({"maxItems": 3}, 0)])
async def test_a_schema_of_a_hosts_own_values_is_one(schema: Any, faults: int) -> None:
    """Tuples are lists to JSON."""
    found: Sequence[Any] = await made(Remote()).known(schema, "one", read=False).faults({}, "ann")
    assert len(found) == faults


# --- schemas and values that are small enough for the event loop, and were made to hold it for long


SECONDS = 0.05
"""CPU that one check may take on the event loop."""

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


def check_on_the_loop(schema: dict[str, Any], value: Any) -> None:
    """Do what of a check is done on the event loop, whatever comes of it."""
    try:
        checker = compile_schema(schema, parts=PARTS_AT_ONCE, large=False)
        checker.judged(value, steps=STEPS_AT_ONCE)
    except (OutOfSteps, SchemaTooLarge, SchemaInvalid):
        pass


@pytest.mark.parametrize("name", ATTACKS)
def test_no_check_holds_the_event_loop(name: str) -> None:
    """What costs more than some milliseconds is given up there, whoever wrote schema and value."""
    attack = ATTACKS[name]
    made = [(attack.schema(), attack.value()) for _ in range(ATTEMPTS)]
    assert least_cpu(lambda: check_on_the_loop(*made.pop())) < SECONDS


def test_a_huge_value_is_not_read_to_its_end() -> None:
    """Whatever it is made of."""
    huge = ([[1] * 20_000] * 20_000, {str(n): n for n in range(1_000_000)}, [{"a" * 4_000: 1}] * 19_000)
    checker = compile_schema({}, parts=PARTS_AT_ONCE)

    def judge(value: Any) -> None:
        with pytest.raises(OutOfSteps):
            checker.judged(value, steps=STEPS_AT_ONCE)

    for value in huge:
        assert least_cpu(partial(judge, value)) < SECONDS


def test_a_long_address_is_refused_with_a_sentence() -> None:
    """And many that are long only together are too much for the event loop."""
    with pytest.raises(SchemaInvalid, match="A URI of the schema is longer than 4096 characters"):
        compile_schema({"$id": "http://x/" + "a" * 5_000})
    with pytest.raises(SchemaTooLarge):
        parts = {str(n): {"$id": f"b{n}"} for n in range(500)}
        compile_schema({"$id": "http://x/" + "a" * 4_000, "$defs": parts}, parts=PARTS_AT_ONCE)
