"""The user's own code as stages see it: loaded and callable, wherever it runs; no stage knows a path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from structlog.typing import FilteringBoundLogger

from adapter.errors import BadJson
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import DOING, Reason, Stage, StageFailed
from adapter.rules.results.exposure import Expose, exposed
from adapter.rules.results.outcomes import ToolUserError
from adapter.rules.text.json_values import NotJson, compact
from adapter.wire.envelope import parse

Tell = Callable[[float, str | None], Awaitable[None]]
"""Told of the code's progress: percent of 100, and a sentence or None."""


InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a job in a thread, and leaves it there when its caller is cancelled. Raises what the job raises."""


class Code(Protocol):
    """A script that is given a payload: a mapper or a handler, in process or in a process of its own."""

    @property
    def reference(self) -> str:
        """As the configuration writes it."""

    async def call(self, payload: Any, context: Any, timeout: float | None, tell: Tell | None = None) -> Any:
        """Return what the script returns, within ``timeout`` seconds.

        Raises TimeoutError when the script was given up, ToolUserError, and whatever else the code raises. If the
        caller is cancelled, the code is cancelled too, as far as that is possible.
        """


class Function(Protocol):
    """A function of the user's in this process, called with what the stage has for it."""

    @property
    def reference(self) -> str:
        """As the configuration writes it."""

    @property
    def parameters(self) -> int:
        """The number of arguments it takes by position."""

    @property
    def plain(self) -> Callable[..., Any]:
        """The bare function, for those who call it directly."""

    async def __call__(self, *arguments: Any) -> Any:
        """Return what the function returns: if async, it is awaited; else it runs in a thread under the caller's
        context variables.

        Raises whatever the function raises.
        """


class CodeMistake(TypeError):
    """Code gave what its stage can do nothing with; ``str`` is the stage's own sentence."""


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
    said, kind = exposed(error), type(error)
    # Two classes say nothing, and sentences of the adapter's own are whole.
    if said == kind.__name__ or kind in (Exception, RuntimeError) or kind.__module__.startswith("adapter."):
        return said
    return f"{said} ({kind.__name__})" if kind.__name__.isidentifier() else said


def shown(value: Any) -> Any:
    """A value as the user's code gets it: as JSON, and a copy, so that what becomes of it there changes nothing here.

    Raises NotJson.
    """
    try:
        return parse(compact(value).encode())
    except BadJson:
        raise NotJson("The value is nested too deeply.") from None
