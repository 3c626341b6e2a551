"""Plans: the stages of one tool, compiled once and walked by every call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Literal

from structlog.typing import FilteringBoundLogger

from adapter.errors import ToolUnknown
from adapter.pipeline.call import Forward, PlannedCall, PlanStage, SafeStage
from adapter.pipeline.failures import DOING, ErrorStyle, Outcome, Stage, StageFailed
from adapter.pipeline.limits_stage import CountingStage
from adapter.pipeline.order import Part, Slot
from adapter.pipeline.tracing import WalkRecorder
from adapter.rules.results import refusals
from adapter.rules.results.outcomes import TRACE_KEY
from adapter.rules.results.short_json import limited

Listed = Callable[[PlannedCall], Awaitable[bool]]
"""Whether the upstream lists the call's tool by this very name."""


@dataclass(eq=False)
class NameStage:
    """A PlanStage for a name that differs only in case or form from a name with other stages.

    An upstream that ignores such differences would run that tool without its stages, so the name has to be a tool's
    own.
    """

    tool: str
    listed: Listed

    def __repr__(self) -> str:
        return f"<NameStage of {self.tool!r}>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage. Raises ToolUnknown, and what the upstream raises."""
        if not await self.listed(call):
            raise ToolUnknown(f"Unknown tool: {self.tool}")
        return await forward(call)


GRACE = 0.1
"""Seconds that cancelled code gets to clean up before its caller is answered."""

LEFT_OVER_AT_MOST = 100
"""Calls of one tool that were given up and have not ended: with so many no other is begun."""


def overdue(stage: Stage, tool: str, seconds: float) -> StageFailed:
    """Return the failure of a call of ``tool`` whose ``seconds`` ended at ``stage``."""
    took = f"timed out after {seconds:g} s"
    if stage == "context":
        return StageFailed(stage, DOING[stage], "timeout")
    if stage in DOING:
        return StageFailed(stage, f"{DOING[stage]} for tool {tool}: {took}", "timeout")
    if stage == "auth":
        return StageFailed(stage, f"unauthorized: {took}", "timeout")
    if stage == "validation":
        return StageFailed(stage, f"input validation failed: {took}", "timeout")
    if stage == "connector":
        late = f"the statement took longer than {seconds:g} s"
        return StageFailed(stage, f"tool execution failed: failed to execute query: {late}", "timeout")
    return StageFailed.worded(stage, refusals.timed_out(tool, seconds=seconds), "timeout")


def crowded(tool: str) -> StageFailed:
    """Return the refusal of a call of ``tool``, of which too many are left over."""
    return StageFailed("limits", f"too many abandoned calls of {tool} are still running", "busy")


Kind = Literal["proxied", "script", "statement"]

_FAILS_AS: Mapping[Slot, Stage | SafeStage] = {
    Slot.RESOLVE: "resolve",
    Slot.CONTEXT: "context",
    Slot.AUTH: "auth",
    Slot.LIMITS: "limits",
    Slot.INPUT_TRANSFORM: "input_transform",
    Slot.VALIDATE: "validation",
    Slot.MIDDLEWARE: "middleware",
    # It takes long only where it waits for another call.
    Slot.CACHE: "limits",
    Slot.OUTPUT_TRANSFORM: "output_transform",
    Slot.PRESENTER: "presenter",
    Slot.STATE_SYNC: "state_sync",
}
"""The stage that a failure names, by the slot of the stage that failed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a plan in its slot; ``detail`` says how it is set.

    ``works`` is when it works where that is not what its slot says.
    """

    slot: Slot
    detail: str
    run: PlanStage
    works: Part | None = None

    @property
    def part(self) -> Part:
        """When it works: on the way to the tool, with the answer of the tool, or both."""
        return self.works or self.slot.part

    @property
    def reshapes(self) -> bool:
        """Tell whether it changes the answer of the tool, so that no answer may leave without it."""
        return self.part != "before"


