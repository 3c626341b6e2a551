"""The order of a call's slots, and plans that follow it however they are put together."""

from __future__ import annotations

from itertools import permutations

from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import ErrorStyle, Outcome
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import _FAILS_AS, Step, ToolPlan
from adapter.rules.results.outcomes import success
from adapter.settings.servers.stages import ToolStages

IN, OUT = "in", "out"


def noting(slot: Slot, walk: list[tuple[str, Slot]]) -> Step:
    """A stage that notes when a call comes by, on its way in and out."""

    async def run(call: PlannedCall, forward: Forward) -> Outcome:
        walk.append((IN, slot))
        outcome = await forward(call)
        walk.append((OUT, slot))
        return outcome

    return Step(slot, "", run)


async def execute(call: PlannedCall) -> Outcome:
    return Outcome.of(success("done"))


async def test_stages_run_by_their_slots_not_by_the_order_of_code() -> None:
    """Whatever the order in which a plan is given its stages, they work in the order of the enum."""
    slots = (Slot.AUTH, Slot.VALIDATE, Slot.CACHE, Slot.OUTPUT_TRANSFORM, Slot.STATE_SYNC)
    for given in permutations(slots):
        walk: list[tuple[str, Slot]] = []
        plan = ToolPlan("t", "script", [noting(slot, walk) for slot in given], ErrorStyle())
        await plan.walk(PlannedCall("s", "t", {}, execute))
        worked = [slot for way, slot in walk if way == (OUT if slot.part == "after" else IN)]
        assert worked == list(slots)


def test_a_place_in_the_limits_is_kept_until_the_answer_is_ready() -> None:
    """Stages behind the execution are around those before it, but within the limits."""
    nested = sorted(Slot, key=lambda slot: slot.depth)
    inner = nested[nested.index(Slot.LIMITS) + 1 :]
    assert inner.index(Slot.STATE_SYNC) < inner.index(Slot.PRESENTER) < inner.index(Slot.OUTPUT_TRANSFORM)
    assert inner.index(Slot.OUTPUT_TRANSFORM) < inner.index(Slot.INPUT_TRANSFORM) < inner.index(Slot.CACHE)


def test_every_slot_of_a_plan_has_a_name_for_calls_that_are_late_there() -> None:
    """But for the tool itself, which has its kind's, and the end, where no time is left to be over."""
    assert {slot for slot in Slot if "plan" in slot.room} == {*_FAILS_AS, Slot.EXECUTE, Slot.FINISH}


def test_every_setting_of_a_stage_is_named_at_its_slot() -> None:
    """A key of ``stages`` stands in the table of slots, by the name that the settings file has for it."""
    named = " ".join(slot.settings for slot in Slot)
    keys = {field.alias or name for name, field in ToolStages.model_fields.items()}
    assert {key for key in keys if key not in named} == set()
