"""The offer of a hosted server: tools, the calls they get and the answers they give."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapter.pipeline.call import CallTime, PlannedCall, ProgressReporter, Say, say_nothing
from adapter.pipeline.failures import Outcome
from adapter.pipeline.plan import ToolPlan
from adapter.rules.access.principals import NOBODY, Caller
from adapter.rules.calls.input_schemas import DeclaredInputs
from adapter.upstream.port import Fields
from adapter.wire.eras import Era


@dataclass(slots=True)
class ToolCall:
    """One ``tools/call`` as a tool gets it.

    ``headers`` are those that the relay let pass, by lower-case name; ``caller`` is who made the request of the relay.
    ``say`` reaches the client where it listens in the same session. ``planned`` is the call as stages know it, put
    there by a tool that has any.
    ``capabilities`` are the client's as it declared them, in its session or with this request. ``session`` is the
    upstream session's id, None in the modern era. ``meta`` is the ``_meta`` of the request.
    """

    tool: str
    arguments: dict[str, Any]
    era: Era
    progress: ProgressReporter
    headers: Fields = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    session: str | None = None
    caller: Caller = NOBODY
    say: Say = say_nothing
    planned: PlannedCall | None = None


class Answered(Protocol):
    """The answer of a tool."""

    def as_result(self) -> dict[str, Any]:
        """The members of the JSON-RPC result."""


@dataclass(frozen=True, slots=True)
class CallLimit:
    """``seconds`` are how long calls of a tool may take in all. ``overdue`` gives what one that takes longer is
    answered with, before it is cancelled; None: it is about to end by itself. May raise CallRefused.
    """

    seconds: float
    overdue: Callable[[ToolCall], Answered | None]


@dataclass(frozen=True, slots=True)
class HostedTool:
    """``definition`` is the entry of ``tools/list`` with at least ``name`` and ``inputSchema``; ``run`` does the work.

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
    """A tool as it is declared, on a server of this id."""

    server: str
    name: str
    inputs: DeclaredInputs
    title: str | None = None
    description: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def definition(self) -> dict[str, Any]:
        """Its entry in ``tools/list``."""
        shown: dict[str, Any] = {"name": self.name}
        if self.title:
            shown["title"] = self.title
        if self.description:
            shown["description"] = self.description
        shown["inputSchema"] = self.inputs.schema
        if self.annotations:
            shown["annotations"] = dict(self.annotations)
        return shown

    def doing(
        self, work: Work, plan: ToolPlan, timeout: float, definition: Mapping[str, Any] | None = None
    ) -> HostedTool:
        """The tool, with what it does behind the stages of its plan, all within ``timeout`` seconds."""

        def planned(call: ToolCall) -> PlannedCall:
            return PlannedCall(
                server=self.server,
                tool=self.name,
                arguments=call.arguments,
                execute=work,
                caller=call.caller,
                session=call.session,
                progress=call.progress,
                say=call.say,
                deadline=time.time() + timeout,
                time=CallTime(timeout, time.monotonic() + timeout),
            )

        async def run(call: ToolCall) -> Outcome:
            call.planned = planned(call)
            return await plan.walk(call.planned)

        def overdue(call: ToolCall) -> Outcome | None:
            return plan.overdue(call.planned or planned(call))

        limit = CallLimit(timeout, overdue)
        return HostedTool(self.definition() if definition is None else definition, run, limit)
