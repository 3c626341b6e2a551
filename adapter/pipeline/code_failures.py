"""The failures of the user's code: what its caller may read of them, and what stays in the log."""

from __future__ import annotations

from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import DOING, Reason, Stage, StageFailed
from adapter.rules.results.outcomes import ToolUserError
from adapter.rules.results.refusals import Expose, exposed


class CodeMistake(TypeError):
    """Code returned a value that its stage cannot use; ``str`` is the stage's own sentence."""


@dataclass(frozen=True, slots=True)
class CodeFailures:
    """The failures that a caller reads when the user's code fails at ``stage`` of ``tool``."""

    stage: Stage
    tool: str
    expose: Expose
    log: FilteringBoundLogger

    def of(self, call: PlannedCall, error: Exception) -> StageFailed:
        """The failure that stands for an exception; what of that is nobody's business stays in the log.

        A ToolUserError's sentence stands alone and verbatim.
        """
        if isinstance(error, ToolUserError):
            return StageFailed(self.stage, str(error))
        log = self.log.bind(server=call.server, tool=self.tool)
        log.warning("a script failed", stage=self.stage, why=exposed(error), error=type(error).__qualname__)
        log.debug("where the script failed", exc_info=error)
        reason: Reason | None = "timeout" if isinstance(error, TimeoutError) else None
        if self.stage == "context":
            # What a factory asks on the way to a context is the adapter's own affair, and no caller's.
            return StageFailed(self.stage, DOING[self.stage], reason)
        if reason is not None:
            # How long something took is no secret; what the code itself says of it may be one.
            why = exposed(error) if self.expose == "message" and str(error) else "timed out"
            return StageFailed(self.stage, self.sentence(why), reason)
        if self.expose == "safe":
            trace_id = call.context.get("trace_id")
            return StageFailed(self.stage, exposed(error, expose="safe", trace_id=trace_id))
        return StageFailed(self.stage, self.sentence(_named(error)))

    def sentence(self, why: str) -> str:
        """The whole sentence, with the reason at its end."""
        return f"{DOING[self.stage]} for tool {self.tool}: {why}"


def _named(error: Exception) -> str:
    """The text of an exception, followed by its class, which often says more: ``'name' (KeyError)``."""
    text, kind = exposed(error), type(error)
    # Two classes say nothing, and sentences of the adapter's own are whole.
    if text == kind.__name__ or kind in (Exception, RuntimeError) or kind.__module__.startswith("adapter."):
        return text
    return f"{text} ({kind.__name__})" if kind.__name__.isidentifier() else text
