"""Spans of the requests to an upstream, and the trace that goes on with them.

The convention is OpenTelemetry's for MCP ("Semantic conventions for Model Context Protocol"): one CLIENT span per
request, whose ids go on in ``params._meta``, and in the header for servers that only read that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from adapter.errors import BadJson, BadRequest
from adapter.rules.access.headers import SharedFields
from adapter.rules.calls.request_outcomes import OK, RequestOutcome
from adapter.rules.text.unicode import shown
from adapter.upstream.port import Headers, UpstreamRequest
from adapter.wire.envelope import RESPONSE, Batch, Envelope, read_envelope
from adapter.wire.trace_context import LARGEST_EDITED, TRACEPARENT, with_traceparent

LONGEST_NAME = 128
"""Characters of a method or a name that a span is told: they come from clients."""

MOST_SORTS = 1024

CUT = "cut"
"""The error of an exchange that ended before its answer was complete."""

ODD = "_OTHER"
"""An error whose code is no integer that JSON-RPC knows."""

NAMED_BY = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The methods with a name that may be told, and the attribute for it. Other names are URIs."""

Attributes = Mapping[str, str | int | float | bool]

SortKey = tuple[str, str | None, str | None]
"""Method, name and version of the protocol, as a message has them; None where it has none."""


class OpenSpan(Protocol):
    """A request that is under way; see adapter.telemetry.request_spans.

    One that is not ``sampled`` is not recorded. ``ended`` is when it ended, in nanoseconds of Unix time.
    """

    sampled: bool
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


def error_of(outcome: RequestOutcome) -> str | None:
    """The kind of error that a span is told; None for an answer without one."""
    kind, code = outcome
    if isinstance(code, type):
        return code.code
    if kind == "rpc_error":
        return ODD if code is None else str(code)
    return str(code) if kind == "http" else {"tool_error": kind, "client_gone": CUT}.get(kind)


class OutgoingSpans:
    """Records each request to an upstream that belongs to a recorded one, and has its trace go on.

    ``address`` are the attributes that tell where the upstream is. ``over_http``: it sends requests on over HTTP as
    they are; any other takes the envelope of a request for its message.
    """

    def __init__(self, recorder: SpanRecorder, address: Attributes, *, over_http: bool = True) -> None:
        self._current = recorder.current
        self._child = recorder.child
        self._record = recorder.record
        self._sorts = SpanSorts(recorder, address, client=True)
        self._over_http = over_http

    def begin(self, request: UpstreamRequest) -> OutgoingSpan | None:
        """Begin the span of a POST, whose ids are written into it; None for one that is not recorded, and untouched."""
        current = self._current()
        if current is None or not current.sampled:
            return None
        message = request.envelope
        if type(message) is not Envelope or message.body is not request.body:
            message = _read(request)
        if message is None or message.kind is RESPONSE:
            return None
        span = self._child(current, self._sorts[message.method, message.name, None], message.id)
        self._continue(request, message, span.traceparent)
        return span

    def end(self, span: OutgoingSpan, outcome: RequestOutcome = OK) -> None:
        """End and record a span."""
        if outcome is not OK and (error := error_of(outcome)) is not None:
            span.fail(error)
        span.ended = time.time_ns()
        self._record(span)

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
