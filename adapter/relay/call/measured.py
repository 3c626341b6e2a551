"""The relay with counts of what passes through it: calls of tools, and all other MCP operations of clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import NamedTuple

from adapter.errors import AdapterError, InternalError
from adapter.relay.call.dispatch import Relay
from adapter.relay.exchange import ClientRequest, ClientResponse, Flow, both
from adapter.rules.metrics.catalogue import (
    ARTIFACT_BYTES,
    ARTIFACT_DOWNLOADS,
    ARTIFACT_DURATION,
    SERVER_OPERATION,
    TOOL_CALL_DURATION,
    TOOL_CALLS,
)
from adapter.rules.metrics.operations import (
    CLIENT_GONE,
    FAILING,
    LOOKED_INTO,
    OK,
    UNANSWERED,
    OperationOutcome,
    combined,
    data_of_events,
    data_read,
    has_many_lines,
    known_version,
    method_name,
    named_in,
    outcome_in,
    outcome_of_error,
    outcome_of_status,
)
from adapter.rules.metrics.port import MetricSink
from adapter.rules.metrics.tool_names import ToolNames, names_in_list
from adapter.rules.metrics.waiting_times import MOST_WAITING, WaitingTimes
from adapter.upstream.port import Along, Sink, header
from adapter.wire.envelope import Batch, Envelope
from adapter.wire.sse import SseReader

CALL, LIST, LISTEN, READ = "tools/call", "tools/list", "subscriptions/listen", "resources/read"

_LOOKED_AT = frozenset({LIST, READ})
"""Methods whose answers count for more than their time."""

LONGEST_LIST = 256 << 10
"""Bytes of a list of tools from which names are learned."""


class ToolLabels:
    """The ``names`` of one server's tools, with the last list that nobody has read yet."""

    def __init__(self, names: ToolNames) -> None:
        self.names = names
        self._unread: tuple[bytes, bool] | None = None

    def __repr__(self) -> str:
        return f"<ToolLabels: {self.names!r}>"

    def listed(self, body: bytes, *, streams: bool) -> None:
        """Keep a list, which is read when a tool is called that is not known."""
        if len(body) <= LONGEST_LIST and not self.names.full:
            self._unread = (body, streams)

    def label(self, name: str | None, outcome: OperationOutcome) -> str:
        """The label of a tool that was called, with that outcome."""
        if name is not None and not self.names.knows(name):
            if outcome.has_result:
                self.names.learn((name,))
            elif self._unread is not None:
                body, streams = self._unread
                self._unread = None
                for data in data_of_events(body) if streams else [body]:
                    self.names.learn(names_in_list(data))
        return self.names.label(name)


class ServerOperations:
    """The operations of one server: ``active`` ones, ``streams`` without an end, and the labels of its ``tools``."""

    __slots__ = ("active", "id", "streams", "tools")

    def __init__(self, server: str, tools: ToolLabels) -> None:
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


_Alike = tuple[ServerOperations, str, str | None, str | None, OperationOutcome]
"""What operations have in common that are counted together: server, method, name, version and outcome."""


