"""A tool call on its way through its plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from adapter.pipeline.context import AuthRequest, Context
from adapter.rules.access.principals import NOBODY, Caller

if TYPE_CHECKING:
    from adapter.pipeline.failures import Outcome, Stage, StageFailed

SafeStage = Literal["state_sync"]
"""The stage that a call cannot fail at: the tool has done its work."""


class ProgressReporter(Protocol):
    """Tells the client how far a call is.

    It tells nothing to a client that did not ask, nor what is no further than before. It waits while the client has
    not read what was told until now.
    """

    async def __call__(self, percent: float, message: str | None = None) -> None:
        """``percent`` of 100, and a sentence."""


async def tell_nobody(percent: float, message: str | None = None) -> None:
    """A Progress where nobody asked."""


Say = Callable[[str, Mapping[str, Any]], None]
"""A notification to the call's client outside of the call, where it listens: method and params."""


def say_nothing(method: str, params: Mapping[str, Any]) -> None:
    """A Say where nobody listens."""


@dataclass(slots=True)
class CallTime:
    """The progress of a call, and the time that its stages may take.

    They may take ``seconds``, which end at ``until`` on the monotonic clock; ``until`` is None while no time is
    counted. ``at`` is the stage that the call has reached, ``walking`` says that it has begun, ``overdue`` is the
    failure of a call whose time has ended.
    """

    seconds: float | None = None
    until: float | None = None
    at: Stage | SafeStage = "resolve"
    walking: bool = False
    overdue: StageFailed | None = None


@dataclass(slots=True)
class PlannedCall:
    """One ``tools/call``. Stages change ``arguments`` by putting another mapping there, never in place.

    ``tool`` is the name as clients see it. ``execute`` does the work at the innermost point of the plan.
    ``session`` tells callers of one principal apart, None where there are no sessions. ``deadline`` is Unix time in
    seconds, for the user's code to read; ``time`` is what the adapter goes by. ``given`` is the context where somebody
    has one already. ``identity`` is whom the tool's own check found, ``select`` what of the data the caller wants to
    see.
    ``continues``: the call is more than its arguments, as it answers a question of the tool's or wants to be a task.
    """

    server: str
    tool: str
    arguments: Mapping[str, Any]
    execute: Callable[[PlannedCall], Awaitable[Outcome]]
    given: Context | None = None
    caller: Caller = NOBODY
    session: str | None = None
    progress: ProgressReporter = tell_nobody
    say: Say = say_nothing
    deadline: float | None = None
    time: CallTime = field(default_factory=CallTime)
    identity: Any = None
    select: tuple[str, ...] | None = None
    continues: bool = False
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> Context:
        """The part of the call that the user's code may know; made on first use, as most calls never need it."""
        if self.given is None:
            request = AuthRequest.of(self.server, self.tool, self.caller)
            self.given = Context.of(request, self.deadline)
        return self.given

    @context.setter
    def context(self, context: Context) -> None:
        self.given = context


Forward = Callable[[PlannedCall], Awaitable["Outcome"]]
"""The rest of a plan, seen from one of its stages."""


class PlanStage(Protocol):
    """One step around all those behind it: whoever does not call ``forward`` ends the walk."""

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """Raises StageFailed when this stage refuses or fails."""
