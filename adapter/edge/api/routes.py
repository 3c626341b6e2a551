"""The routes of the tool API: one table, which the adapter, hosts that embed it and OpenAPI share.

``ServerRoutes`` are its branches below ``console.path``, for each server, with the document that describes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from adapter.edge import openapi
from adapter.edge.api.api_exchanges import UNANSWERED, ApiExchanges, ApiOutcome
from adapter.edge.api.catalogue_routes import ANSWERS, NAMED, RECORDED, TAB, CatalogueRoute
from adapter.edge.api.catalogue_routes import ROUTES as CATALOGUE_ROUTES
from adapter.edge.api.server_catalogue import ServerCatalogue
from adapter.edge.api.server_tools import RESOURCE, Previews
from adapter.edge.api.tool_api import WARNING_FIELD, ToolApi
from adapter.edge.http.request import Branch, Names, Request, names_behind
from adapter.edge.http.response import EVENT_STREAM, Extra, send
from adapter.edge.openapi import (
    ANY_OBJECT,
    OPEN,
    TEXT,
    YES,
    Operation,
    Says,
    Schema,
    Takes,
    json,
    list_of,
    object_of,
    ref,
)
from adapter.edge.router import ExchangeRecords
from adapter.rules.calls.tool_api import HttpOutcome, refused

if TYPE_CHECKING:
    # Late: few ask for traces.
    from adapter.edge.mcp.server_spans import ServerSpans

NAME = "{name}"
"""The one part of a path that may hold slashes, for names of tools may."""

TAG = "tools"

Serve = Callable[[ToolApi, Request, str, Extra], Awaitable[object]]


class ToolRoute(NamedTuple):
    """A route below a server's path, or below a host's own; ``path`` is the operation's."""

    operation: Operation
    serve: Serve


AnyRoute = ToolRoute | CatalogueRoute


@dataclass(frozen=True, slots=True)
class PatternBranch(Branch):
    """Serves paths that match a pattern: parts in braces are names, and NAME stands for one part or more.

    A pattern that goes on behind NAME takes no other methods than its own, because its whole path may be a name too.
    """

    pattern: Names = ()

    def names(self, request: Request) -> Names | None:
        """See Branch: what stands in the places of the names."""
        if NAME in self.pattern[:-1] and request.method not in (*self.methods, "OPTIONS"):
            return None
        behind = names_behind(self.prefix, request)
        return None if behind is None else matched(self.pattern, behind)


def matched(pattern: Names, parts: Names) -> Names | None:
    """The values in ``parts`` for the names of the pattern; None if ``parts`` does not fit the pattern."""
    if len(parts) != len(pattern):
        if len(parts) < len(pattern) or NAME not in pattern:
            return None
        begin = pattern.index(NAME)
        end = len(parts) - (len(pattern) - begin - 1)
        parts = (*parts[:begin], "/".join(parts[begin:end]), *parts[end:])
    names = []
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted[0] == "{":
            names.append(part)
        elif wanted != part:
            return None
    return tuple(names)


# --- schemas --------------------------------------------------------------------------------------------------

SCHEMAS: dict[str, Schema] = {
    "Tool": object_of({"name": TEXT, "description": TEXT}, {"title": TEXT, "annotations": ANY_OBJECT}),
    "ToolDetail": {"allOf": [ref("Tool"), {"type": "object", "required": ["inputSchema"]}]},
    "CallToolResult": object_of(
        {"content": {"type": "array"}, "isError": YES},
        {"structuredContent": {}, "_meta": {"type": "object", "properties": {"_trace_id": TEXT}}},
    ),
    "Succeeded": {"allOf": [ref("CallToolResult"), {"properties": {"isError": {"const": False}}}]},
    "Failed": {"allOf": [ref("CallToolResult"), {"properties": {"isError": {"const": True}}}]},
    "Validation": object_of(
        {"valid": YES}, {"errors": list_of(object_of({"path": TEXT, "message": TEXT, "keyword": TEXT}))}
    ),
    "Meta": object_of({"title": TEXT, "allow_execute": YES}),
}

# --- the table ------------------------------------------------------------------------------------------------

