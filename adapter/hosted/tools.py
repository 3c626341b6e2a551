"""The offer of a hosted server: tools, the calls they get, also while these run, and the answers they give."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.pipeline.call import CallClient, CallTime, PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.pipeline.plan import GRACE, ToolPlan
from adapter.rules.calls.input_schemas import DeclaredInputs
from adapter.upstream.local.port import ProgressToken
from adapter.upstream.local.replies import LocalAnswer, PendingReply, notification

Work = Callable[[PlannedCall], Awaitable[Outcome]]
"""What a tool does with arguments that fit. Raises StageFailed."""


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool of ``server``: its ``definition`` in ``tools/list``, with at least ``name`` and ``inputSchema``, and its
    ``work`` behind the stages of its ``plan``, all within ``timeout`` seconds.

    The work is cancelled when nobody waits for the answer any more, and when its time has ended.
    """

    server: str
    definition: Mapping[str, Any]
    work: Work
    plan: ToolPlan
    timeout: float

    @property
    def name(self) -> str:
        return str(self.definition["name"])

    def called(self, arguments: Mapping[str, Any], client: CallClient) -> PlannedCall:
        """One call of it, whose time begins now."""
        timeout = self.timeout
        call_time = CallTime(timeout, time.monotonic() + timeout, time.time() + timeout)
        return PlannedCall(self.server, self.name, arguments, self.work, client=client, time=call_time)


def definition_of(
    name: str,
    inputs: DeclaredInputs,
    title: str | None,
    description: str,
    annotations: Mapping[str, Any],
) -> dict[str, Any]:
    """The entry in ``tools/list`` of a tool as the settings declare it."""
    members = {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": inputs.schema,
        "annotations": dict(annotations),
    }
    # A schema may be empty, and is required all the same.
    return {key: value for key, value in members.items() if value or key == "inputSchema"}


Overdue = Callable[[], LocalAnswer | None]
"""The answer to a call whose time has ended; None: it is about to end by itself."""


class RunningCall:
    """One call, and the ``reply`` that its client gets.

    ``token`` is the client's progress token, None where it wants no progress or can read no stream. ``ended`` is called
    once, when the tool has ended or was never begun. After ``limit`` seconds the call is answered by itself.
    """

    __slots__ = ("_alarm", "_ended", "_late", "_limit", "_overdue", "_percent", "_task", "_token", "reply")

    def __init__(
        self, token: ProgressToken | None, ended: Callable[[RunningCall], None], limit: float
    ) -> None:
        self.reply = PendingReply(self.cancel, limit)
        self._token = token
        self._ended = ended
        self._limit = limit
        self._percent = -1.0
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._overdue: Overdue | None = None
        self._late: LocalAnswer | None = None

    def begin(self, work: Callable[[], Awaitable[LocalAnswer]], overdue: Overdue) -> None:
        """Start ``work``, which answers every failure of the tool itself.

        At its limit it is cancelled, and the call is answered with what ``overdue`` gives, when the work has
        cleaned up or a moment later.
        """
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(work))
        # A task that is cancelled before its first step never runs its own ``finally``.
        self._task.add_done_callback(self._over)
        self._overdue = overdue
        self._alarm = loop.call_later(self._limit, self._expire)

    async def progress(self, percent: float, message: str | None = None) -> None:
        """See ProgressReporter."""
        if self._token is None or percent <= self._percent:
            return
        # "The progress value MUST increase with each notification" (both eras, "Progress").
        self._percent = percent
        params = {"progressToken": self._token, "progress": percent, "total": 100}
        if message is not None:
            params["message"] = message
        await self.reply.send(notification("notifications/progress", params))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def wait(self) -> None:
        """Wait until the tool has ended, whichever way."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _run(self, work: Callable[[], Awaitable[LocalAnswer]]) -> None:
        answer = await work()
        # Not only when the task is over, which its own loop tells in one more turn.
        if self._late is None:
            self.reply.answer(answer)

    def _expire(self) -> None:
        """Cancel the tool at its limit, and wait for it no longer than it may take to clean up."""
        assert self._overdue is not None and self._task is not None, "the alarm is set with both"
        if self._task.done():
            return
        self._late = self._overdue()
        if self._late is not None:
            self._task.cancel()
            self._alarm = self._task.get_loop().call_later(GRACE, self.reply.answer, self._late)

    def _over(self, task: asyncio.Task[None]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._late is not None and not self.reply.withdrawn:
            self.reply.answer(self._late)
        self.reply.end()
        if not task.cancelled():
            task.exception()
        # Each of them knows this call, and all would stay until the collector comes by.
        self._task = self._alarm = self._overdue = None
        self._ended(self)
