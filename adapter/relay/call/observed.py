"""The entrance of the relay where exchanges are observed: one object sees how each ends, for all who want to know."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from adapter.errors import AdapterError, AuditUnavailable
from adapter.relay.call.audit_trail import AuditedMessage, AuditTrail
from adapter.relay.call.dispatch import Relay
from adapter.relay.exchange import ClientRequest, ClientResponse, Flow, asking_plain, both
from adapter.relay.replies import EVENT_STREAM, media_type
from adapter.rules.calls.audit_record import AuditRecord
from adapter.rules.calls.request_outcomes import (
    CLIENT_GONE,
    ESCAPED,
    MAY_FAIL,
    OK,
    AnswerReader,
    RequestOutcome,
    outcome_of_error,
)
from adapter.rules.metrics.catalogue import (
    ARTIFACT_BYTES,
    ARTIFACT_DOWNLOADS,
    ARTIFACT_DURATION,
    SERVER_OPERATION,
    TOOL_CALL_DURATION,
    TOOL_CALLS,
)
from adapter.rules.metrics.labels import ToolNames, known_version, labels_of, method_name, named_in
from adapter.rules.metrics.metric import MOST_WAITING, MetricSink, WaitingTimes
from adapter.upstream.port import Sink, WatchedSink
from adapter.wire.envelope import Batch, Envelope, failure
from adapter.wire.sse import encode

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


class ObservedRelay:
    """``relay``, with ``counts`` of its operations and records of them in ``trail``; None where there are none."""

    def __init__(
        self, relay: Relay, counts: OperationCounts | None = None, trail: AuditTrail | None = None
    ) -> None:
        self._relay = relay
        self._counts = counts
        self._trail = trail
        self.end = relay.end

    async def handle(self, ask: ClientRequest) -> ClientResponse:
        """See Relay. Raises AuditUnavailable where no call goes on without a record."""
        envelope, counts, trail = ask.envelope, self._counts, self._trail
        server = None if counts is None else counts.servers[ask.server.id]
        if envelope is None:
            return _listening(server, ask, await self._relay.handle(ask))
        trace: str | None = None
        recorded: AuditedMessage | None = None
        if counts is not None and server is not None:
            trace = None if counts.trace is None else counts.trace() or ""
            server.active += 1
        began = time.perf_counter()
        try:
            if trail is not None and (message := trail.begin(ask, began)) is not None:
                if trail.sink.failing or trail.settings.arguments_key is not None:
                    await trail.prepare(message, ask)
                recorded = message
                # A compressed answer would not tell its outcome.
                ask.headers = asking_plain(ask.headers)
            answer = await self._relay.handle(ask)
            body = answer.body
            if trail is not None and recorded is not None and type(body) is bytes:
                if not trail.write_success(recorded, ask, answer, body):
                    await trail.write_whole(recorded, ask, answer, body)
                recorded = None
        except BaseException as error:
            outcome = outcome_of_error(error)
            if counts is not None and server is not None:
                counts.end(_operation(ask, envelope, server, trace, began), outcome)
            if trail is not None and recorded is not None:
                await trail.fail(recorded, ask, outcome)
            raise
        now = ask.envelope
        if server is None and recorded is None:
            return answer
        if (
            counts is not None
            and server is not None
            and recorded is None
            and type(body) is bytes
            and type(now) is Envelope
            # The record has told it already.
            and (answer.outcome is OK or (MAY_FAIL(body) is None and ESCAPED(body) is None))
            and answer.status < 400
            and now.method not in LOOKED_AT
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
        records = [] if trail is None or recorded is None else trail.records_of(recorded, ask)
        operation = None if server is None else _operation(ask, envelope, server, trace, began)
        _ObservedAnswer(answer, counts, operation, trail, records).begin()
        is_endless = type(now) is Envelope and now.method == LISTEN
        return _listening(server, ask, answer) if is_endless else answer


def _operation(
    ask: ClientRequest, asked: Envelope | Batch, server: ServerOperations, trace: str | None, began: float
) -> MeasuredOperation:
    """The operation with the names that ``asked`` brought, or that code mode has put in their place."""
    now = ask.envelope
    requests = named_in(now if isinstance(now, Envelope) else asked)
    return MeasuredOperation(server, requests, known_version(ask.sender.version), trace, began)


def _listening(server: ServerOperations | None, ask: ClientRequest, answer: ClientResponse) -> ClientResponse:
    """An answer that is a stream without an end, counted while it is open."""
    if server is not None and ask.method != "DELETE" and not isinstance(answer.body, bytes):
        server.streams += 1
        answer.release = both(answer.release, partial(_closed, server))
    return answer


def _closed(server: ServerOperations) -> None:
    server.streams -= 1


@dataclass(eq=False, repr=False, slots=True)
class _ObservedAnswer:
    """An answer on its way. Its outcome is told once: to ``answer``, for spans, to the counts, and to the records in
    ``trail``, which are written before its last bytes leave.
    """

    answer: ClientResponse
    counts: OperationCounts | None
    operation: MeasuredOperation | None
    trail: AuditTrail | None
    records: list[AuditRecord]
    _reader: AnswerReader = field(init=False)
    _ended: bool = field(default=False, init=False)

    def begin(self) -> None:
        """Look into a body that is whole, whose records are written, and along at pieces."""
        answer, body = self.answer, self.answer.body
        streams = media_type(answer.headers) == EVENT_STREAM
        self._reader = AnswerReader(answer.status, streams=streams, exact=bool(self.records))
        if isinstance(body, bytes):
            self._reader.look(body)
            if self.operation is not None and answer.status == 200:
                self.operation.listed(body, streams=self._reader.streams)
            self._end(self._reader.end())
            return
        if isinstance(body, Flow) and not self.records:
            answer.body = Flow(partial(self._pieces, body), partial(self._pour, body))
        else:
            answer.body = self._pieces(body)
        answer.release = both(answer.release, self._leave)

    async def _note(self, messages: list[bytes | None]) -> None:
        for data in messages:
            if self.trail is None or not self.records:
                self._reader.note(data)
            else:
                await self.trail.read(self.records, self._reader, data)

    async def _complete(self) -> None:
        """Note that nothing more comes. Raises AuditUnavailable."""
        await self._note([*self._reader.rest()])
        if self.trail is not None:
            await self.trail.write(self.records, self._reader.final, self._reader.size)

    async def _pieces(self, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The pieces. One that completes a response leaves when its record is written: of a stream that with its event,
        of any other body the last.
        """
        held, holds = b"", bool(self.records) and not self._reader.streams
        try:
            async for chunk in pieces:
                try:
                    await self._note(self._reader.feed(chunk))
                except AuditUnavailable as error:
                    yield b"".join(encode(failure(error, each.id_bytes)) for each in self.records)
                    self._end(outcome_of_error(error))
                    return
                passing, held = (held, chunk) if holds else (chunk, b"")
                if passing:
                    yield passing
            await self._complete()
            if held:
                yield held
            self._end(self._reader.final)
        except AdapterError as error:
            self._end(outcome_of_error(error))
            raise
        finally:
            await pieces.aclose()

    async def _pour(self, pieces: Flow, sink: Sink) -> None:
        try:
            await pieces.pour(WatchedSink(sink, self._reader.look))
        except AdapterError as error:
            self._end(outcome_of_error(error))
            raise
        self._end(self._reader.end())

    def _leave(self) -> None:
        """Note that nobody reads on."""
        if not self._ended:
            self._end(self._reader.cut, CLIENT_GONE)

    def _end(self, outcome: RequestOutcome, of_records: RequestOutcome | None = None) -> None:
        """Tell the outcome, unless that was done."""
        if self._ended:
            return
        self._ended = True
        self.answer.outcome = outcome
        if self.counts is not None and self.operation is not None:
            self.counts.end(self.operation, outcome, self._reader.size)
        if self.trail is not None:
            self.trail.write_later(self.records, of_records or outcome)