class OperationCounts:
    """Counts into ``sink``, what is ``waiting`` when that is flushed. ``servers`` has the operations of each server.
    URIs of artifacts begin with ``artifacts``. ``trace`` returns the id of the current trace, None outside of any; it
    is None where no traces are recorded.
    """

    def __init__(
        self,
        sink: MetricSink,
        servers: Mapping[str, ServerOperations],
        artifacts: str,
        trace: Callable[[], str | None] | None = None,
    ) -> None:
        self.servers = servers
        self.trace = trace
        self.waiting: WaitingTimes[_Alike] = WaitingTimes(self._count)
        self._artifacts = artifacts
        self._sink = sink

    def __repr__(self) -> str:
        return f"<OperationCounts: {self.waiting!r}>"

    def end(self, operation: MeasuredOperation, outcome: OperationOutcome, size: int = 0) -> None:
        """Note an operation that is over; its answer had so many bytes."""
        server, requests, version, trace, began = operation
        server.active -= 1
        seconds = time.perf_counter() - began
        for method, name in requests:
            if method == READ and name is not None and name.startswith(self._artifacts):
                self._count_read(server.id, outcome, seconds, size)
                # A batch has one answer, however many of its members are reads.
                size = 0
            self.waiting.add((server, method, name, version, outcome), seconds, trace)

    def _count(self, operation: _Alike, times: Sequence[float], traces: Sequence[str]) -> None:
        server, method, name, version, outcome = operation
        tool = ""
        if method == CALL:
            tool = server.tools.label(name, outcome)
            call = (server.id, tool, outcome.label)
            self._sink.count(TOOL_CALLS, *call, by=len(times))
            self._sink.observe_all(TOOL_CALL_DURATION, times, *call, traces=traces)
        if method and method != LISTEN:
            ended = (outcome.error_type, outcome.status_code, version or "", "tcp")
            self._sink.observe_all(SERVER_OPERATION, times, server.id, method_name(method), tool, *ended)

    def _count_read(self, server: str, outcome: OperationOutcome, seconds: float, size: int) -> None:
        self._sink.count(ARTIFACT_DOWNLOADS, server, outcome.label)
        self._sink.observe(ARTIFACT_DURATION, seconds, server, outcome.label)
        self._sink.count(ARTIFACT_BYTES, server, by=size)


@dataclass(slots=True)
class MeasuredRelay(Relay):
    """A relay around ``inner``, with counts."""

    inner: Relay = field(init=False)
    counts: OperationCounts = field(init=False)

    @classmethod
    def around(cls, inner: Relay, counts: OperationCounts) -> MeasuredRelay:
        """The relay, counted."""
        relay = cls(**{each.name: getattr(inner, each.name) for each in fields(Relay)})
        relay.inner, relay.counts = inner, counts
        return relay

    async def handle(self, ask: ClientRequest) -> ClientResponse:
        """See Relay."""
        envelope, counts = ask.envelope, self.counts
        server = counts.servers[ask.server.id]
        if envelope is None:
            return _listening(server, ask, await self.inner.handle(ask))
        trace = None if counts.trace is None else counts.trace() or ""
        server.active += 1
        began = time.perf_counter()
        try:
            answer = await self.inner.handle(ask)
        except BaseException as error:
            counts.end(_operation(ask, envelope, server, trace, began), _outcome_of(error))
            raise
        body, now = answer.body, ask.envelope
        if (
            type(body) is bytes
            and type(now) is Envelope
            and body.find(FAILING) < 0
            and answer.status < 400
            and now.method not in _LOOKED_AT
        ):
            # Nearly all answers: what it costs to count them is nearly all that metrics cost.
            alike = (server, now.method, now.name, ask.sender.version, OK)
            waiting = counts.waiting.seconds.get(alike)
            if waiting is not None and len(waiting) < MOST_WAITING:
                waiting.append(time.perf_counter() - began)
                if trace is not None:
                    counts.waiting.traces.setdefault(alike, []).append(trace)
                server.active -= 1
                return answer
        operation = _operation(ask, envelope, server, trace, began)
        if isinstance(body, bytes):
            counts.end(operation, _whole(operation, answer, body), len(body))
            return answer
        answer = _followed(counts, operation, answer)
        return _listening(server, ask, answer) if operation.requests[0][0] == LISTEN else answer


def _operation(
    ask: ClientRequest, asked: Envelope | Batch, server: ServerOperations, trace: str | None, began: float
) -> MeasuredOperation:
    """The operation with the names that ``asked`` brought, or that code mode has put in their place."""
    now = ask.envelope
    requests = named_in(now if isinstance(now, Envelope) else asked)
    return MeasuredOperation(server, requests, known_version(ask.sender.version), trace, began)


def _outcome_of(error: BaseException) -> OperationOutcome:
    """The outcome of an operation that ended with an exception."""
    if isinstance(error, AdapterError):
        return outcome_of_error(type(error))
    return CLIENT_GONE if isinstance(error, asyncio.CancelledError) else outcome_of_error(InternalError)


