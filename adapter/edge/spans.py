"""Spans of what clients send: one SERVER span for each message, and one for each request to a route of files.

The conventions are OpenTelemetry's for MCP and for HTTP. The parent of a message's span is the span that
``params._meta`` names, else that of the header ``traceparent``; where both are there, the header's becomes a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from adapter.edge.http.request import Branch, Extra, Fields, Names, Request
from adapter.errors import AdapterError, AdapterStopping
from adapter.relay.exchange import ClientResponse
from adapter.rules.calls.tracing import CUT, LONGEST_NAME, NAMED_BY, Span, Tracer, error_of, message_facts
from adapter.rules.text.unicode import shown
from adapter.wire.envelope import RESPONSE, TRACEPARENT, Batch, Envelope, Kind

_HTTP = {"network.transport": "tcp", "network.protocol.name": "http", "network.protocol.version": "1.1"}

_COMPLETE = "ok"
_CUT_BY = ("client_gone", AdapterStopping.code)


class ServerSpans:
    """Begins and ends the spans of messages."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, headers: Fields, server: str, message: Envelope | Batch) -> Span | None:
        """Begin the span of a message to ``server`` (its id); None for what is none, such as a response.

        A batch has the span of its first request.
        """
        envelope = _first(message) if isinstance(message, Batch) else message
        if envelope is None or envelope.kind is RESPONSE:
            return None
        fields = headers.lower
        version = envelope.meta.version or fields.get("mcp-protocol-version")
        name = envelope.name[: LONGEST_NAME + 1] if envelope.name and envelope.method in NAMED_BY else None
        name, attributes = message_facts(
            envelope.method[: LONGEST_NAME + 1], name, version and version[: LONGEST_NAME + 1]
        )
        return self._tracer.server_span(
            name,
            {**attributes, "server.id": server, "entrance": "mcp", **_HTTP},
            *(envelope.trace, fields.get(TRACEPARENT)),
            request_id=envelope.id,
        )

    def begin_call(self, headers: Fields, server: str, tool: str) -> Span:
        """Begin the span of a call over the HTTP API."""
        name, attributes = message_facts("tools/call", tool[: LONGEST_NAME + 1], None)
        facts = {**attributes, "server.id": server, "entrance": "http", **_HTTP}
        return self._tracer.server_span(name, facts, headers.lower.get(TRACEPARENT))

    def end(
        self,
        span: Span,
        outcome: str,
        answer: ClientResponse | None = None,
        failure: type[AdapterError] | None = None,
    ) -> None:
        """End a span. ``outcome`` is "ok", or the word for what went wrong.

        ``failure`` is the adapter's, if it was one; ``answer`` is what the relay answered, None if nothing.
        """
        if outcome != _COMPLETE:
            error = outcome if failure is None else str(failure.rpc)
            span.end(CUT if outcome in _CUT_BY else error, outcome)
        elif answer is not None and answer.outcome is not None:
            span.end(error_of(answer.outcome))
        else:
            span.end()


def _first(batch: Batch) -> Envelope | None:
    """The first request of a batch, else its first notification."""
    messages = [each for each in batch.members if each.kind is not RESPONSE]
    return next((each for each in messages if each.kind is Kind.REQUEST), messages[0] if messages else None)


# --- files ------------------------------------------------------------------------------------------------------
# The name of a span is that of the route. Neither the path of a request nor a name of a file is recorded.

LONGEST_ID = 128
"""Characters of a server's id that a span is told: a path may name one that does not exist."""

_BEHIND = ("{server_id}", "{session_id}", "{file_id}", "{filename}")


def traced(branches: Iterable[Branch], tracing: Tracer) -> Iterator[Branch]:
    """The same routes, each request to which is a span. The client's header ``traceparent`` names its parent."""
    for branch in branches:
        yield _traced(branch, tracing)


def _traced(branch: Branch, tracing: Tracer) -> Branch:
    route = "/".join((branch.prefix.rstrip("/"), *_BEHIND[: branch.depth]))

    async def serve(request: Request, names: Names, extra: Extra) -> None:
        attributes = {
            "http.request.method": request.method,
            "http.route": route,
            "server.id": shown(names[0], LONGEST_ID),
            "entrance": "files",
        }
        name, parent = f"{request.method} {route}", request.headers.lower.get(TRACEPARENT)
        with tracing.server_span(name, attributes, parent) as span:
            try:
                await branch.serve(request, names, extra)
            except AdapterError as error:
                span.set("http.response.status_code", request.reply.status or error.http)
                span.set("error.type", error.code)
                raise
            if request.reply.status is not None:
                span.set("http.response.status_code", request.reply.status)

    return replace(branch, serve=serve)
