"""The stages that run the user's code around a tool: context factory, mappers and middleware; and what is told of the
failures of such code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.call import Code, Context, Forward, Function, PlannedCall, shown
from adapter.pipeline.failures import DOING, Outcome, Reason, Stage, StageFailed
from adapter.pipeline.order import Part
from adapter.rules.results.outcomes import Response, Result, ToolUserError, as_result, as_rows
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


@dataclass(eq=False, slots=True)
class InputMapperStage:
    """A PlanStage: the mapper's result replaces the arguments for all later stages."""

    code: Code
    failures: CodeFailures

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. What is no object ends the call."""
        try:
            payload = {"inputs": shown(call.arguments), "tool": self.failures.tool}
            returned = await self.code.call(payload, call.context, None, call.client.progress)
            if not isinstance(returned, Mapping):
                raise CodeMistake(f"the mapper must return an object, not {type(returned).__name__}")
            call.arguments = shown(returned)
        except Exception as error:
            raise self.failures.of(call, error) from None
        return await forward(call)


@dataclass(eq=False)
class OutputMapperStage:
    """A PlanStage: the mapper's result replaces the tool's result.

    ``whole`` is for tools of upstreams: their mappers see the whole result beside its data, and an object that they
    return is structuredContent too. With ``rows`` the returned value becomes a list of objects.
    """

    code: Code
    failures: CodeFailures
    rows: bool = field(default=False, kw_only=True)
    whole: bool = field(default=False, kw_only=True)

    def __repr__(self) -> str:
        return f"<OutputMapperStage of {self.failures.tool!r} by {self.code.reference}>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. Failures, and answers that are not the tool's own, pass unchanged."""
        outcome = await forward(call)
        if not outcome.shapable:
            return outcome
        call.time.at = "output_transform"
        try:
            payload = self._payload(outcome)
            returned = await self.code.call(payload, call.context, None, call.client.progress)
            return outcome.written(self._result(returned))
        except Exception as error:
            raise self.failures.of(call, error) from None

    def _payload(self, outcome: Outcome) -> dict[str, Any]:
        payload = {"results": shown(outcome.payload), "tool": self.failures.tool}
        if self.whole:
            payload["result"] = shown(outcome.result)
        return payload

    def _result(self, returned: Any) -> Result:
        if self.rows and not isinstance(returned, Result | Response):
            returned = as_rows(returned)
        return as_result(returned, structured=self.whole)


RESERVED = frozenset(("request", "signal", "deadline"))
"""Members of a context that are the adapter's own to say."""


@dataclass(eq=False, slots=True)
class ContextStage:
    """A PlanStage: the factory is called with each call's request, and its members join the call's context."""

    function: Function
    failures: CodeFailures

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage."""
        try:
            members = await self.function(call.context["request"])
            if not isinstance(members, Mapping):
                kind = type(members).__name__
                raise CodeMistake(f"the context factory must return a mapping, not {kind}")
            call.context = extended(call.context, members)
        except Exception as error:
            raise self.failures.of(call, error) from None
        return await forward(call)


def extended(context: Context, members: Mapping[str, Any]) -> Context:
    """Return a new view of the context with these members too. Reserved members stay."""
    return context.merged({name: value for name, value in members.items() if name not in RESERVED})


RAW = 3
"""Parameters of a middleware that calls what is behind it by itself; those with fewer only add to the context."""


class Given:
    """The result of what is behind a middleware: copies, so that changing them changes nothing.

    A middleware that returns it lets the result pass exactly as it is.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    @property
    def is_error(self) -> bool:
        """Tell whether the call failed."""
        return self._outcome.is_error

    @cached_property
    def content(self) -> list[dict[str, Any]]:
        """The content blocks."""
        content: list[dict[str, Any]] = shown(self._outcome.result.get("content") or [])
        return content

    @cached_property
    def data(self) -> Any:
        """The value that the content was written from, as mappers see it."""
        return shown(self._outcome.payload)