_ERROR = ref("Error")
_FAILED: Schema = {"anyOf": [ref("Failed"), _ERROR]}
_FAILED_TO_LOOK = {
    400: json("The request has no header that the server requires.", _ERROR),
    401: json("The list requires a token.", _ERROR),
    403: json("The token has too few scopes.", _ERROR),
    409: json("The server's tools changed since this caller first saw them.", _ERROR),
    429: json("Too many requests are running.", _ERROR),
    500: json("The tools could not be listed.", _ERROR),
    502: json("The upstream server did not answer.", _ERROR),
    503: json("The upstream server is unhealthy.", _ERROR),
    504: json("The upstream server was silent for too long.", _ERROR),
}
_UNKNOWN = {404: json("There is no such tool.", _ERROR)}
_NO_SERVER = {404: json("There is no such server.", _ERROR)}
_BODY = {
    413: json("The body is too large.", _ERROR),
    415: json("A web page sent a body that is not JSON.", _ERROR),
}
_TOOL_NAMED = {"name": "The tool's name, percent-encoded."}

CALL = Operation(
    "POST",
    "/tools/{name}/call",
    "callTool",
    TAG,
    "Runs a tool; the body is its arguments.",
    {
        200: Says(
            "The tool's result.",
            {"application/json": ref("Succeeded"), EVENT_STREAM: None},
            {WARNING_FIELD: "Present if the body was not JSON and the tool was called without arguments."},
        ),
        **_FAILED_TO_LOOK,
        **_UNKNOWN,
        **_BODY,
        400: json("The body is not an object of arguments.", _ERROR),
        401: json("The token is missing or wrong.", _ERROR),
        403: json("Execution is disabled, or the token has too few scopes.", _ERROR),
        500: json("The tool failed (see its result), or the tools could not be listed.", _FAILED),
    },
    Takes((TAB, ANSWERS, NAMED), {"application/json": ANY_OBJECT}, _TOOL_NAMED),
)
_GOING_ON = object_of({"arguments": ANY_OBJECT}, {"inputResponses": ANY_OBJECT, "requestState": TEXT})
CONTINUE = replace(
    CALL,
    path="/tools/{name}/continue",
    id="continueCall",
    summary="Goes on with a call that asked for input; the body has the arguments and the answers.",
    takes=Takes((TAB, ANSWERS, NAMED), {"application/json": _GOING_ON}, _TOOL_NAMED),
)
VALIDATE = Operation(
    "POST",
    "/tools/{name}/validate",
    "validateArguments",
    TAG,
    "Checks arguments against the tool's schema and runs nothing.",
    {
        200: json("Whether the arguments are valid, and all errors.", ref("Validation")),
        **_FAILED_TO_LOOK,
        **_UNKNOWN,
        **_BODY,
        400: json("The body is not JSON.", {"anyOf": [ref("Validation"), _ERROR]}),
        401: json("The token is missing or wrong.", _ERROR),
        429: json("Too many large checks are waiting.", _ERROR),
    },
    Takes((TAB,), {"application/json": {}}, _TOOL_NAMED),
)
LIST = Operation(
    "GET",
    "/tools",
    "listTools",
    TAG,
    "All tools.",
    {200: json("The tools.", list_of(ref("Tool"))), **_FAILED_TO_LOOK, **_NO_SERVER},
    Takes((TAB,)),
)
SHOW = Operation(
    "GET",
    "/tools/{name}",
    "showTool",
    TAG,
    "One tool with the schema of its arguments.",
    {200: json("The tool.", ref("ToolDetail")), **_FAILED_TO_LOOK, **_UNKNOWN},
    Takes((TAB,), named=_TOOL_NAMED),
)
META = Operation(
    "GET",
    "/meta",
    "showMeta",
    TAG,
    "The title of the page, and whether tools can be run.",
    {200: json("Both.", ref("Meta")), **_NO_SERVER},
    OPEN,
)

ROUTES = (
    ToolRoute(CALL, lambda api, request, name, extra: api.call(request, name, extra)),
    ToolRoute(VALIDATE, lambda api, request, name, extra: api.validate(request, name, extra)),
    ToolRoute(LIST, lambda api, request, _, extra: api.show_tools(request, extra)),
    ToolRoute(META, lambda api, request, _, extra: api.show_meta(request, extra)),
    ToolRoute(SHOW, lambda api, request, name, extra: api.show_tool(request, name, extra)),
)
"""In the order in which they are tried."""

GO_ON = ToolRoute(CONTINUE, lambda api, request, name, extra: api.call(request, name, extra, going_on=True))
"""The route of calls that asked for input, which a host's own tools do not."""


