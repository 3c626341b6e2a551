"""The work of a tool that is a script."""

from __future__ import annotations

from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from adapter.hosted.references import Script, ScriptTimedOut
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import StageFailed
from adapter.pipeline.outcome import Outcome
from adapter.rules.exposure import Expose, exposed
from adapter.rules.outcomes import ToolUserError, as_result, as_rows


@dataclass(frozen=True, slots=True)
class Handling:
    """Calls ``script`` for one call of ``tool`` on ``server``, within ``timeout`` seconds.

    ``rows``: whatever it returns becomes a list of objects.
    """

    server: str
    tool: str
    script: Script
    timeout: float
    expose: Expose
    log: FilteringBoundLogger
    rows: bool = False

    async def __call__(self, call: PlannedCall) -> Outcome:
        """See Work: what the script returns."""
        payload = {"inputs": dict(call.arguments), "tool": self.tool}
        try:
            value = await self.script.call(payload, call.context, self.timeout, call.progress)
            return Outcome.of(as_result(as_rows(value) if self.rows else value))
        except ToolUserError as sentence:
            raise StageFailed("handler", str(sentence)) from None
        except ScriptTimedOut as late:
            raise StageFailed("handler", self._failed(str(late)), "timeout") from None
        except Exception as error:
            # Whatever somebody's code raises; what of it is nobody's business stays in this log.
            log = self.log.bind(server=self.server, tool=self.tool)
            log.warning("a script failed", why=exposed(error))
            log.debug("where the script failed", exc_info=True)
            told = exposed(error, expose=self.expose)
            raise StageFailed("handler", told if self.expose == "safe" else self._failed(told)) from None

    def _failed(self, why: str) -> str:
        return f"handler script failed for tool {self.tool}: {why}"