def _listening(server: ServerOperations, ask: ClientRequest, answer: ClientResponse) -> ClientResponse:
    """An answer that is a stream without an end, counted while it is open."""
    if ask.method != "DELETE" and not isinstance(answer.body, bytes):
        server.streams += 1
        answer.release = both(answer.release, partial(_closed, server))
    return answer


def _closed(server: ServerOperations) -> None:
    server.streams -= 1


def _streams(answer: ClientResponse) -> bool:
    return (header(answer.headers, "content-type") or "").lower().startswith("text/event-stream")


def _whole(operation: MeasuredOperation, answer: ClientResponse, body: bytes) -> OperationOutcome:
    """The outcome that an answer tells which is there as a whole."""
    streams = _streams(answer)
    if operation.requests[0][0] == LIST and answer.status == 200:
        operation.server.tools.listed(body, streams=streams)
    messages = data_of_events(body) if streams else [body]
    return combined(map(outcome_in, messages)) or outcome_of_status(answer.status)


class _Answer:
    """An answer that comes in pieces, as far as it has been seen. It ends once, however often that is said."""

    __slots__ = (
        "_counts", "_ended", "_held", "_operation", "_outcome", "_reader", "_size", "_status", "_too_many",
    )  # fmt: skip

    def __init__(
        self, counts: OperationCounts, operation: MeasuredOperation, status: int, *, streams: bool
    ) -> None:
        self._counts = counts
        self._operation = operation
        self._status = status
        self._reader = SseReader(LOOKED_INTO, skip=True) if streams else None
        self._outcome: OperationOutcome | None = None
        self._held: list[bytes] = []
        self._size = 0
        self._too_many = False
        self._ended = False

    def look(self, chunk: bytes) -> None:
        """See a piece of it."""
        self._size += len(chunk)
        if self._reader is not None:
            # From here on nobody knows where an event begins.
            self._too_many = self._too_many or has_many_lines(chunk)
            if not self._too_many:
                self._outcome = combined((self._outcome, *map(outcome_in, data_read(self._reader, chunk))))
            return
        if self._size <= LOOKED_INTO:
            self._held.append(chunk)
        else:
            self._held.clear()

    def complete(self) -> None:
        """Note that nothing more will come."""
        if self._reader is not None and not self._too_many:
            self.end(self._outcome or (UNANSWERED if self._status < 400 else outcome_of_status(self._status)))
        elif self._held:
            self.end(outcome_in(b"".join(self._held)) or outcome_of_status(self._status))
        else:
            self.end(self._outcome or outcome_of_status(self._status))

    def end(self, outcome: OperationOutcome) -> None:
        """Count it, unless that was done."""
        if not self._ended:
            self._ended = True
            self._held.clear()
            self._counts.end(self._operation, outcome, self._size)

    def leave(self) -> None:
        """Note that nobody reads on, which may be for an answer that was seen."""
        self.end(self._outcome or CLIENT_GONE)


def _followed(
    counts: OperationCounts, operation: MeasuredOperation, answer: ClientResponse
) -> ClientResponse:
    """An answer whose pieces are looked at as they leave."""
    assert not isinstance(answer.body, bytes), "an answer that is whole is not followed"
    seen, pieces = _Answer(counts, operation, answer.status, streams=_streams(answer)), answer.body
    if isinstance(pieces, Flow):
        answer.body = Flow(partial(_seen, pieces, seen), partial(_poured, pieces, seen))
    else:
        answer.body = _seen(pieces, seen)
    answer.release = both(answer.release, seen.leave)
    return answer


async def _seen(pieces: AsyncGenerator[bytes, None], seen: _Answer) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in pieces:
            seen.look(piece)
            yield piece
        seen.complete()
    except AdapterError as error:
        seen.end(outcome_of_error(type(error)))
        raise
    finally:
        await pieces.aclose()


async def _poured(pieces: Flow, seen: _Answer, sink: Sink) -> None:
    try:
        await pieces.pour(Along(sink, seen.look))
    except AdapterError as error:
        seen.end(outcome_of_error(type(error)))
        raise
    seen.complete()
