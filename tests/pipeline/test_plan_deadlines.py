"""What is told of a call whose time is over, by the stage that it had come to."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

from adapter.pipeline.call import CallTime, Forward, PlannedCall
from adapter.pipeline.failures import ErrorStyle, Outcome, Stage
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import Step, ToolPlan, overdue
from tests.pipeline.walking import a_call, answered

SENTENCES = {
    "context": "context unavailable",
    "auth": "unauthorized: timed out after 2.5 s",
    "validation": "input validation failed: timed out after 2.5 s",
    "middleware": "middleware failed for tool bz: timed out after 2.5 s",
    "connector": "tool execution failed: failed to execute query: the statement took longer than 2.5 s",
}


@pytest.mark.parametrize(("stage", "sentence"), SENTENCES.items())
def test_v4_a_late_call_is_told_in_its_stages_own_sentence(stage: Stage, sentence: str) -> None:
    """As the stage's other failures begin, with how long the call had."""
    late = overdue(stage, "bz", 2.5)
    assert (str(late), late.text) == (sentence, sentence)


async def test_v4_no_stage_begins_when_the_time_is_over() -> None:
    """Code that held the event loop past the deadline is told by its own stage, and the tool does not run."""
    ran: list[str] = []

    async def holds(call: PlannedCall, forward: Forward) -> Outcome:
        call.time.until = monotonic()
        return await forward(call)

    async def execute(_: PlannedCall) -> Outcome:
        ran.append("tool")
        return answered("done")

    plan = ToolPlan("bz", "script", [Step(Slot.MIDDLEWARE, "", holds)], ErrorStyle())
    call = a_call()
    call.execute, call.time = execute, CallTime(9.0, monotonic() + 9)
    outcome = await plan.walk(call)
    assert outcome.result["_meta"]["adapter/error"] == {
        "stage": "middleware",
        "code": -32000,
        "reason": "timeout",
    }
    assert not ran


async def test_v4_a_late_call_is_counted_until_it_ends() -> None:
    """Whoever asks for the outcome of a late call finds it counted, and not any more when the walk has ended."""
    go = asyncio.Event()

    async def deaf(_: PlannedCall) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go.wait()
        return answered("too late")

    plan = ToolPlan("bz", "script", [], ErrorStyle())
    call = a_call()
    call.execute, call.time = deaf, CallTime(9.0)
    walk = asyncio.create_task(plan.walk(call))
    await asyncio.sleep(0)
    late = plan.overdue(call)
    assert late is not None and late.is_error
    walk.cancel()
    await asyncio.sleep(0)
    assert (plan.left_over, plan.idle, call.context.signal.aborted) == (1, False, True)
    go.set()
    await walk
    assert (plan.left_over, plan.idle) == (0, True)
