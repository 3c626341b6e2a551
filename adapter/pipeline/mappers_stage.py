"""Mappers: the user's code that makes other arguments of a call's, and another result of a tool's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.call import Forward, PlannedCall
from adapter.pipeline.code import Code, CodeFailures, CodeMistake, shown
from adapter.pipeline.failures import Outcome
from adapter.rules.results.exposure import Expose
from adapter.rules.results.outcomes import Response, Result, as_result, as_rows


class InputMapping:
    """A PlanStage: what the mapper makes of the arguments is what all later stages get instead of them."""

    def __init__(self, tool: str, code: Code, expose: Expose, log: FilteringBoundLogger) -> None:
        self._tool = tool
        self._code = code
        self._failures = CodeFailures("input_transform", tool, expose, log)

    def __repr__(self) -> str:
        return f"<InputMapping of {self._tool!r} by {self._code.reference}>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. What is no object ends the call."""
        try:
            payload = {"inputs": shown(call.arguments), "tool": self._tool}
            returned = await self._code.call(payload, call.context, None, call.progress)
            if not isinstance(returned, Mapping):
                raise CodeMistake(f"the mapper must return an object, not {type(returned).__name__}")
            call.arguments = shown(returned)
        except Exception as error:
            raise self._failures.of(call, error) from None
        return await forward(call)


class OutputMapping:
    """A PlanStage: what the mapper makes of the tool's result is the result.

    ``whole`` is for tools of upstreams: their mappers see the whole result beside its data, and an object that they
    return is structuredContent too. With ``rows`` what is returned is made a list of objects.
    """

    def __init__(
        self,
        tool: str,
        code: Code,
        expose: Expose,
        log: FilteringBoundLogger,
        *,
        rows: bool = False,
        whole: bool = False,
    ) -> None:
        self._tool = tool
        self._code = code
        self._rows = rows
        self._whole = whole
        self._failures = CodeFailures("output_transform", tool, expose, log)

    def __repr__(self) -> str:
        return f"<OutputMapping of {self._tool!r} by {self._code.reference}>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. Failures, and answers that are not the tool's own, pass unchanged."""
        outcome = await forward(call)
        if not outcome.shapable:
            return outcome
        call.time.at = "output_transform"
        try:
            payload = self._payload(outcome)
            returned = await self._code.call(payload, call.context, None, call.progress)
            return outcome.written(self._result(returned))
        except Exception as error:
            raise self._failures.of(call, error) from None

    def _payload(self, outcome: Outcome) -> dict[str, Any]:
        payload = {"results": shown(outcome.payload), "tool": self._tool}
        if self._whole:
            payload["result"] = shown(outcome.result)
        return payload

    def _result(self, returned: Any) -> Result:
        if self._rows and not isinstance(returned, Result | Response):
            returned = as_rows(returned)
        return as_result(returned, structured=self._whole)
