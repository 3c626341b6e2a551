"""The routes of the tool API: one table, which the adapter, hosts that embed it and OpenAPI share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from adapter.edge.api.responses import EVENT_STREAM, Extra
from adapter.edge.api.tool_api import WARNING_FIELD, ToolApi
from adapter.edge.http.branches import Branch, Names, names_behind
from adapter.edge.http.request import Request
from adapter.edge.openapi import TEXT, Operation, RequestShape, Says, Schema, json, ref

NAME = "{name}"
"""The one part of a path that may hold slashes, for names of tools may."""

TAG = "tools"

Serve = Callable[[ToolApi, Request, str, Extra], Awaitable[object]]


class ToolRoute(NamedTuple):
    """A route below a server's path, or below a host's own; ``path`` is the operation's."""

    operation: Operation
    serve: Serve

    @property
    def parts(self) -> Names:
        """The parts of the path."""
        return tuple(self.operation.path.strip("/").split("/"))

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods it serves; whatever can be read can be asked for its head."""
        return ("GET", "HEAD") if self.operation.method == "GET" else (self.operation.method,)


@dataclass(frozen=True, slots=True)
class PatternBranch(Branch):
    """Serves paths by a pattern: parts in braces are names, and NAME stands for one part or more.

    What begins with NAME and goes on takes no other methods than its own, for its whole path is a name too.
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

_OBJECT: Schema = {"type": "object"}

SCHEMAS: dict[str, Schema] = {
    "Tool": {
        "type": "object",
        "required": ["name", "description"],
        "properties": {"name": TEXT, "description": TEXT, "annotations": _OBJECT},
    },
    "ToolDetail": {
        "allOf": [ref("Tool"), {"type": "object", "required": ["inputSchema"]}],
    },
    "CallToolResult": {
        "type": "object",
        "required": ["content", "isError"],
        "properties": {
            "content": {"type": "array"},
            "structuredContent": {},
            "isError": {"type": "boolean"},
            "_meta": {"type": "object", "properties": {"_trace_id": TEXT}},
        },
    },
    "Succeeded": {"allOf": [ref("CallToolResult"), {"properties": {"isError": {"const": False}}}]},
    "Failed": {"allOf": [ref("CallToolResult"), {"properties": {"isError": {"const": True}}}]},
    "Validation": {
        "type": "object",
        "required": ["valid"],
        "properties": {
            "valid": {"type": "boolean"},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["path", "message", "keyword"],
                    "properties": {"path": TEXT, "message": TEXT, "keyword": TEXT},
                },
            },
        },
    },
    "Meta": {
        "type": "object",
        "required": ["title", "allow_execute"],
        "properties": {"title": TEXT, "allow_execute": {"type": "boolean"}},
    },
}

# --- the table ------------------------------------------------------------------------------------------------

_ERROR = ref("Error")
_FAILED: Schema = {"anyOf": [ref("Failed"), _ERROR]}
_FAILED_TO_LOOK = {
    400: json("The request has no header that the server requires.", _ERROR),
    401: json("The list requires a token.", _ERROR),
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
_TAB = RequestShape(
    "X-Adapter-Session",
    "header",
    "Selects one of several sessions of a caller: up to 64 letters, digits, - and _.",
    schema={"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
)

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
        403: json("Execution is disabled.", _ERROR),
        500: json("The tool failed (see its result), or the tools could not be listed.", _FAILED),
    },
    asks=(_TAB,),
    body={"application/json": _OBJECT},
    named=_TOOL_NAMED,
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
    asks=(_TAB,),
    body={"application/json": {}},
    named=_TOOL_NAMED,
)
LIST = Operation(
    "GET",
    "/tools",
    "listTools",
    TAG,
    "All tools.",
    {200: json("The tools.", {"type": "array", "items": ref("Tool")}), **_FAILED_TO_LOOK, **_NO_SERVER},
    asks=(_TAB,),
)
SHOW = Operation(
    "GET",
    "/tools/{name}",
    "showTool",
    TAG,
    "One tool with the schema of its arguments.",
    {200: json("The tool.", ref("ToolDetail")), **_FAILED_TO_LOOK, **_UNKNOWN},
    asks=(_TAB,),
    named=_TOOL_NAMED,
)
META = Operation(
    "GET",
    "/meta",
    "showMeta",
    TAG,
    "The title of the page, and whether tools can be run.",
    {200: json("Both.", ref("Meta")), **_NO_SERVER},
    open=True,
)

ROUTES = (
    ToolRoute(CALL, lambda api, request, name, extra: api.call(request, name, extra)),
    ToolRoute(VALIDATE, lambda api, request, name, extra: api.validate(request, name, extra)),
    ToolRoute(LIST, lambda api, request, _, extra: api.show_tools(request, extra)),
    ToolRoute(META, lambda api, request, _, extra: api.show_meta(request, extra)),
    ToolRoute(SHOW, lambda api, request, name, extra: api.show_tool(request, name, extra)),
)
"""In the order in which they are tried."""
