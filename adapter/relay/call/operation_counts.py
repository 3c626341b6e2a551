"""Counts of what passes through the relay: calls of tools, and all other MCP operations of clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.rules.calls.request_outcomes import RequestOutcome
from adapter.rules.metrics.catalogue import (
    ARTIFACT_BYTES,
    ARTIFACT_DOWNLOADS,
    ARTIFACT_DURATION,
    SERVER_OPERATION,
    TOOL_CALL_DURATION,
    TOOL_CALLS,
)
from adapter.rules.metrics.labels import ToolNames, labels_of, method_name
from adapter.rules.metrics.metric import MetricSink, WaitingTimes

CALL, LIST, LISTEN, READ = "tools/call", "tools/list", "subscriptions/listen", "resources/read"

LOOKED_AT = frozenset({LIST, READ})
"""Methods whose answers count for more than their time."""


class ServerOperations:
    """The operations of one server: ``active`` ones, ``streams`` without an end, and the names of its ``tools``."""

    __slots__ = ("active", "id", "streams", "tools")

    def __init__(self, server: str, tools: ToolNames) -> None:
        self.id = server
        self.tools = tools
        self.active = 0
        self.streams = 0

    def __repr__(self) -> str:
        return f"<ServerOperations of {self.id!r}: {self.active} active>"


class MeasuredOperation(NamedTuple):
    """A message of a client that is being answered. ``requests`` are the method and name of each of its members.

    ``began`` is a moment of the performance counter.
    """

    server: ServerOperations
    requests: tuple[tuple[str, str | None], ...]
    version: str | None
    trace: str | None
    began: float

    def listed(self, body: bytes, *, streams: bool) -> None:
        """Keep the names of tools that the answer lists, if it is a list."""
        if self.requests[0][0] == LIST:
            self.server.tools.listed(body, streams=streams)


_Alike = tuple[ServerOperations, str, str | None, str | None, RequestOutcome]
"""What operations have in common that are counted together: server, method, name, version and outcome."""


@dataclass(eq=False, repr=False)
class OperationCounts:
    """Counts into ``sink``, what is ``waiting`` when that is flushed. ``servers`` has the operations of each server.
    URIs of artifacts begin with ``artifacts``. ``trace`` returns the id of the current trace, None outside of any; it
    is None where no traces are recorded.
    """

    sink: MetricSink
    servers: dict[str, ServerOperations]
    artifacts: str
    trace: Callable[[], str | None] | None = None

    def __post_init__(self) -> None:
        self.waiting: WaitingTimes[_Alike] = WaitingTimes(self._count)

    def end(self, operation: MeasuredOperation, outcome: RequestOutcome, size: int = 0) -> None:
        """Note an operation that is over; its answer had so many bytes."""
        server, requests, version, trace, began = operation
        server.active -= 1
        seconds = time.perf_counter() - began
        for method, name in requests:
            if method == READ and name is not None and name.startswith(self.artifacts):
                self._count_read(server.id, outcome, seconds, size)
                # A batch has one answer, however many of its members are reads.
                size = 0
            self.waiting.add((server, method, name, version, outcome), seconds, trace)

    def _count(self, operation: _Alike, times: Sequence[float], traces: Sequence[str]) -> None:
        server, method, name, version, outcome = operation
        tool, labels = "", labels_of(outcome)
        if method == CALL:
            tool = server.tools.label(name, outcome)
            call = (server.id, tool, labels.outcome)
            self.sink.count(TOOL_CALLS, *call, by=len(times))
            self.sink.observe_all(TOOL_CALL_DURATION, times, *call, traces=traces)
        if method and method != LISTEN:
            ended = (labels.error_type, labels.status_code, version or "", "tcp")
            self.sink.observe_all(SERVER_OPERATION, times, server.id, method_name(method), tool, *ended)

    def _count_read(self, server: str, outcome: RequestOutcome, seconds: float, size: int) -> None:
        result = labels_of(outcome).outcome
        self.sink.count(ARTIFACT_DOWNLOADS, server, result)
        self.sink.observe(ARTIFACT_DURATION, seconds, server, result)
        self.sink.count(ARTIFACT_BYTES, server, by=size)
