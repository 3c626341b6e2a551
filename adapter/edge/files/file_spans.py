"""Spans of uploads and downloads: one for each request to a route of files, by OpenTelemetry's conventions for HTTP.

The name is that of the route. Neither the path of a request nor a name of a file is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from adapter.edge.http.request import Branch, Names, Request
from adapter.errors import AdapterError
from adapter.pipeline.tracing import PlanTracer
from adapter.rules.text.unicode import shown

LONGEST_ID = 128
"""Characters of a server's id that a span is told: a path may name one that does not exist."""

_BEHIND = ("{server_id}", "{session_id}", "{file_id}", "{filename}")


def traced(branches: Iterable[Branch], tracing: PlanTracer) -> Iterator[Branch]:
    """The same routes, each request to which is a span. The client's header ``traceparent`` names its parent."""
    for branch in branches:
        yield _traced(branch, tracing)


def _traced(branch: Branch, tracing: PlanTracer) -> Branch:
    route = "/".join((branch.prefix.rstrip("/"), *_BEHIND[: branch.depth]))

    async def serve(request: Request, names: Names, extra: list[tuple[str, str]]) -> None:
        attributes = {
            "http.request.method": request.method,
            "http.route": route,
            "server.id": shown(names[0], LONGEST_ID),
            "entrance": "files",
        }
        with tracing.call_span(f"{request.method} {route}", attributes, request.headers) as span:
            try:
                await branch.serve(request, names, extra)
            except AdapterError as error:
                span.set("http.response.status_code", request.reply.status or error.http)
                span.set("error.type", error.code)
                raise
            if request.reply.status is not None:
                span.set("http.response.status_code", request.reply.status)

    return replace(branch, serve=serve)
