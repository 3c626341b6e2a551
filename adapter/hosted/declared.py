"""Tools that a configuration declares: what clients see of them, and the way of a call through their plan."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.hosted.tools import CallLimit, HostedTool, ToolCall
from adapter.pipeline.call import CallTime, PlannedCall
from adapter.pipeline.outcome import Outcome
from adapter.pipeline.plan import ToolPlan
from adapter.rules.calls.input_schemas import DeclaredInputs

Work = Callable[[PlannedCall], Awaitable[Outcome]]
"""What a tool does with arguments that fit. Raises StageFailed."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A tool as it is declared, on a server of this id."""

    server: str
    name: str
    inputs: DeclaredInputs
    title: str | None = None
    description: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def definition(self) -> dict[str, Any]:
        """Its entry in ``tools/list``."""
        shown: dict[str, Any] = {"name": self.name}
        if self.title:
            shown["title"] = self.title
        if self.description:
            shown["description"] = self.description
        shown["inputSchema"] = self.inputs.schema
        if self.annotations:
            shown["annotations"] = dict(self.annotations)
        return shown

    def doing(
        self, work: Work, plan: ToolPlan, timeout: float, definition: Mapping[str, Any] | None = None
    ) -> HostedTool:
        """The tool, with what it does behind the stages of its plan, all within ``timeout`` seconds."""

        def planned(call: ToolCall) -> PlannedCall:
            return PlannedCall(
                server=self.server,
                tool=self.name,
                arguments=call.arguments,
                execute=work,
                caller=call.caller,
                session=call.session,
                progress=call.progress,
                say=call.say,
                deadline=time.time() + timeout,
                time=CallTime(timeout, time.monotonic() + timeout),
            )

        async def run(call: ToolCall) -> Outcome:
            call.planned = planned(call)
            return await plan.walk(call.planned)

        def overdue(call: ToolCall) -> Outcome | None:
            return plan.overdue(call.planned or planned(call))

        limit = CallLimit(timeout, overdue)
        return HostedTool(self.definition() if definition is None else definition, run, limit)
