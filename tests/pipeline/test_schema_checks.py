"""Checks of values: what is little is done at once, what is much is done elsewhere, and what is said is the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from adapter.pipeline.schema_checks import (
    KEPT,
    KEPT_WEIGHT,
    PARTS_AT_ONCE,
    TOLD_AT_ONCE,
    CheckOwner,
    CheckVerdict,
    SchemaChecks,
)
from adapter.rules.schema.cost import SchemaInvalid
from adapter.rules.schema.wording import uncheckable
from adapter.wire.envelope import parse
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
    assert (fault.pointer, remote.asked) == ("/1", [])


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


class Model:
    def model_dump(self, **options: Any) -> dict[str, Any]:
        return (
            {"required": ("a",)}
            if options == {"by_alias": True, "exclude_none": True, "mode": "json"}
            else {}
        )


@pytest.mark.parametrize(("schema", "faults"), [({"required": ("a",)}, 1), ({"maxItems": 3}, 0)])
async def test_a_schema_of_a_hosts_own_values_is_one(schema: Any, faults: int) -> None:
    """Tuples are lists to JSON."""
    found: Sequence[Any] = await made(Remote()).known(schema, "one", read=False).faults({}, "ann")
    assert len(found) == faults
