"""Spans of the requests to an upstream, and the trace that goes on with them.

The convention is OpenTelemetry's for MCP ("Semantic conventions for Model Context Protocol"): one CLIENT span per
request, whose ids go on in ``params._meta``, and in the header for servers that only read that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from adapter.errors import AdapterError, BadJson, BadRequest
from adapter.rules.access.headers import SharedFields
from adapter.rules.text.unicode import shown
from adapter.upstream.port import (
    Headers,
    ReplyAround,
    Sink,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    header,
    pour,
)
from adapter.wire.answer_errors import LOOKED_INTO, error_in, error_in_events
from adapter.wire.envelope import RESPONSE, Batch, Envelope, read_envelope
from adapter.wire.trace_context import LARGEST_EDITED, TRACEPARENT, with_traceparent

LONGEST_NAME = 128
"""Characters of a method or a name that a span is told: they come from clients."""

MOST_SORTS = 1024

CUT = "cut"
"""The error of an exchange that ended before its answer was complete."""

ERROR_SIGN = b'rror"'
"""The end of the keys by which an answer tells an error; one without them is not looked into."""

NAMED_BY = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The methods with a name that may be told, and the attribute for it. Other names are URIs."""

Attributes = Mapping[str, str | int | float | bool]

SortKey = tuple[str, str | None, str | None]
"""Method, name and version of the protocol, as a message has them; None where it has none."""


class OpenSpan(Protocol):
    """A request that is under way; see adapter.telemetry.request_spans.

    One that is not ``sampled`` is not recorded. ``seen`` is the last answer that was looked into for errors, with what
    was found. ``ended`` is when it ended, in nanoseconds of Unix time.
    """

    sampled: bool
    seen: tuple[bytes, str | None] | None
    ended: int

    def link(self, span: tuple[str, str, int]) -> None:
        """Note another span that led to it."""

    def fail(self, error: str, message: str = "") -> None:
        """Note a failure by its kind; the first one stays."""


class OutgoingSpan(OpenSpan, Protocol):
    """A request to an upstream; ``traceparent`` is the value of the field that goes with it."""

    traceparent: str


class SpanRecorder(Protocol):
    """Records the spans of requests; see adapter.telemetry.spans."""

    @property
    def current(self) -> Callable[[], OpenSpan | None]:
        """The span of the client's request that is answered in this task; None outside of any."""

    @property
    def child(self) -> Callable[[Any, Any, str | int | float | None], OutgoingSpan]:
        """Begin the span of a request to an upstream, for the current one: its sort, and the id of the request."""

    @property
    def record(self) -> Callable[[Any], None]:
        """Record a request to an upstream that has ended."""

    def sort(self, name: str, attributes: Attributes, *, client: bool) -> Any:
        """The facts that many spans share, which are made once; ``client``: the requests go upstream."""

    def begin(
        self, sort: Any, request_id: str | int | float | None, parent: tuple[str, str, int] | None
    ) -> OpenSpan:
        """Begin the span of a client's request, which is current from now on."""

    def end(self, span: Any) -> None:
        """End and record it; it is current no longer."""


class SpanSorts(dict[SortKey, Any]):
    """Sorts of spans, made when they are first asked for; ``attributes`` are those that all of them have."""

    def __init__(self, recorder: SpanRecorder, attributes: Attributes, *, client: bool) -> None:
        super().__init__()
        self._recorder = recorder
        self._client = client
        self._attributes = dict(attributes)

    def __missing__(self, key: SortKey) -> Any:
        # Keys come from clients: what is long is cut before it is kept, and what has no bound is not kept at all.
        method = shown(key[0], LONGEST_NAME)
        name = None if key[1] is None or method not in NAMED_BY else shown(key[1], LONGEST_NAME)
        version = None if key[2] is None else shown(key[2], LONGEST_NAME)
        known = method, name, version
        if known != key and known in self:
            return self[known]
        if len(self) >= MOST_SORTS:
            self.clear()
        sort = self[known] = self._made(method, name, version)
        return sort

    def _made(self, method: str, name: str | None, version: str | None) -> Any:
        attributes: dict[str, Any] = {"mcp.method.name": method, **self._attributes}
        if version is not None:
            attributes["mcp.protocol.version"] = version
        if method == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
            attributes["tool.name"] = name or ""
        if name is not None:
            attributes[NAMED_BY[method]] = name
        return self._recorder.sort(
            method if name is None else f"{method} {name}", attributes, client=self._client
        )