class Next:
    """The part of a call behind a middleware, to be called once; arguments given here replace those of the call.

    Raises what comes from that part: exceptions whose text a caller may read.
    """

    def __init__(self, call: PlannedCall, forward: Forward) -> None:
        self._call = call
        self._forward = forward
        self._called = False
        self.outcome: Outcome | None = None
        self.given: Given | None = None
        self.raised: BaseException | None = None

    async def __call__(self, arguments: Mapping[str, Any] | None = None) -> Given:
        if self._called:
            raise CodeMistake("next was called twice: a call is executed only once")
        self._called = True
        if arguments is not None:
            if not isinstance(arguments, Mapping):
                raise CodeMistake(
                    f"next must be called with an object of arguments, not {type(arguments).__name__}"
                )
            self._call.arguments = shown(arguments)
        try:
            self.outcome = await self._forward(self._call)
        except BaseException as raised:
            self.raised = raised
            self._call.time.at = "middleware"
            raise
        self._call.time.at = "middleware"
        self.given = Given(self.outcome)
        return self.given


@dataclass(eq=False)
class Middleware:
    """A PlanStage that runs a function of the user. ``structured``: objects that it answers are structuredContent
    too.

    With three parameters, ``(ctx, args, next)``, it is raw: it answers with its return value, or with the result of
    ``next`` if it returns that or nothing. An answer without any data of the tool is final. With one or two
    parameters, ``(ctx)`` or ``(ctx, args)``, its return value is merged into the context.
    """

    function: Function
    failures: CodeFailures
    structured: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Raises ValueError for a raw function that is not async, as ``next`` has to be awaited."""
        if self.function.parameters >= RAW and not _is_async(self.function.plain):
            raise ValueError(f"{self.function.reference!r} takes next, so it must be async and await it.")

    def __repr__(self) -> str:
        return f"<Middleware {self.function.reference}>"

    @property
    def part(self) -> Part:
        """When it works: only one that calls ``next`` sees what the tool answers."""
        return "around" if self.function.parameters >= RAW else "before"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. What is raised behind it and not caught by it passes as it is."""
        if self.function.parameters >= RAW:
            return await self._around(call, Next(call, forward))
        try:
            call.context = extended(call.context, await self._derived(call))
        except Exception as error:
            raise self.failures.of(call, error) from None
        return await forward(call)

    async def _derived(self, call: PlannedCall) -> Mapping[str, Any]:
        given = (call.context, shown(call.arguments))
        members = await self.function(*given[: self.function.parameters])
        if members is None:
            return {}
        if not isinstance(members, Mapping):
            raise CodeMistake(
                f"a middleware without next must return a mapping, not {type(members).__name__}"
            )
        return members

    async def _around(self, call: PlannedCall, behind: Next) -> Outcome:
        try:
            returned = await self.function(call.context, shown(call.arguments), behind)
            # ``return next()`` is what those write who come from other languages.
            value = await returned if inspect.isawaitable(returned) else returned
            return self._outcome(value, behind)
        except Exception as error:
            if error is behind.raised:
                raise
            raise self.failures.of(call, error) from None

    def _outcome(self, value: Any, behind: Next) -> Outcome:
        outcome = behind.outcome
        if outcome is not None and (value is None or value is behind.given):
            return outcome
        if value is None:
            raise CodeMistake(
                "the middleware returned nothing: it must return a result, or the return value of next"
            )
        if isinstance(value, Given):
            raise CodeMistake("the middleware returned the result of next from another call")
        result = as_result(value, structured=self.structured)
        if outcome is not None and outcome.shapable:
            return outcome.written(result)
        answered = Outcome.of(result)
        return Outcome(answered.result, answered.data, answered.blocks, final=True)


def _is_async(function: Callable[..., Any]) -> bool:
    innermost = inspect.unwrap(function)
    return inspect.iscoroutinefunction(innermost) or inspect.iscoroutinefunction(
        getattr(innermost, "__call__", None)  # noqa: B004  (an object is async by its method, which is asked here)
    )
