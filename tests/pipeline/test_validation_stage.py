"""Arguments that do not fit: what callers read of them, and that all others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from adapter.pipeline.call import PlannedCall
from adapter.pipeline.validation_stage import SCHEMAS_KEPT, CoercionStage, SchemaOf, ValidationStage
from adapter.rules.calls.input_schemas import DeclaredInputs
from adapter.rules.calls.inputs import Input
from tests.pipeline.walking import CHECKS, Behind, a_call, refused

INPUTS = DeclaredInputs.of(
    {
        "email": Input("string"),
        "age": Input("int", optional=True),
        "role": Input("string", default="guest", enum=("guest", "admin")),
    }
)
SCHEMA = {"type": "object", "properties": {"email": {"type": "string"}}, "required": ["email"]}
RECOVERY = "<recovery>Fix the fields above and call the tool again. Do not explain the error.</recovery>"


def always(schema: Mapping[str, Any] | None) -> SchemaOf:
    async def schema_of(_: PlannedCall) -> Mapping[str, Any] | None:
        return schema

    return schema_of


# --- hosted tools -------------------------------------------------------------------------------------------------


async def test_w5_arguments_of_every_hosted_tool_are_coerced() -> None:
    """Texts that spell the type count, defaults stand in, null is absent."""
    behind = Behind()
    await CoercionStage("t", INPUTS)(a_call(email="a@b", age="42"), behind)
    await CoercionStage("t", INPUTS)(a_call(email="a@b", age=None, role=None), behind)
    assert behind.arguments == [
        {"email": "a@b", "age": 42, "role": "guest"},
        {"email": "a@b", "role": "guest"},
    ]


async def test_v5_all_that_is_wrong_is_told_at_once_in_the_golden_words() -> None:
    """The sentence is H10's, of the first; the tool never runs."""
    behind = Behind()
    call = a_call(age="old", role="king", hack=1)
    failed = await refused(CoercionStage("users/create", INPUTS), call, behind)
    assert failed.stage == "validation"
    assert str(failed) == (
        "input validation failed: validation error for field 'email': required input 'email' is missing"
    )
    assert failed.text == "\n".join(
        (
            '<validation_error action="users/create">',
            '<field name="email">Required You sent: (missing). Expected type: string.</field>',
            '<field name="age">type validation failed: expected int, got a string that spells none '
            "You sent: 'old'. Expected type: integer.</field>",
            "<field name=\"role\">Invalid option You sent: 'king'. Valid options: 'guest', 'admin'.</field>",
            "<field name=\"(root)\">Unrecognized key(s) in object: 'hack' You sent: (missing). "
            "Remove or correct unrecognized fields: 'hack'. Check for typos.</field>",
            RECOVERY,
            "</validation_error>",
        )
    )
    assert not behind.reached


async def test_v5_what_takes_more_than_a_moment_is_checked_in_a_thread_and_bounded() -> None:
    """Few values of which the schema asks much are begun anew there; one too many steps refuses the call."""
    alternatives = {"anyOf": [{"const": number} for number in range(100)]}
    numbers = DeclaredInputs.of({"numbers": Input("array", keywords={"items": alternatives})})
    threads = 0

    async def in_thread(job: Callable[[], Any]) -> Any:
        nonlocal threads
        threads += 1
        return await asyncio.to_thread(job)

    behind, call = Behind(), a_call(numbers=[99] * 400)
    await CoercionStage("t", numbers, in_thread=in_thread)(call, behind)
    assert (behind.arguments, threads) == ([{"numbers": [99] * 400}], 1)
    failed = await refused(CoercionStage("t", numbers, max_steps=6_000, in_thread=in_thread), call, behind)
    assert "needs more than 6000 steps" in failed.text


# --- tools of upstreams -------------------------------------------------------------------------------------------


async def test_v5_arguments_of_a_proxied_tool_pass_exactly_as_they_came() -> None:
    """Nothing is coerced, nothing copied."""
    behind, call = Behind(), a_call(email="a@b")
    sent = call.arguments
    await ValidationStage("t", always(SCHEMA), CHECKS)(call, behind)
    assert behind.arguments[0] is sent