DOCUMENT = Operation(
    "GET",
    "/openapi.json",
    "showOpenApi",
    "adapter",
    "This document.",
    {200: openapi.json("The document.", {"type": "object"})},
    openapi.OPEN,
)

_SERVER = {"server": "The server's id."}
_EXPOSED = (WARNING_FIELD, "Content-Disposition")


@dataclass(frozen=True, slots=True)
class ServerApi:
    """The parts of the API that are served for one server."""

    tools: ToolApi
    previews: Previews
    catalogue: ServerCatalogue


class ServerRoutes:
    """Serves ``apis`` (by server id) below ``path``, and ``document``.

    ``records`` gets the line of each call, prompt and resource, and ``spans`` the span of a call, as those over MCP do.
    """

    def __init__(
        self,
        path: str,
        apis: Mapping[str, ServerApi],
        document: bytes,
        records: ExchangeRecords,
        spans: ServerSpans | None = None,
    ) -> None:
        self._path = path
        self._apis = apis
        self._document = document
        self._exchanges = ApiExchanges(records)
        self._spans = spans

    def branches(self) -> Sequence[Branch]:
        """The branches, to be tried in this order behind those of the console's data."""
        tools = (
            self._branch(route, self._serve_call if route.operation in (CALL, CONTINUE) else self._serve)
            for route in (*ROUTES[:1], GO_ON, *ROUTES[1:])
        )
        catalogue = (self._branch(route, self._serve_catalogue) for route in CATALOGUE_ROUTES)
        read = ("GET", "HEAD")
        return (
            *catalogue,
            *tools,
            PatternBranch(self._path, 0, read, _EXPOSED, self._serve_preview, ("{server}", "resources")),
            PatternBranch(self._path, 0, read, (), self._show_document, ("openapi.json",)),
        )

    def _branch(self, route: AnyRoute, serve: Callable[..., Awaitable[object]]) -> PatternBranch:
        parts = ("{server}", *route.operation.parts)
        return PatternBranch(self._path, 0, route.operation.methods, _EXPOSED, partial(serve, route), parts)

    async def _serve(self, route: ToolRoute, request: Request, names: Names, extra: Extra) -> object:
        server, *rest = names
        api = self._apis.get(server)
        if api is None:
            send(request, refused(404, f"Server not found: {server}"), extra)
            return None
        return await route.serve(api.tools, request, rest[0] if rest else "", extra)

    async def _serve_catalogue(
        self, route: CatalogueRoute, request: Request, names: Names, extra: Extra
    ) -> None:
        server, *rest = names
        api = self._apis.get(server)
        if api is None:
            send(request, refused(404, f"Server not found: {server}"), extra)
            return
        method = RECORDED.get(route.operation.id)
        recording = nullcontext() if method is None else self._exchanges.recorded(request, server, method)
        with recording:
            await route.serve(api.catalogue, request, rest[0] if rest else "", extra)

    async def _serve_call(self, route: ToolRoute, request: Request, names: Names, extra: Extra) -> None:
        began, outcome = self._exchanges.begin(), UNANSWERED
        spans = self._spans if names[0] in self._apis else None
        span = None if spans is None else spans.begin_call(request.headers, names[0], names[1])
        try:
            answered = await self._serve(route, request, names, extra)
            # The status of an event stream is that of its beginning, whatever came of the call.
            status = answered.status if isinstance(answered, HttpOutcome) else request.reply.status
            outcome = ApiOutcome.of(status)
        finally:
            if spans is not None and span is not None:
                word = outcome.word
                spans.end(span, word if word in ("ok", "client_gone") else str(outcome.status))
            if names[0] in self._apis:
                self._exchanges.end_call(request, names[0], names[1], outcome, began)

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
    """Describe everything below ``path``, and the ``more`` routes as they are."""
    own = [
        replace(route, takes=route.takes._replace(named={**_SERVER, **route.takes.named})).below(
            f"{path.rstrip('/')}/{{server}}"
        )
        for route in (
            *(route.operation for route in ROUTES),
            CONTINUE,
            *(route.operation for route in CATALOGUE_ROUTES),
            RESOURCE,
        )
    ]
    return openapi.document([*own, DOCUMENT.below(path), *more], SCHEMAS, title=title, version=version)