@dataclass(eq=False)
class ToolPlan:
    """The plan of one tool. ``egress`` is the most bytes of one result, None: any number.

    ``steps`` are sorted by their slots, in whatever order they are given; those of one slot keep theirs. They are
    around each other, the first outermost. Every call ends with ``Slot.FINISH``: failures become results, and no
    result is larger than allowed.
    """

    tool: str
    kind: Kind
    steps: Sequence[Step]
    errors: ErrorStyle
    egress: int | None = field(default=None, kw_only=True)
    observing: WalkRecorder | None = field(default=None, kw_only=True)
    log: FilteringBoundLogger | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.steps = tuple(sorted(self.steps, key=lambda step: step.slot.depth))
        self.left_over = 0
        self.reshapes = self.egress is not None or any(step.reshapes for step in self.steps)
        """Whether the caller may not see the tool's own answer."""
        self.is_empty = not self.steps and self.egress is None and self.observing is None
        """Whether a call passes it as if there were no plan."""
        self._walk = _composed(
            self.steps, "connector" if self.kind == "statement" else "handler", self.observing
        )
        if self.observing is not None:
            self._walk = self.observing.whole(self.kind, self._walk)

    def __repr__(self) -> str:
        return (
            f"<ToolPlan of {self.tool!r}: {', '.join(step.slot.label for step in self.steps) or 'nothing'}>"
        )

    @property
    def idle(self) -> bool:
        """Tell whether no call is under way or counted by a limit, so that nothing is lost with this plan."""
        return not self.left_over and all(
            step.run.idle for step in self.steps if isinstance(step.run, CountingStage)
        )

    async def walk(self, call: PlannedCall) -> Outcome:
        """Return the outcome of a call. Raises CallRefused, and the errors of the call's ``execute``.

        When the walk is cancelled, the call's signal is aborted.
        """
        if self.left_over >= LEFT_OVER_AT_MOST:
            return self.errors.outcome(crowded(self.tool))
        call.time.walking = True
        try:
            outcome = await self._walk(call)
        except StageFailed as failed:
            outcome = self.errors.outcome(failed)
        except BaseException:
            call.signal.abort()
            raise
        finally:
            if call.time.overdue is not None:
                self.left_over -= 1
        if self.egress is not None:
            outcome = self._limited(outcome, self.egress)
        return _traceable(outcome, call) if call.client.caller.entrance == "http" else outcome

    def overdue(self, call: PlannedCall) -> Outcome | None:
        """Return the outcome of a call whose time has ended, and which is to be cancelled. None if it goes on,
        because its tool has done its work and only listeners are informed. Raises CallRefused in the mode
        ``jsonrpc``.

        Until its walk ends the call is counted in ``left_over``.
        """
        time = call.time
        if time.at == "state_sync":
            return None
        assert time.seconds is not None, "without an end nothing is late"
        failed = time.overdue = overdue(time.at, self.tool, time.seconds)
        self.left_over += time.walking
        call.signal.abort()
        if self.log is not None:
            self.log.warning("a call took longer than it may", tool=self.tool, stage=failed.stage)
        if self.observing is not None:
            self.observing.overdue(call, failed)
        outcome = self.errors.outcome(failed)
        return _traceable(outcome, call) if call.client.caller.entrance == "http" else outcome

    def _limited(self, outcome: Outcome, egress: int) -> Outcome:
        result = limited(outcome.result, egress)
        return outcome if result is outcome.result else Outcome(result, final=True)


def _traceable(outcome: Outcome, call: PlannedCall) -> Outcome:
    """Return the outcome with its trace id: the current one, or the one that a script has set."""
    trace_id = call.context.get("trace_id")
    return outcome if trace_id in (None, "") else outcome.with_meta(TRACE_KEY, str(trace_id))


def _composed(steps: Sequence[Step], work: Stage, observing: WalkRecorder | None) -> Forward:
    execute = _execute if observing is None else observing.work(_execute)
    walk: Forward = partial(_working, work, execute)
    for step in reversed(steps):
        run = step.run if observing is None else observing.step(step.slot.label, step.part, step.run)
        walk = partial(_around, _FAILS_AS.get(step.slot, work), run, walk)
    return walk


def _execute(call: PlannedCall) -> Awaitable[Outcome]:
    return call.execute(call)


def _working(stage: Stage, execute: Forward, call: PlannedCall) -> Awaitable[Outcome]:
    time = call.time
    if time.until is not None and monotonic() >= time.until:
        raise _between(call)
    time.at = stage
    return execute(call)


def _around(
    stage: Stage | SafeStage, run: PlanStage, forward: Forward, call: PlannedCall
) -> Awaitable[Outcome]:
    time = call.time
    if time.until is not None and monotonic() >= time.until:
        raise _between(call)
    time.at = stage
    return run(call, forward)


def _between(call: PlannedCall) -> StageFailed:
    """The failure of a call whose time ended in a stage that did not let go of the event loop."""
    at, seconds = call.time.at, call.time.seconds
    assert at != "state_sync" and seconds is not None, "a call with an end is on its way to its tool"
    return overdue(at, call.tool, seconds)
