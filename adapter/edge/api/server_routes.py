"""The tool API of the adapter's servers, as branches below ``console.path``, and the document that describes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from adapter.edge import openapi
from adapter.edge.api.responses import Extra, send
from adapter.edge.api.routes import CALL, ROUTES, SCHEMAS, PatternBranch, ToolRoute
from adapter.edge.api.server_tools import RESOURCE, Previews
from adapter.edge.api.tool_api import WARNING_FIELD, ToolApi
from adapter.edge.http.access import Guard
from adapter.edge.http.branches import Branch, Names
from adapter.edge.http.request import Request
from adapter.edge.mcp.endpoint import LONGEST_NAME
from adapter.edge.openapi import Operation
from adapter.edge.router import AccessLog, Watching
from adapter.pipeline.tracing import Tracing
from adapter.rules.calls.tool_api import HttpOutcome, refused
from adapter.rules.text.unicode import shown

DOCUMENT = Operation(
    "GET",
    "/openapi.json",
    "showOpenApi",
    "adapter",
    "This document.",
    {200: openapi.json("The document.", {"type": "object"})},
    open=True,
)

_SERVER = {"server": "The server's id."}
_EXPOSED = (WARNING_FIELD, "Content-Disposition")


@dataclass(frozen=True, slots=True)
class ServerApi:
    """The parts of the API that are served for one server."""

    tools: ToolApi
    previews: Previews


class ServerRoutes:
    """Serves ``apis`` (by server id) below ``path``, and ``document``.

    ``calls`` and ``recent`` are where each call leaves its line, and ``tracing`` its span, as those over MCP do.
    """

    def __init__(
        self,
        path: str,
        apis: Mapping[str, ServerApi],
        document: bytes,
        guard: Guard,
        *,
        calls: AccessLog | None = None,
        recent: Watching | None = None,
        tracing: Tracing | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._apis = apis
        self._document = document
        self._guard = guard
        self._calls = calls
        self._recent = recent
        self._tracing = tracing
        self._clock = clock

    def branches(self) -> Sequence[Branch]:
        """To be asked in this order, behind those of the console's data."""
        tools = (
            PatternBranch(
                self._path,
                0,
                route.methods,
                _EXPOSED,
                partial(self._serve_call if route.operation is CALL else self._serve, route),
                ("{server}", *route.parts),
            )
            for route in ROUTES
        )
        read = ("GET", "HEAD")
        return (
            *tools,
            PatternBranch(self._path, 0, read, _EXPOSED, self._serve_preview, ("{server}", "resources")),
            PatternBranch(self._path, 0, read, (), self._show_document, ("openapi.json",)),
        )

    async def _serve(self, route: ToolRoute, request: Request, names: Names, extra: Extra) -> object:
        server, *rest = names
        api = self._apis.get(server)
        if api is None:
            send(request, refused(404, f"Server not found: {server}"), extra)
            return None
        return await route.serve(api.tools, request, rest[0] if rest else "", extra)

    async def _serve_call(self, route: ToolRoute, request: Request, names: Names, extra: Extra) -> None:
        if self._recent is not None:
            self._recent.begin()
        began = time.monotonic()
        # What nobody took any more has no status of its own; 499 is what proxies write for it.
        outcome, status = "client_gone", 499
        try:
            with self._spanned(request, names):
                answered = await self._serve(route, request, names, extra)
            # The status of an event stream is that of its beginning, whatever came of the call.
            status = answered.status if isinstance(answered, HttpOutcome) else request.reply.status or 499
            outcome = "failed" if status >= 500 else "refused" if status >= 400 else "ok"
        finally:
            if names[0] in self._apis:
                self._tell(request, names, (outcome, status), time.monotonic() - began)

    def _spanned(self, request: Request, names: Names) -> AbstractContextManager[object]:
        if self._tracing is None:
            return nullcontext()
        attributes = {"tool.name": shown(names[1], LONGEST_NAME), "server.id": names[0], "entrance": "http"}
        return self._tracing.call_span("mcp.tool.call", attributes, request.headers)

    def _tell(self, request: Request, names: Names, came: tuple[str, int], seconds: float) -> None:
        outcome, status = came
        line: dict[str, object] = {
            "at": self._clock(),
            "event": "exchange",
            "server": names[0],
            "http": request.method,
            "era": None,
            "method": "tools/call",
            "name": shown(names[1], LONGEST_NAME),
            "status": status,
            "outcome": outcome,
            "ms": int(seconds * 100_000) / 100,
            "entrance": "http",
        }
        if self._calls is not None:
            self._calls.write(line)
        if self._recent is not None:
            self._recent.end(line, self._guard.principal_of(request.headers))

    async def _serve_preview(self, request: Request, names: Names, extra: Extra) -> None:
        api = self._apis.get(names[0])
        if api is None:
            send(request, refused(404, f"Server not found: {names[0]}"), extra)
        else:
            await api.previews.serve(request, extra)

    async def _show_document(self, request: Request, names: Names, extra: Extra) -> None:  # noqa: ARG002 (a branch's)
        fields = [("Content-Type", "application/json"), ("Cache-Control", "no-cache"), *extra]
        request.reply.send(200, fields, self._document)


def document(
    path: str, more: Iterable[Operation] = (), *, title: str = "mcp-file-adapter", version: str
) -> bytes:
    """The document of everything below ``path``, and of ``more`` routes, which stand in it as they are."""
    own = [
        Operation(
            route.method,
            f"/{{server}}{route.path}",
            route.id,
            route.tag,
            route.summary,
            route.answers,
            route.asks,
            route.body,
            {**_SERVER, **route.named},
            route.open,
        ).below(path)
        for route in (*(route.operation for route in ROUTES), RESOURCE)
    ]
    return openapi.document([*own, DOCUMENT.below(path), *more], SCHEMAS, title=title, version=version)
