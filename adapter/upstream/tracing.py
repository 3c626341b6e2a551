"""Spans of the requests to an upstream, and the trace that goes on with them.

The convention is OpenTelemetry's for MCP ("Semantic conventions for Model Context Protocol"): one CLIENT span per
request, whose ids go on in ``params._meta``, and in the header for servers that only read that.
"""

from __future__ import annotations

import contextlib

from adapter.errors import BadJson, BadRequest
from adapter.rules.access.headers import SharedFields
from adapter.rules.calls.tracing import LONGEST_NAME, NAMED_BY, Attributes, Span, Tracer, message_facts
from adapter.upstream.port import Headers, UpstreamRequest
from adapter.wire.envelope import (
    LARGEST_EDITED,
    RESPONSE,
    TRACEPARENT,
    Batch,
    Envelope,
    read_envelope,
    with_traceparent,
)


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
