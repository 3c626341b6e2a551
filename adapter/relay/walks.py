"""The walk of one planned call: a task that sleeps at its innermost point until the upstream has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import STAGE_FAILED, StageFailed, ToolRejected
from adapter.pipeline.limits import overdue
from adapter.pipeline.outcome import Outcome
from adapter.pipeline.plan import ToolPlan
from adapter.relay.stages import Withdrawn

TASK = "task"
"""The note of a planned call that says whether its client wants it to run as a task."""

NO_TASK = (
    "This tool cannot run as a task here: its result is made ready for its caller. Call it without a task."
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


class Walk:
    """One plan being walked in a task of its own.

    ``patience``: seconds after which it is given up where it neither comes to the tool nor, once that has answered, to
    its end. The user's own code is among the stages, and might never let go; None waits for ever.
    """

    def __init__(self, plan: ToolPlan, call: PlannedCall, patience: float | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._plan = plan
        self._arguments: Mapping[str, Any] | None = None
        self._moved: asyncio.Future[None] = loop.create_future()
        self._answered: asyncio.Future[Outcome] = loop.create_future()
        call.execute = self._execute
        self._signal = call.context.given_up
        self._patience = patience
        self._withdrawn = False
        self._task = loop.create_task(plan.walk(call))
        self._task.add_done_callback(self._over)

    async def to_the_tool(self) -> Mapping[str, Any] | Outcome:
        """The arguments that the tool gets, or the outcome if the walk ends before it. Raises as the plan does, and
        Withdrawn."""
        if not await self._in_time(self._moved):
            return self._overdue()
        if self._withdrawn:
            raise Withdrawn
        return self._task.result() if self._arguments is None or self._task.done() else self._arguments

    async def on(self, answer: Outcome | Rejected) -> Outcome:
        """Go on with what the tool answered. Raises as the plan does, and the rejection where no stage caught it."""
        if not self._answered.done():
            if isinstance(answer, Outcome):
                self._answered.set_result(answer)
            else:
                self._answered.set_exception(answer)
        if not await self._in_time(self._task):
            return self._overdue()
        return self._task.result()

    def withdraw(self) -> None:
        """The client gave the call up: it ends here unless it is the tool's already, who hears of it in its own way."""
        self._signal.abort()
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

    async def _in_time(self, step: asyncio.Future[Any]) -> bool:
        """Whether the step is done before the patience ends; it is left alone either way."""
        if step.done():
            return True
        done, _ = await asyncio.wait((step,), timeout=self._patience)
        return bool(done)

    def _overdue(self) -> Outcome:
        assert self._patience is not None, "without an end nothing is late"
        self._signal.abort()
        self.end()
        return self._plan.errors.outcome(overdue(self._plan.tool, self._patience))

    def _over(self, task: asyncio.Task[Outcome]) -> None:
        if not task.cancelled():
            # When the exchange is over nobody asks for it.
            task.exception()
        self._move()

    def _move(self) -> None:
        """The walk is at the tool, or over."""
        if not self._moved.done():
            self._moved.set_result(None)


Walks = dict[tuple[str, str | int | float], Walk]
"""By the key of the session and the id of the request."""
