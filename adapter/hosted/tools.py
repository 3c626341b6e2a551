"""The offer of a hosted server: tools, the calls they get, also while these run, and the answers they give."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapter.pipeline.call import CallClient, CallTime, PlannedCall, ProgressReporter, Say, say_nothing
from adapter.pipeline.failures import Outcome
from adapter.pipeline.plan import GRACE, ToolPlan
from adapter.rules.access.principals import Caller
from adapter.rules.calls.input_schemas import DeclaredInputs
from adapter.upstream.local.messages import LocalAnswer, notification
from adapter.upstream.local.port import LocalRequest, ProgressToken
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.port import Fields


@dataclass(slots=True)
class ToolCall:
    """One ``tools/call`` as a tool gets it.

    ``say`` reaches the client where it listens in the same session. ``planned`` is the call as stages know it, put
    there by a tool that has any.
    """

    tool: str
    arguments: dict[str, Any]
    request: LocalRequest
    progress: ProgressReporter
    say: Say = say_nothing
    planned: PlannedCall | None = None

    @property
    def caller(self) -> Caller:
        """The principal that made the request of the relay."""
        return self.request.head.caller

    @property
    def headers(self) -> Fields:
        """The headers that the relay let pass, by lower-case name."""
        return self.request.head.fields

    @property
    def meta(self) -> Mapping[str, Any]:
        """The ``_meta`` of the request."""
        return self.request.meta

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The client's capabilities as it declared them, in its session or with this request."""
        return self.request.capabilities

    @property
    def session(self) -> str | None:
        """The id of the upstream session, None in the modern era."""
        return None if self.request.session is None else self.request.session.id


class Answered(Protocol):
    """The answer of a tool."""

    def as_result(self) -> dict[str, Any]:
        """The members of the JSON-RPC result."""


@dataclass(frozen=True, slots=True)
class CallLimit:
    """The ``seconds`` that a call of a tool may take in all.

    ``overdue`` gives the answer to one that takes longer, before it is cancelled; None: it is about to end by itself.
    It may raise CallRefused.
    """

    seconds: float
    overdue: Callable[[ToolCall], Answered | None]


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool: its ``definition`` in ``tools/list``, with at least ``name`` and ``inputSchema``, and ``run``.

    ``run`` may raise CallRefused or an AdapterError; anything else is logged and answered in general. It is
    cancelled when nobody waits for the answer any more, and at the ``limit``, of which there need not be one.
    """

    definition: Mapping[str, Any]
    run: Callable[[ToolCall], Awaitable[Answered]]
    limit: CallLimit | None = None

    @property
    def name(self) -> str:
        return str(self.definition["name"])


Work = Callable[[PlannedCall], Awaitable[Outcome]]
"""What a tool does with arguments that fit. Raises StageFailed."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A tool as the settings declare it, on the server of this id."""

    server: str
    name: str
    inputs: DeclaredInputs
    title: str | None = None
    description: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def definition(self) -> dict[str, Any]:
        """The tool's entry in ``tools/list``."""
        members = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.inputs.schema,
            "annotations": dict(self.annotations),
        }
        # A schema may be empty, and is required all the same.
        return {name: value for name, value in members.items() if value or name == "inputSchema"}

    def doing(
        self, work: Work, plan: ToolPlan, timeout: float, definition: Mapping[str, Any] | None = None
    ) -> HostedTool:
        """The tool with its work behind the stages of its plan, all within ``timeout`` seconds."""

        def planned(call: ToolCall) -> PlannedCall:
            session, caller = call.request.session, call.request.head.caller
            return PlannedCall(
                server=self.server,
                tool=self.name,
                arguments=call.arguments,
                execute=work,
                client=CallClient(caller, None if session is None else session.id, call.progress, call.say),
                time=CallTime(timeout, time.monotonic() + timeout, time.time() + timeout),
            )

        async def run(call: ToolCall) -> Outcome:
            call.planned = planned(call)
            return await plan.walk(call.planned)

        def overdue(call: ToolCall) -> Outcome | None:
            return plan.overdue(call.planned or planned(call))

        limit = CallLimit(timeout, overdue)
        return HostedTool(self.definition() if definition is None else definition, run, limit)


Overdue = Callable[[], LocalAnswer | None]
"""The answer to a call whose time has ended; None: it is about to end by itself."""


class RunningCall:
    """One call, and the ``reply`` that its client gets.

    ``token`` is the client's progress token, None where it wants no progress or can read no stream. ``ended`` is called
    once, when the tool has ended or was never begun. After ``limit`` seconds the call is answered by itself.
    """

    __slots__ = ("_alarm", "_ended", "_late", "_limit", "_overdue", "_percent", "_task", "_token", "reply")

    def __init__(
        self, token: ProgressToken | None, ended: Callable[[RunningCall], None], limit: float | None = None
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

    def begin(self, work: Callable[[], Awaitable[LocalAnswer]], overdue: Overdue | None = None) -> None:
        """Start ``work``, which answers every failure of the tool itself.

        At its limit it is cancelled, and the call is answered with what ``overdue`` gives, when the work has
        cleaned up or a moment later.
        """
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(work))
        # A task that is cancelled before its first step never runs its own ``finally``.
        self._task.add_done_callback(self._over)
        if self._limit is not None:
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
