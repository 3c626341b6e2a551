"""Plans: the stages of one tool in the order things happen, compiled once and walked by every call."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from adapter.pipeline.call import Forward, PlannedCall, PlanStage
from adapter.pipeline.failures import ErrorStyle, StageFailed
from adapter.pipeline.limits import Counting
from adapter.pipeline.outcome import Outcome
from adapter.pipeline.tracing import Observing
from adapter.rules.egress import limited

TRACE_KEY = "_trace_id"
"""The member of a result's ``_meta`` with its trace, for callers over HTTP."""

Kind = Literal["proxied", "script", "statement"]


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a plan. ``number`` and ``name`` are those of the documented order, ``detail`` says how it is set."""

    number: int
    name: str
    detail: str
    run: PlanStage
    reshapes: bool = False
    """Whether it changes what the tool answers, so that an answer must not leave without it."""


class ToolPlan:
    """The plan of one tool; immutable. ``egress`` is the most bytes of one result, None: any number.

    ``steps`` are around each other in their order, the first outermost; around them all stands what every call
    ends with: failures become results, and no result is larger than allowed.
    """

    def __init__(
        self,
        tool: str,
        kind: Kind,
        steps: Sequence[Step],
        errors: ErrorStyle,
        *,
        egress: int | None = None,
        observing: Observing | None = None,
    ) -> None:
        self.tool = tool
        self.kind = kind
        self.steps = tuple(steps)
        self.errors = errors
        self.egress = egress
        self._walk = _composed(self.steps, observing)
        if observing is not None:
            self._walk = observing.whole(kind, self._walk)

    def __repr__(self) -> str:
        return f"<ToolPlan of {self.tool!r}: {', '.join(step.name for step in self.steps) or 'nothing'}>"

    @property
    def reshapes(self) -> bool:
        """Whether the tool's own answer is not what its caller may see."""
        return self.egress is not None or any(step.reshapes for step in self.steps)

    @property
    def idle(self) -> bool:
        """Whether no call is under way or counted by a limit, so that nothing is forgotten with this plan."""
        return all(step.run.idle for step in self.steps if isinstance(step.run, Counting))

    async def walk(self, call: PlannedCall) -> Outcome:
        """The outcome of a call. Raises CallRefused, and what the call's ``execute`` raises.

        When the walk is cancelled, whoever watches the call's signal is told.
        """
        try:
            outcome = await self._walk(call)
        except StageFailed as failed:
            outcome = self.errors.outcome(failed)
        except BaseException:
            call.context.given_up.abort()
            raise
        if self.egress is not None:
            outcome = self._limited(outcome, self.egress)
        return _traceable(outcome, call) if call.caller.entrance == "http" else outcome

    def _limited(self, outcome: Outcome, egress: int) -> Outcome:
        result = limited(outcome.result, egress)
        return outcome if result is outcome.result else Outcome(result, final=True)


def _traceable(outcome: Outcome, call: PlannedCall) -> Outcome:
    """The outcome with the trace it is found by: the current one, or what a script has put there."""
    trace_id = call.context.get("trace_id")
    return outcome if trace_id in (None, "") else outcome.with_meta(TRACE_KEY, str(trace_id))


def _composed(steps: Sequence[Step], observing: Observing | None) -> Forward:
    walk: Forward = _execute if observing is None else observing.stage("execute", _execute)
    for step in reversed(steps):
        around: Forward = partial(_around, step.run, walk)
        walk = around if observing is None else observing.stage(step.name, around)
    return walk


def _execute(call: PlannedCall) -> Awaitable[Outcome]:
    return call.execute(call)


def _around(run: PlanStage, forward: Forward, call: PlannedCall) -> Awaitable[Outcome]:
    return run(call, forward)