async def test_what_is_not_strict_goes_by_the_schema_alone() -> None:
    """JSON Schema allows what it does not mention."""
    behind = Behind()
    await ValidationStage("t", always(SCHEMA), CHECKS, strict=False)(a_call(email="a", more=1), behind)
    assert behind.reached


async def test_where_no_schema_is_known_everything_passes() -> None:
    """The upstream has the last word anyway."""
    behind = Behind()
    await ValidationStage("t", always(None), CHECKS)(a_call(anything=1), behind)
    assert behind.reached


async def test_a_schema_that_nothing_can_be_checked_by_ends_the_call() -> None:
    """Whoever asked for validation does not get calls that were not validated."""
    behind = Behind()
    for schema, said in (
        ({"type": "x"}, "The schema is invalid at type"),
        ({"$ref": "#/a"}, "does not exist"),
    ):
        failed = await refused(ValidationStage("t", always(schema), CHECKS), a_call(), behind)
        assert str(failed).startswith("input validation failed: The schema")
        assert said in str(failed)
    assert not behind.reached


async def test_a_changed_schema_is_the_one_that_counts() -> None:
    """An upstream may redefine its tools at any time, and as often as it likes."""
    current: dict[str, Any] = {}

    async def schema_of(_: PlannedCall) -> Mapping[str, Any]:
        return current

    stage = ValidationStage("t", schema_of, CHECKS)
    for number in range(SCHEMAS_KEPT * 2):
        current = {"properties": {f"f{number}": {}}}
        await stage(a_call(**{f"f{number}": 1}), Behind())
        await refused(stage, a_call(other=1), Behind())
    assert repr(stage) == f"<ValidationStage of 't': {SCHEMAS_KEPT} schemas>"


async def test_schemas_whose_names_only_look_alike_are_two() -> None:
    """The ligature in one of them is another name."""
    current: dict[str, Any] = {}

    async def schema_of(_: PlannedCall) -> Mapping[str, Any]:
        return current

    stage = ValidationStage("t", schema_of, CHECKS)
    for name in ("file", "ﬁle"):
        current = {"properties": {name: {}}}
        await stage(a_call(**{name: 1}), Behind())


# --- _select ------------------------------------------------------------------------------------------------------

STAGES = [
    CoercionStage("t", DeclaredInputs.of({"email": Input("string")}), selects=True),
    ValidationStage("t", always(SCHEMA), CHECKS, selects=True),
]


@pytest.mark.parametrize("stage", STAGES)
async def test_v15_select_is_taken_out_before_validation(stage: CoercionStage | ValidationStage) -> None:
    """The tool never gets it; null is as if it were absent."""
    behind, call = Behind(), a_call(email="a", _select=["id", "name"])
    await stage(call, behind)
    assert (behind.arguments, call.select) == ([{"email": "a"}], ("id", "name"))
    call = a_call(email="a", _select=None)
    await stage(call, behind)
    assert (behind.arguments[1], call.select) == ({"email": "a"}, None)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(
    ("select", "field", "said"),
    [
        ("id", "_select", "Expected array, received string"),
        (["id", 7], "_select.1", "Expected string, received number"),
        ({}, "_select", "Expected array, received object"),
    ],
)
async def test_v15_an_ill_formed_select_is_one_of_the_issues(
    stage: CoercionStage | ValidationStage, select: object, field: str, said: str
) -> None:
    """Told together with all others, and alone where it is the only one."""
    both = await refused(stage, a_call(_select=select), Behind())
    assert '<field name="email">Required' in both.text
    assert f'<field name="{field}">{said}' in both.text
    alone = await refused(stage, a_call(email="a", _select=select), Behind())
    assert str(alone) == (
        f"input validation failed: validation error for field '{field}': type validation failed: {said}"
    )


async def test_v15_where_nothing_can_be_selected_it_is_a_field_like_any_other() -> None:
    """Unknown to a hosted tool, and an upstream's own where the schema has it."""
    failed = await refused(CoercionStage("t", DeclaredInputs.of({})), a_call(_select=["id"]), Behind())
    assert str(failed).endswith("unknown input field '_select'")
    behind = Behind()
    await ValidationStage("t", always({"properties": {"_select": {}}}), CHECKS)(a_call(_select="x"), behind)
    assert behind.arguments == [{"_select": "x"}]
