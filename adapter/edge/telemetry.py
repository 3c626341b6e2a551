"""Spans and metrics of what clients send: one SERVER span for each message, and one for each request to a route of
files; requests as they are counted, and the route of a scrape, on the adapter's port or without credentials on one
of its own.

The conventions are OpenTelemetry's for MCP and for HTTP. The parent of a message's span is the span that
``params._meta`` names, else that of the header ``traceparent``; where both are there, the header's becomes a link.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from adapter.edge.console.status import Viewers
from adapter.edge.http.limits import Handler
from adapter.edge.http.request import Branch, Fields, Names, Request
from adapter.edge.http.response import SERVER
from adapter.errors import AdapterError, AdapterStopping
from adapter.relay.exchange import ClientResponse
from adapter.rules.access.host_and_origin_check import NOSNIFF, host_allowed
from adapter.rules.calls.tracing import CUT, LONGEST_NAME, NAMED_BY, Span, Tracer, error_of, message_facts
from adapter.rules.metrics.catalogue import (
    ARTIFACT_BYTES,
    ARTIFACT_DOWNLOADS,
    ARTIFACT_DURATION,
    AUTH_REJECTIONS,
    HTTP_DURATION,
    HTTP_REQUESTS,
    OTHER,
    REJECTIONS,
    REQUEST_BYTES,
    RESPONSE_BYTES,
    UPLOAD_BATCHES,
    UPLOAD_FAILURES,
)
from adapter.rules.metrics.labels import (
    ARTIFACT,
    MCP,
    UPLOAD,
    RouteGroup,
    RouteGroups,
    method_label,
    status_class,
)
from adapter.rules.metrics.metric import MOST_WAITING, MetricSink, WaitingTimes
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

    async def serve(request: Request, names: Names) -> None:
        attributes = {
            "http.request.method": request.method,
            "http.route": route,
            "server.id": shown(names[0], LONGEST_ID),
            "entrance": "files",
        }
        name, parent = f"{request.method} {route}", request.headers.lower.get(TRACEPARENT)
        with tracing.server_span(name, attributes, parent) as span:
            try:
                await branch.serve(request, names)
            except AdapterError as error:
                span.set("http.response.status_code", request.reply.status or error.http)
                span.set("error.type", error.code)
                raise
            if request.reply.status is not None:
                span.set("http.response.status_code", request.reply.status)

    return replace(branch, serve=serve)


_REFUSED = (401, 403)


class RouteCounts:
    """The requests of one route group: ``active`` ones, and bytes that came and left since the last count."""

    __slots__ = ("active", "group", "received", "sent")

    def __init__(self, group: RouteGroup) -> None:
        self.group = group
        self.active = 0
        self.received = 0
        self.sent = 0


_Alike = tuple[RouteCounts, str, int | None]
"""What requests have in common that are counted together: route, method and status."""


class RequestMetrics:
    """Counts into ``sink``; what waits to be counted is counted by ``flush``."""

    def __init__(self, sink: MetricSink, groups: RouteGroups) -> None:
        self._sink = sink
        self._groups = groups
        self._routes: dict[RouteGroup, RouteCounts] = {}
        self._exact = {path: self._of_group(group) for path, group in groups.exact.items()}
        self._waiting: WaitingTimes[_Alike] = WaitingTimes(self._count)

    def __repr__(self) -> str:
        return f"<RequestMetrics: {self._waiting!r}>"

    def regroup(self, groups: RouteGroups) -> None:
        """Have requests counted by other groups from now on."""
        self._groups = groups
        self._exact.clear()
        self._exact.update((path, self._of_group(group)) for path, group in groups.exact.items())

    def in_flight(self) -> Iterator[tuple[str, int]]:
        """The name of each route group, and how many of its requests are being answered."""
        found: dict[str, int] = {}
        for route in self._routes.values():
            found[route.group.name] = found.get(route.group.name, 0) + route.active
        yield from found.items()

    def around(self, handler: Handler) -> Handler:
        """The handler, each of whose requests is counted when its last byte has left."""
        exact, waiting, clock = self._exact, self._waiting.seconds, time.perf_counter

        async def counted(request: Request) -> None:
            route = exact.get(request.path) or self._of_group(self._groups.of(request.path))
            route.active += 1
            began = clock()
            try:
                await handler(request)
            finally:
                seconds, reply = clock() - began, request.reply
                route.active -= 1
                route.received += request.body.arrived
                route.sent += reply.sent
                alike = waiting.get((route, request.method, reply.status))
                if alike is None or request.failure is not None or len(alike) >= MOST_WAITING:
                    self._end(route, request, seconds)
                else:
                    # Nearly all calls: what it costs to count them is nearly all that metrics cost.
                    alike.append(seconds)

        return counted

    def _end(self, route: RouteCounts, request: Request, seconds: float) -> None:
        alike, group = (route, request.method, request.reply.status), route.group
        if group.name == MCP:
            self._waiting.add(alike, seconds)
            if request.failure is None:
                return
        else:
            self._count(alike, (seconds,))
        self._count_apart(group, request, seconds)

    def _of_group(self, group: RouteGroup) -> RouteCounts:
        known = self._routes.get(group)
        if known is None:
            # There are few groups: one for each server and kind of route.
            known = self._routes[group] = RouteCounts(group)
        return known

    def refuse(self, reason: str) -> None:
        """Count what was refused before it was a request."""
        self._sink.count(REJECTIONS, "", reason, OTHER)

    def flush(self) -> Iterator[None]:
        """Count what waits; see WaitingTimes."""
        yield from self._waiting.flush()
        for route in self._routes.values():
            if route.received or route.sent:
                name, server = route.group
                self._sink.count(REQUEST_BYTES, server, name, by=route.received)
                self._sink.count(RESPONSE_BYTES, server, name, by=route.sent)
                route.received = route.sent = 0

    def _count(self, requests: _Alike, seconds: Sequence[float], _: Sequence[str] = ()) -> None:
        route, method, status = requests
        name, server = route.group
        labels = (server, method_label(method), name, status_class(status))
        self._sink.count(HTTP_REQUESTS, *labels, by=len(seconds))
        self._sink.observe_all(HTTP_DURATION, seconds, *labels)

    def _count_apart(self, group: RouteGroup, request: Request, seconds: float) -> None:
        """Count what is not common to all requests."""
        status, failure, (name, server) = request.reply.status, request.failure, group
        reason = "client_gone" if status is None else f"http_{status}"
        if failure is not None:
            reason = failure.code
        if name == UPLOAD and request.method == "POST":
            counted = (UPLOAD_BATCHES, server) if status == 200 else (UPLOAD_FAILURES, server, reason)
            self._sink.count(*counted)
        elif name in (UPLOAD, ARTIFACT) and request.method == "GET":
            delivered = status is not None and status < 400 and failure is None
            result = "ok" if delivered else reason
            self._sink.count(ARTIFACT_DOWNLOADS, server, result)
            self._sink.observe(ARTIFACT_DURATION, seconds, server, result)
            self._sink.count(ARTIFACT_BYTES, server, by=request.reply.sent)
        if failure is not None:
            status = failure.http
        elif status is None or status < 400:
            return
        # An answer of the HTTP API has an error without a code; what an upstream answers is no refusal.
        self._sink.count(AUTH_REJECTIONS if status in _REFUSED else REJECTIONS, server, reason, name)


_METHODS = ("GET", "HEAD")
_FIELDS = [("Cache-Control", "no-store"), NOSNIFF]

Scraping = Callable[[str], Awaitable[tuple[str, bytes]]]
"""Writes the numbers down, in the form that an Accept field asks for: its content type, and the text."""


def metrics_branch(path: str, scrape: Scraping, viewers: Viewers) -> Branch:
    """The branch of the adapter's own port, for operators among the ``viewers``."""

    async def serve(request: Request, _: Names) -> None:
        viewers.of(request.headers).require_operator()
        await _answer(request, scrape)

    return Branch(path, 0, _METHODS, (), serve)


def metrics_handler(
    path: str, scrape: Scraping, *, bound_to_loopback: bool
) -> Callable[[Request], Awaitable[None]]:
    """The handler of a port that serves metrics and nothing else."""

    async def serve(request: Request) -> None:
        # No page may read them under a name of its own that it points here.
        host = request.headers.get("Host")
        if not host_allowed(host, bound_to_loopback=bound_to_loopback, allowed=None):
            text = (
                f"{SERVER}: this port serves loopback names only; telemetry.prometheus.host is its address\n"
            )
            request.reply.send(421, [("Content-Type", "text/plain"), NOSNIFF], text.encode())
        elif request.path != path:
            request.reply.send(404, [("Content-Type", "text/plain"), NOSNIFF], f"{SERVER}: {path}\n".encode())
        elif request.method not in _METHODS:
            request.reply.send(405, [("Allow", ", ".join(_METHODS)), NOSNIFF])
        else:
            await _answer(request, scrape)

    return serve


async def _answer(request: Request, scrape: Scraping) -> None:
    content_type, body = await scrape(request.headers.get("Accept", ""))
    request.reply.send(200, [("Content-Type", content_type), *_FIELDS], body)
