"""The offer of a hosted server: tools, the calls they get and the answers they give."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapter.pipeline.call import CallClient, CallTime, PlannedCall, ProgressReporter, Say, say_nothing
from adapter.pipeline.failures import Outcome
from adapter.pipeline.plan import ToolPlan
from adapter.rules.access.principals import Caller
from adapter.rules.calls.input_schemas import DeclaredInputs
from adapter.upstream.local.port import LocalRequest
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