class AnswerEnd:
    """The end of an answer that passes in pieces, as a Sink before ``sink`` or beside it."""

    __slots__ = ("_kept", "_size", "sink")

    def __init__(self, sink: Sink | None = None) -> None:
        self.sink = sink
        self._kept = b""
        self._size = 0

    def keep(self, chunk: bytes) -> None:
        """See a piece pass."""
        self._size += len(chunk)
        self._kept = (self._kept + chunk if len(chunk) < LOOKED_INTO else chunk)[-LOOKED_INTO:]

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Sink."""
        self.keep(chunk)
        assert self.sink is not None, "whoever pours gives it the sink"
        return self.sink.put(chunk, more=more)

    async def drained(self) -> None:
        """See Sink."""
        assert self.sink is not None, "whoever pours gives it the sink"
        await self.sink.drained()

    def note(self, span: OpenSpan, status: int, headers: Headers) -> None:
        """Tell the span of the error that the answer ends with."""
        if _streams(headers):
            error = error_in_events(self._kept)
        else:
            error = error_in(self._kept) if self._size <= LOOKED_INTO else None
        _note(span, status, error or None)

    def note_cut(self, span: OpenSpan, status: int, headers: Headers) -> None:
        """The same where nobody reads on: the error is CUT, unless the stream has had its response."""
        error = error_in_events(self._kept) if _streams(headers) else None
        _note(span, status, CUT if error is None else error or None)


def _streams(headers: Headers) -> bool:
    return (header(headers, "content-type") or "").lower().startswith("text/event-stream")


def note_answer(span: OpenSpan, status: int, headers: Headers, body: bytes) -> None:
    """Tell the span of the error in an answer that is whole."""
    if span.seen is not None and span.seen[0] is body:
        error = span.seen[1]
    elif _streams(headers):
        error = error_in_events(body) or None
    else:
        error = error_in(body)
    span.seen = body, error
    _note(span, status, error)


def _note(span: OpenSpan, status: int, error: str | None) -> None:
    if error is not None:
        span.fail(error)
    elif status >= 400:
        span.fail(str(status))


class TracedUpstream:
    """Records each POST to ``upstream`` that belongs to a recorded request, and has its trace go on.

    ``address`` are the attributes that tell where the upstream is. ``over_http``: it sends requests on over HTTP as
    they are; any other takes the envelope of a request for its message. A request that is not recorded is sent on
    untouched.
    """

    def __init__(
        self, upstream: Upstream, recorder: SpanRecorder, address: Attributes, *, over_http: bool = True
    ) -> None:
        self._upstream = upstream
        self._current = recorder.current
        self._child = recorder.child
        self._record = recorder.record
        self._sorts = SpanSorts(recorder, address, client=True)
        self._over_http = over_http

    def __repr__(self) -> str:
        return f"<TracedUpstream {self._upstream!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        current = self._current()
        if current is None or not current.sampled or request.method != "POST":
            return await self._upstream.send(request, read_timeout)
        message = request.envelope
        if type(message) is not Envelope or message.body is not request.body:
            message = _read(request)
        if message is None or message.kind is RESPONSE:
            return await self._upstream.send(request, read_timeout)
        span = self._child(current, self._sorts[message.method, message.name, None], message.id)
        self._continue(request, message, span.traceparent)
        try:
            reply = await self._upstream.send(request, read_timeout)
        except BaseException as error:
            span.fail(error.code if isinstance(error, AdapterError) else CUT)
            self._end(span)
            raise
        whole = reply.whole
        if whole is None:
            return TracedReply(reply, span, self._end)
        if reply.status >= 400 or ERROR_SIGN in whole:
            note_answer(span, reply.status, reply.headers, whole)
            current.seen = span.seen
        span.ended = time.time_ns()
        self._record(span)
        return reply

    async def close(self) -> None:
        """See Upstream."""
        await self._upstream.close()

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
            request.body = with_traceparent(message.body, traceparent, message.trace)
            if not self._over_http:
                request.envelope = message.with_body(request.body)

    def _end(self, span: OpenSpan) -> None:
        span.ended = time.time_ns()
        self._record(span)


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


class TracedReply(ReplyAround):
    """The reply to a traced request, whose span ends with it."""

    __slots__ = ("_end", "_ended", "_record", "_span")

    def __init__(self, reply: UpstreamReply, span: OpenSpan, record: Callable[[OpenSpan], None]) -> None:
        super().__init__(reply)
        self._span = span
        self._record = record
        self._end = AnswerEnd()
        self._ended = False

    @property
    def whole(self) -> bytes | None:
        return None

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        try:
            chunk = await self._reply.read(read_timeout)
        except AdapterError as error:
            self._finish(error.code)
            raise
        if chunk:
            self._end.keep(chunk)
        else:
            self._finish()
        return chunk

    async def pour(self, sink: Sink, read_timeout: float | None) -> None:
        """See Pouring."""
        self._end.sink = sink
        try:
            await pour(self._reply, self._end, read_timeout)
        except AdapterError as error:
            self._finish(error.code)
            raise
        self._finish()

    def abort(self) -> None:
        """See UpstreamReply."""
        self._reply.abort()
        if not self._ended:
            self._ended = True
            self._end.note_cut(self._span, self._reply.status, self._reply.headers)
            self._record(self._span)

    def _finish(self, error: str | None = None) -> None:
        """End the span once, for this ``error`` unless the answer was complete."""
        if self._ended:
            return
        self._ended = True
        if error is not None:
            self._span.fail(error)
        else:
            self._end.note(self._span, self._reply.status, self._reply.headers)
        self._record(self._span)
