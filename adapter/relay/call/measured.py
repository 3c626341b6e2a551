"""The relay with counts of what passes through it: calls of tools, and all other MCP operations of clients."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import NamedTuple

from adapter.errors import AdapterError, InternalError
from adapter.relay.call.dispatch import Relay
from adapter.relay.exchange import ClientRequest, ClientResponse, Flow, both
from adapter.relay.flow import Along
from adapter.rules.metrics.catalogue import SERVER_OPERATION, TOOL_CALL_DURATION, TOOL_CALLS
from adapter.rules.metrics.operations import (
    CLIENT_GONE,
    LOOKED_INTO,
    OK,
    UNANSWERED,
    OperationOutcome,
    method_name,
    outcome_in,
    outcome_of_error,
    outcome_of_status,
    version_label,
)
from adapter.rules.metrics.port import MetricSink
from adapter.rules.metrics.tool_names import ToolNames, names_in_list
from adapter.upstream.port import Sink, header
from adapter.wire.envelope import Batch, Envelope
from adapter.wire.sse import SseReader

CALL, LIST, LISTEN = "tools/call", "tools/list", "subscriptions/listen"

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
            if outcome is OK:
                self.names.learn((name,))
            elif self._unread is not None:
                body, streams = self._unread
                self._unread = None
                for data in _data_of(SseReader(LOOKED_INTO, skip=True), body) if streams else [body]:
                    self.names.learn(names_in_list(data))
        return self.names.label(name)


class MeasuredOperation(NamedTuple):
    """A message of a client that is being answered. ``requests`` are the method and name of each of its members.

    ``began`` is a moment of the performance counter.
    """

    server: str
    requests: list[tuple[str, str | None]]
    version: str
    trace: str | None
    began: float


class OperationCounts:
    """Counts into ``sink``. ``tools`` are those of each server. ``trace`` returns the id of the current trace, None
    outside of any; it is None where no traces are recorded.

    ``in_flight`` has the messages that are being answered and ``streams`` those without an end, by server.
    """

    def __init__(
        self,
        sink: MetricSink,
        tools: Mapping[str, ToolLabels],
        trace: Callable[[], str | None] | None = None,
    ) -> None:
        self.in_flight: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()
        self.tools = tools
        self._trace = trace
        self._sink = sink

    def __repr__(self) -> str:
        return f"<OperationCounts: {self.in_flight.total()} in flight>"

    def begin(self, ask: ClientRequest) -> MeasuredOperation:
        """Note what a client sent. Its message is not kept."""
        server = ask.server.id
        self.in_flight[server] += 1
        trace = None if self._trace is None else self._trace()
        version = version_label(ask.sender.version)
        return MeasuredOperation(server, _requests(ask), version, trace, time.perf_counter())

    def end(self, operation: MeasuredOperation, outcome: OperationOutcome) -> None:
        """Count an operation that is over."""
        server, requests, version, trace, began = operation
        seconds = time.perf_counter() - began
        self.in_flight[server] -= 1
        for method, name in requests:
            tool = ""
            if method == CALL:
                tool = self.tools[server].label(name, outcome)
                self._sink.count(TOOL_CALLS, server, tool, outcome.label)
                self._sink.observe(TOOL_CALL_DURATION, seconds, server, tool, outcome.label, trace=trace)
            if method and method != LISTEN:
                labels = (method_name(method), tool, outcome.error_type, outcome.status_code, version, "tcp")
                self._sink.observe(SERVER_OPERATION, seconds, server, *labels, trace=trace)


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
        counts = self.counts
        if ask.envelope is None:
            return self._listening(ask, await self.inner.handle(ask))
        operation = counts.begin(ask)
        try:
            answer = await self.inner.handle(ask)
        except AdapterError as error:
            counts.end(_named_again(ask, operation), outcome_of_error(type(error)))
            raise
        except asyncio.CancelledError:
            counts.end(operation, CLIENT_GONE)
            raise
        except Exception:
            counts.end(operation, outcome_of_error(InternalError))
            raise
        operation = _named_again(ask, operation)
        streams = (header(answer.headers, "content-type") or "").lower().startswith("text/event-stream")
        if isinstance(answer.body, bytes):
            counts.end(operation, self._whole(operation, answer.status, answer.body, streams=streams))
        else:
            answer = _followed(counts, operation, answer, streams=streams)
        return self._listening(ask, answer) if operation.requests[0][0] == LISTEN else answer

    def _listening(self, ask: ClientRequest, answer: ClientResponse) -> ClientResponse:
        """An answer that is a stream without an end, counted while it is open."""
        if ask.method != "DELETE" and not isinstance(answer.body, bytes):
            server = ask.server.id
            self.counts.streams[server] += 1
            answer.release = both(answer.release, partial(self._closed, server))
        return answer

    def _closed(self, server: str) -> None:
        self.counts.streams[server] -= 1

    def _whole(
        self, operation: MeasuredOperation, status: int, body: bytes, *, streams: bool
    ) -> OperationOutcome:
        """The outcome that an answer tells which is there as a whole."""
        if operation.requests[0][0] == LIST and status == 200:
            self.counts.tools[operation.server].listed(body, streams=streams)
        messages = _data_of(SseReader(LOOKED_INTO, skip=True), body) if streams else [body]
        return _first_outcome(messages) or outcome_of_status(status)


class _Answer:
    """An answer that comes in pieces, as far as it has been seen. It ends once, however often that is said."""

    __slots__ = ("_counts", "_ended", "_held", "_operation", "_outcome", "_reader", "_size", "_status")

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
        self._ended = False

    def look(self, chunk: bytes) -> None:
        """See a piece of it."""
        if self._reader is not None:
            self._outcome = _first_outcome(_data_of(self._reader, chunk)) or self._outcome
            return
        self._size += len(chunk)
        if self._size <= LOOKED_INTO:
            self._held.append(chunk)
        else:
            self._held.clear()

    def complete(self) -> None:
        """Note that nothing more will come."""
        if self._reader is not None:
            self.end(self._outcome or (UNANSWERED if self._status < 400 else outcome_of_status(self._status)))
        elif self._held:
            self.end(outcome_in(b"".join(self._held)) or outcome_of_status(self._status))
        else:
            self.end(outcome_of_status(self._status))

    def end(self, outcome: OperationOutcome) -> None:
        """Count it, unless that was done."""
        if not self._ended:
            self._ended = True
            self._held.clear()
            self._counts.end(self._operation, outcome)

    def leave(self) -> None:
        """Note that nobody reads on, which may be for an answer that was seen."""
        self.end(self._outcome or CLIENT_GONE)


def _followed(
    counts: OperationCounts, operation: MeasuredOperation, answer: ClientResponse, *, streams: bool
) -> ClientResponse:
    """An answer whose pieces are looked at as they leave."""
    assert not isinstance(answer.body, bytes), "an answer that is whole is not followed"
    seen, pieces = _Answer(counts, operation, answer.status, streams=streams), answer.body
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


def _requests(ask: ClientRequest) -> list[tuple[str, str | None]]:
    """Method and name of each message in what a client sent; "" for a response."""
    if isinstance(ask.envelope, Batch):
        return [(each.method, each.name) for each in ask.envelope.members]
    return [] if ask.envelope is None else [(ask.envelope.method, ask.envelope.name)]


def _named_again(ask: ClientRequest, operation: MeasuredOperation) -> MeasuredOperation:
    """The operation with the tool that code mode has put in the place of its own."""
    envelope, (first, *_) = ask.envelope, operation.requests
    if isinstance(envelope, Envelope) and first != (envelope.method, envelope.name):
        return operation._replace(requests=[(envelope.method, envelope.name)])
    return operation


def _data_of(reader: SseReader, chunk: bytes) -> list[bytes]:
    return [event.data for event in reader.feed(chunk) if event.data]


def _first_outcome(messages: list[bytes]) -> OperationOutcome | None:
    """The outcome that the last of these messages tells which is a response."""
    return next((found for each in reversed(messages) if (found := outcome_in(each)) is not None), None)
