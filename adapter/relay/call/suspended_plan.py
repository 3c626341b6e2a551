"""The walk of one planned call: a task that sleeps at its innermost point until the upstream has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any

from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import STAGE_FAILED, CallRefused, Outcome, StageFailed, ToolRejected
from adapter.pipeline.plan import GRACE, ToolPlan
from adapter.relay.stages import Withdrawn

TASK = "task"
"""The note of a planned call that says whether its client wants it to run as a task."""

NO_TASK = (
    "This tool cannot run as a task here, because the adapter processes its result. Call it without a task."
)


class Rejected(ToolRejected):
    """With the response that leaves where no stage makes something of it."""

    def __init__(self, error: object, response: bytes) -> None:
        members = error if isinstance(error, dict) else {}
        code, said = members.get("code"), members.get("message")
        super().__init__(
            code if type(code) is int else STAGE_FAILED,
            said if isinstance(said, str) else "The upstream server refused the call.",
        )
        self.response = response


class SuspendedPlan:
    """One plan being walked in a task of its own.

    The stages on both sides of the tool have the call's time together, which stands still while the tool works; then
    they are cancelled. The user's own code is among them, and might never let go.
    """

    def __init__(self, plan: ToolPlan, call: PlannedCall) -> None:
        loop = asyncio.get_running_loop()
        self._plan = plan
        self._call = call
        self._arguments: Mapping[str, Any] | None = None
        self._turn: asyncio.Future[None] = loop.create_future()
        self._answered: asyncio.Future[Outcome] = loop.create_future()
        call.execute = self._execute
        self._left = call.time.seconds
        self._late: Callable[[], Outcome] | None = None
        self._withdrawn = False
        self._task = loop.create_task(plan.walk(call))
        self._task.add_done_callback(self._over)

    async def to_the_tool(self) -> Mapping[str, Any] | Outcome:
        """The arguments that the tool gets, or the outcome if the walk ends before it. Raises as the plan does, and
        Withdrawn."""
        if not self._turn.done():
            await self._in_time()
        if self._withdrawn:
            raise Withdrawn
        if self._late is not None:
            return self._late()
        return self._task.result() if self._arguments is None or self._task.done() else self._arguments

    async def on(self, answer: Outcome | Rejected) -> Outcome:
        """Go on with what the tool answered. Raises as the plan does, and the rejection where no stage caught it."""
        if not self._task.done():
            self._turn = self._task.get_loop().create_future()
            if not self._answered.done():
                if isinstance(answer, Outcome):
                    self._answered.set_result(answer)
                else:
                    self._answered.set_exception(answer)
            await self._in_time()
        return self._task.result() if self._late is None else self._late()

    def withdraw(self) -> None:
        """The client gave the call up: it ends here unless it is the tool's already, who hears of it in its own way."""
        self._call.signal.abort()
        if self._arguments is None and not self._task.done():
            self._withdrawn = True
            self._task.cancel()

    def end(self) -> None:
        """The exchange is over. Harmless when the walk is."""
        self._task.cancel()
        if not self._answered.done():
            self._answered.cancel()

    async def _execute(self, call: PlannedCall) -> Outcome:
        if self._arguments is not None:
            raise RuntimeError("a call goes to its tool once")
        if call.notes.get(TASK) and self._plan.reshapes:
            raise StageFailed("context", NO_TASK)
        self._arguments = call.arguments
        self._move()
        return await self._answered

    async def _in_time(self) -> None:
        """Wait until the walk has come to the next place where it stands still, or its time is over."""
        time, alarm, loop = self._call.time, None, self._task.get_loop()
        if self._left is not None:
            time.until = monotonic() + self._left
        try:
            # Most walks come there in the one turn that their task has now, and need no alarm.
            await asyncio.sleep(0)
            if not (self._turn.done() or self._task.done()):
                if time.until is not None:
                    alarm = loop.call_later(max(0.0, time.until - monotonic()), self._expire)
                await self._turn
        finally:
            if alarm is not None:
                alarm.cancel()
            if time.until is not None:
                self._left, time.until = max(0.0, time.until - monotonic()), None

    def _expire(self) -> None:
        """The time is over: cancel the stages, and wait for them no longer than they may take to clean up."""
        if self._turn.done():
            return
        try:
            outcome = self._plan.overdue(self._call)
        except CallRefused as refused:
            self._late = partial(_raise, refused)
        else:
            if outcome is None:
                return
            self._late = lambda: outcome
        self.end()
        self._task.get_loop().call_later(GRACE, self._move)

    def _over(self, task: asyncio.Task[Outcome]) -> None:
        # The call knows its walk by this alone: both would stay until the collector comes by.
        self._call.execute = _ended
        if not task.cancelled():
            # When the exchange is over nobody asks for it.
            task.exception()
        self._move()

    def _move(self) -> None:
        """The walk is at the tool, or over."""
        if not self._turn.done():
            self._turn.set_result(None)


async def _ended(_: PlannedCall) -> Outcome:
    raise RuntimeError("the walk of this call has ended")


def _raise(refused: CallRefused) -> Outcome:
    raise refused
