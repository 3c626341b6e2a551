"""The members that the user's context factory adds to the context of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.code import CodeFailures, CodeMistake, Function
from adapter.pipeline.context import Context
from adapter.pipeline.outcome import Outcome
from adapter.rules.results.exposure import Expose

RESERVED = frozenset(("request", "signal", "deadline"))
"""Members of a context that are the adapter's own to say."""


class Gathering:
    """A PlanStage: the factory is asked about each call's request, and its members join the call's context."""

    def __init__(self, tool: str, function: Function, expose: Expose, log: FilteringBoundLogger) -> None:
        self._function = function
        self._failures = CodeFailures("context", tool, expose, log)

    def __repr__(self) -> str:
        return f"<Gathering by {self._function.reference}>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage."""
        try:
            members = await self._function(call.context["request"])
            if not isinstance(members, Mapping):
                kind = type(members).__name__
                raise CodeMistake(f"the context factory has to return a mapping, not {kind}")
            call.context = extended(call.context, members)
        except Exception as error:
            raise self._failures.of(call, error) from None
        return await forward(call)


def extended(context: Context, members: Mapping[str, Any]) -> Context:
    """A new view of the context with these members too; those that are reserved stay what they are."""
    return context.merged({name: value for name, value in members.items() if name not in RESERVED})
