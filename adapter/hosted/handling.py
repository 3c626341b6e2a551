"""The work of a tool that is a script."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.hosted.failures import StageFailed
from adapter.hosted.references import Script, ScriptTimedOut
from adapter.hosted.tools import ToolAnswer, ToolCall
from adapter.rules.exposure import Expose, exposed
from adapter.rules.inputs import Scalar
from adapter.rules.outcomes import ToolUserError, as_result


class Context(dict[str, Any]):
    """What a script may know of a call beside its payload, as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True, slots=True)
class Handling:
    """Calls ``script`` for one call of ``tool`` on ``server``, within ``timeout`` seconds."""

    server: str
    tool: str
    script: Script
    timeout: float
    expose: Expose
    log: FilteringBoundLogger

    async def __call__(self, values: Mapping[str, Scalar], call: ToolCall) -> ToolAnswer:
        """See Work: what the script returns."""
        payload = {"inputs": dict(values), "tool": self.tool}
        try:
            value = await self.script.call(payload, self._context(call), self.timeout, call.progress)
            result = as_result(value)
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
        return ToolAnswer(result.content, is_error=result.is_error, structured=result.structured)

    def _context(self, call: ToolCall) -> Context:
        request = Context(
            tool=self.tool, server=self.server, entrance="mcp", headers=dict(call.headers.items())
        )
        return Context(request=request, deadline=time.time() + self.timeout)

    def _failed(self, why: str) -> str:
        return f"handler script failed for tool {self.tool}: {why}"
