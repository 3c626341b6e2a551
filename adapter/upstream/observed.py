"""An upstream whose POSTs are observed, those of the adapter's own included: they are counted, and are spans.

Spans of the requests to an upstream, and the trace that goes on with them.

The convention is OpenTelemetry's for MCP ("Semantic conventions for Model Context Protocol"): one CLIENT span per
request, whose ids go on in ``params._meta``, and in the header for servers that only read that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from adapter.errors import AdapterError, BadJson, BadRequest
from adapter.rules.access.headers import SharedFields
from adapter.rules.calls.request_outcomes import (
    ESCAPED,
    MAY_FAIL,
    OK,
    AnswerReader,
    RequestOutcome,
    outcome_of_error,
)
from adapter.rules.calls.tracing import (
    LONGEST_NAME,
    NAMED_BY,
    Attributes,
    Span,
    Tracer,
    error_of,
    message_facts,
)
from adapter.rules.metrics.catalogue import CLIENT_OPERATION
from adapter.rules.metrics.labels import labels_upstream, method_name, named_in
from adapter.rules.metrics.metric import MOST_WAITING, MetricSink, WaitingTimes
from adapter.upstream.port import (
    Headers,
    ReplyAround,
    Sink,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    WatchedSink,
    header,
    pour,
)
from adapter.wire.envelope import (
    LARGEST_EDITED,
    RESPONSE,
    TRACEPARENT,
    Batch,
    Envelope,
    parse,
    read_envelope,
    with_traceparent,
)
from adapter.wire.spans import find


class OutgoingSpans:
    """Records each request to an upstream that belongs to a recorded one, and has its trace go on.

    ``address`` are the attributes that tell where the upstream is. ``over_http``: it sends requests on over HTTP as
    they are; any other takes the envelope of a request for its message.
    """

    def __init__(self, tracer: Tracer, address: Attributes, *, over_http: bool = True) -> None:
        self._tracer = tracer
        self._address = address
        self._over_http = over_http

    def begin(self, request: UpstreamRequest) -> Span | None:
        """Begin the span of a POST, whose ids are written into it; None for one that is not recorded, and untouched."""
        message = request.envelope
        if type(message) is not Envelope or message.body is not request.body:
            message = _read(request)
        if message is None or message.kind is RESPONSE:
            return None
        name = message.name[: LONGEST_NAME + 1] if message.name and message.method in NAMED_BY else None
        name, attributes = message_facts(message.method[: LONGEST_NAME + 1], name, None)
        span = self._tracer.client_span(name, {**attributes, **self._address}, message.id)
        if span is not None:
            self._continue(request, message, span.traceparent)
        return span

    def _continue(self, request: UpstreamRequest, message: Envelope, traceparent: str) -> None:
        """Write the ids of the span into its request."""
        headers = request.headers
        others = headers.derived.get(_without_traceparent) if type(headers) is SharedFields else None
        request.headers = _without_traceparent(headers) if others is None else others
        if self._over_http:
            request.traceparent = traceparent
        else:
            request.headers = [*request.headers, (TRACEPARENT, traceparent)]
        if message.body is request.body:
            request.body = with_traceparent(message.body, traceparent)
            if not self._over_http:
                request.envelope = message.with_body(request.body)


def _read(request: UpstreamRequest) -> Envelope | None:
    """The message of a request that comes without it, or whose message was changed; of a batch its first one. Of a
    compressed or long body the envelope that it came with.
    """
    message: Envelope | Batch | None = request.envelope
    if len(request.body) <= LARGEST_EDITED and type(message) is not Batch:
        with contextlib.suppress(BadJson, BadRequest):
            message = read_envelope(request.body)
    return message.members[0] if isinstance(message, Batch) else message


def _without_traceparent(headers: Headers) -> Headers:
    """The fields without ``traceparent``; those of shared ones are found out once."""
    others = [field for field in headers if field[0].lower() != TRACEPARENT]
    if type(headers) is not SharedFields:
        return others
    shared = headers.derived[_without_traceparent] = SharedFields(others)
    return shared


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
