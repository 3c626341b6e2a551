"""The offer of a hosted server: tools, the calls they get and the answers they give."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapter.pipeline.call import PlannedCall, ProgressReporter, Say, say_nothing
from adapter.rules.access.callers import NOBODY, Caller
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
