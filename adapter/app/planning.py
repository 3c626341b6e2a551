"""Plans of tools, made of what the settings say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from adapter.hosted.failures import unfit
from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.failures import ErrorStyle
from adapter.pipeline.outcome import Outcome
from adapter.pipeline.plan import Step, ToolPlan
from adapter.rules.inputs import Input, InputsRefused, coerced


@dataclass(frozen=True, slots=True)
class _Coercing:
    tool: str
    inputs: Mapping[str, Input]

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        try:
            call.arguments = coerced(self.inputs, call.arguments)
        except InputsRefused as refused:
            raise unfit(self.tool, self.inputs, refused) from None
        return await forward(call)


def hosted(tool: str, kind: str, inputs: Mapping[str, Input], expose: str, serial: bool) -> ToolPlan:
    """The plan of a hosted tool."""
    return ToolPlan(
        tool,
        "script" if kind == "script" else "statement",
        [Step(7, "validate", "", _Coercing(tool, inputs))],
        ErrorStyle("result", "safe" if expose == "safe" else "message"),
    )
