"""An upstream whose POSTs are observed, those of the adapter's own included: they are counted, and are spans."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from adapter.errors import AdapterError
from adapter.rules.calls.request_outcomes import (
    ESCAPED,
    MAY_FAIL,
    OK,
    AnswerReader,
    RequestOutcome,
    outcome_of_error,
)
from adapter.rules.calls.tracing import Span, error_of
from adapter.rules.metrics.catalogue import CLIENT_OPERATION
from adapter.rules.metrics.labels import labels_upstream, method_name, named_in
from adapter.rules.metrics.metric import MOST_WAITING, MetricSink, WaitingTimes
from adapter.upstream.port import (
    ReplyAround,
    Sink,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    WatchedSink,
    header,
    pour,
)
from adapter.upstream.tracing import OutgoingSpans
from adapter.wire.envelope import Envelope, parse
from adapter.wire.spans import find

ToolLabel = Callable[[str | None, RequestOutcome], str]
"""The label of a tool by its name and the outcome of a call of it."""

_Messages = tuple[tuple[str, str | None], ...]
"""Method and name of each message in a request."""

_Alike = tuple[str, str | None, RequestOutcome]
"""What operations have in common that are counted together: method, name and outcome."""


class SentCounts:
    """Counts the operations of ``server`` (its id) into ``sink``. ``transport`` is tcp or pipe, empty for a server in
    this process. What is ``waiting`` is counted when that is flushed.
    """

    def __init__(self, server: str, sink: MetricSink, tool: ToolLabel, transport: str) -> None:
        self._server = server
        self._sink = sink
        self._tool = tool
        self._transport = transport
        self.waiting: WaitingTimes[_Alike] = WaitingTimes(self._count)

    def __repr__(self) -> str:
        return f"<SentCounts of {self._server!r}: {self.waiting!r}>"

    def _count(self, operation: _Alike, seconds: Sequence[float], _: Sequence[str]) -> None:
        method, name, outcome = operation
        tool = self._tool(name, outcome) if method == "tools/call" else ""
        _, error_type, status_code = labels_upstream(outcome)
        labels = (method_name(method), tool, error_type, status_code, "", self._transport)
        self._sink.observe_all(CLIENT_OPERATION, seconds, self._server, *labels)


class ObservedUpstream:
    """Counts the operations of ``upstream`` in ``counts``, and records them in ``spans`` where that is not None."""

    def __init__(self, upstream: Upstream, counts: SentCounts, spans: OutgoingSpans | None = None) -> None:
        self._upstream = upstream
        self._counts = counts
        self._spans = spans

    def __repr__(self) -> str:
        return f"<ObservedUpstream {self._upstream!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        if request.method != "POST":
            return await self._upstream.send(request, read_timeout)
        spans = self._spans
        span = None if spans is None else spans.begin(request)
        began = time.perf_counter()
        try:
            reply = await self._upstream.send(request, read_timeout)
        except BaseException as error:
            self.end(_messages(request), began, span, outcome_of_error(error))
            raise
        whole, envelope = reply.whole, request.envelope
        if whole is None:
            return ObservedReply(reply, self, _messages(request), began, span)
        if (
            MAY_FAIL(whole) is None
            and ESCAPED(whole) is None
            and reply.status < 400
            and type(envelope) is Envelope
            and (alike := self._counts.waiting.seconds.get((envelope.method, envelope.name, OK))) is not None
            and len(alike) < MOST_WAITING
        ):
            # Nearly all calls: what it costs to count them is nearly all that metrics cost.
            alike.append(time.perf_counter() - began)
            if span is not None:
                span.end()
        else:
            reader = _reader(reply)
            reader.look(whole)
            self.end(_messages(request), began, span, reader.end())
        return reply

    async def close(self) -> None:
        """See Upstream."""
        await self._upstream.close()

    def end(self, messages: _Messages, began: float, span: Span | None, outcome: RequestOutcome) -> None:
        """Note that messages with these methods and names, which left at that moment, were answered."""
        seconds = time.perf_counter() - began
        for method, name in messages:
            # A response to the server is no operation of the adapter's.
            if method:
                self._counts.waiting.add((method, name, outcome), seconds)
        if span is not None:
            span.end(error_of(outcome))


def _messages(request: UpstreamRequest) -> _Messages:
    """Method and name of each message in a request; none for a response."""
    if request.envelope is not None:
        return named_in(request.envelope)
    # One of the adapter's own, which are short and know no tool.
    span = find(request.body, ("method",))
    method = parse(request.body[slice(*span)]) if span is not None else ""
    return ((method, None),) if isinstance(method, str) else ()


def _reader(reply: UpstreamReply) -> AnswerReader:
    kind = header(reply.headers, "content-type") or ""
    return AnswerReader(reply.status, streams=kind.lower().startswith("text/event-stream"))


class ObservedReply(ReplyAround):
    """A reply that ends an operation when its last byte has come, or nobody reads on."""

    __slots__ = ("_began", "_ended", "_messages", "_owner", "_reader", "_span")

    def __init__(
        self,
        reply: UpstreamReply,
        owner: ObservedUpstream,
        messages: _Messages,
        began: float,
        span: Span | None,
    ) -> None:
        super().__init__(reply)
        self._owner = owner
        self._messages = messages
        self._began = began
        self._span = span
        self._reader = _reader(reply)
        self._ended = False

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        try:
            chunk = await self._reply.read(read_timeout)
        except AdapterError as error:
            self._end(outcome_of_error(error))
            raise
        if chunk:
            self._reader.look(chunk)
        else:
            self._end(self._reader.end())
        return chunk

    def abort(self) -> None:
        """See UpstreamReply."""
        if not self._ended:
            self._end(self._reader.cut)
        self._reply.abort()

    async def pour(self, sink: Sink, read_timeout: float | None) -> None:
        """See PouredReply."""
        try:
            await pour(self._reply, WatchedSink(sink, self._reader.look), read_timeout)
        except AdapterError as error:
            self._end(outcome_of_error(error))
            raise
        self._end(self._reader.end())

    def _end(self, outcome: RequestOutcome) -> None:
        if not self._ended:
            self._ended = True
            self._owner.end(self._messages, self._began, self._span, outcome)
