"""The work of a tool that is a script."""

from __future__ import annotations

from dataclasses import dataclass, field

from structlog.typing import FilteringBoundLogger

from adapter.hosted.scripts.references import Script
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.code import CodeFailures
from adapter.pipeline.outcome import Outcome
from adapter.rules.results.exposure import Expose
from adapter.rules.results.outcomes import Response, Result, as_result, as_rows


@dataclass(frozen=True, slots=True)
class Handling:
    """Calls ``script`` for a call of ``tool``, within ``timeout`` seconds; None: until the call's own end.

    ``rows``: what it returns becomes a list of objects, unless it is an answer already.
    """

    tool: str
    script: Script
    timeout: float | None
    expose: Expose
    log: FilteringBoundLogger
    rows: bool = False
    _failures: CodeFailures = field(init=False)

    def __post_init__(self) -> None:
        failures = CodeFailures("handler", self.tool, self.expose, self.log)
        object.__setattr__(self, "_failures", failures)

    async def __call__(self, call: PlannedCall) -> Outcome:
        """See Work: what the script returns."""
        payload = {"inputs": dict(call.arguments), "tool": self.tool}
        try:
            value = await self.script.call(payload, call.context, self.timeout, call.progress)
            rows = self.rows and not isinstance(value, Result | Response)
            return Outcome.of(as_result(as_rows(value) if rows else value))
        except Exception as error:
            raise self._failures.of(call, error) from None
