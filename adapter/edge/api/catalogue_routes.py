"""The routes of what a server has beside its tools, for the console and its OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from adapter.edge.api.server_catalogue import ServerCatalogue
from adapter.edge.http.request import Request
from adapter.edge.http.response import EVENT_STREAM, Extra
from adapter.edge.openapi import (
    ANY_OBJECT,
    TEXT,
    Operation,
    RequestShape,
    Says,
    Schema,
    Takes,
    json,
    list_of,
    object_of,
    ref,
)

Serve = Callable[[ServerCatalogue, Request, str, Extra], Awaitable[None]]


class CatalogueRoute(NamedTuple):
    """A route below a server's path."""

    operation: Operation
    serve: Serve


ANSWERS = RequestShape(
    "X-Adapter-Answers",
    "header",
    "`elicitation`: a person is there to answer what servers ask. Needs X-Adapter-Session.",
    schema={"type": "string", "enum": ["elicitation"]},
)
CALL_FIELD = "X-Adapter-Call"
NAMED = RequestShape(
    CALL_FIELD,
    "header",
    "Names this call, so that its caller finds it among the exchanges: up to 64 letters, digits, - and _.",
    schema={"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
)
TAB = RequestShape(
    "X-Adapter-Session",
    "header",
    "Selects one of several sessions of a caller: up to 64 letters, digits, - and _.",
    schema={"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
)

_ERROR = ref("Error")
_FAILED = {
    400: json("The body, or a header, is not what this request needs.", _ERROR),
    401: json("The token is missing or wrong.", _ERROR),
    403: json("Execution is disabled, or the token has too few scopes.", _ERROR),
    404: json("There is no such server, prompt or resource.", _ERROR),
    409: json("The server's tools changed since this caller first saw them.", _ERROR),
    413: json("The body is too large.", _ERROR),
    415: json("A web page sent a body that is not JSON.", _ERROR),
    429: json("Too many requests are running.", _ERROR),
    500: json("The request failed.", _ERROR),
    502: json("The upstream server did not answer, or refused.", _ERROR),
    503: json("The upstream server is unhealthy.", _ERROR),
    504: json("The upstream server was silent for too long.", _ERROR),
}
_ROUND: dict[str, Schema] = {"inputResponses": ANY_OBJECT, "requestState": TEXT}
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}


def _operation(
    method: str, path: str, name: str, summary: str, answered: Schema, body: Schema | None = None
) -> Operation:
    """An operation of the catalogue."""
    named = {"name": "The tool's name, percent-encoded."} if "{name}" in path else {}
    takes = Takes((TAB, ANSWERS), {} if body is None else {"application/json": body}, named)
    return Operation(
        method, path, name, "catalogue", summary, {200: json("The answer.", answered), **_FAILED}, takes
    )


def _listing(kind: str) -> Serve:
    return lambda served, request, _, extra: served.show_list(request, kind, extra)


_ANSWER_BODY = object_of(
    {
        "reply_to": TEXT,
        "result": object_of(
            {"action": {"type": "string", "enum": ["accept", "decline", "cancel"]}}, {"content": ANY_OBJECT}
        ),
    }
)
_COMPLETE_BODY = object_of(
    {"ref": ANY_OBJECT, "argument": object_of({"name": TEXT, "value": TEXT})}, {"arguments": _TEXTS}
)

EVENTS = Operation(
    "GET",
    "/events",
    "followServer",
    "catalogue",
    "Follows what the server says outside of calls, until the client goes.",
    {200: Says("Events.", {EVENT_STREAM: None}), **_FAILED},
    Takes((TAB, ANSWERS)),
)

ROUTES = (
    CatalogueRoute(
        _operation("GET", "/prompts", "listPrompts", "All prompts.", list_of(ANY_OBJECT)), _listing("prompts")
    ),
    CatalogueRoute(
        _operation("GET", "/resources/list", "listResources", "All resources.", list_of(ANY_OBJECT)),
        _listing("resources"),
    ),
    CatalogueRoute(
        _operation(
            "GET", "/resources/templates", "listTemplates", "All resource templates.", list_of(ANY_OBJECT)
        ),
        _listing("templates"),
    ),
    CatalogueRoute(
        _operation(
            "POST",
            "/prompts/get",
            "getPrompt",
            "The messages of a prompt.",
            ANY_OBJECT,
            object_of({"name": TEXT}, {"arguments": _TEXTS, **_ROUND}),
        ),
        lambda served, request, _, extra: served.get_prompt(request, extra),
    ),
    CatalogueRoute(
        _operation(
            "POST",
            "/resources/read",
            "readContents",
            "The contents of a resource.",
            ANY_OBJECT,
            object_of({"uri": TEXT}, _ROUND),
        ),
        lambda served, request, _, extra: served.read_resource(request, extra),
    ),
    CatalogueRoute(
        _operation(
            "POST",
            "/complete",
            "completeArgument",
            "Values for an argument of a prompt or a template.",
            ANY_OBJECT,
            _COMPLETE_BODY,
        ),
        lambda served, request, _, extra: served.complete(request, extra),
    ),
    CatalogueRoute(
        _operation(
            "POST",
            "/tools/{name}/answer",
            "answerQuestion",
            "Answers a question of a tool that runs.",
            ANY_OBJECT,
            _ANSWER_BODY,
        ),
        lambda served, request, name, extra: served.answer(request, name, extra),
    ),
    CatalogueRoute(
        _operation(
            "GET",
            "/files",
            "listOwnFiles",
            "The caller's files that the server's tools take, and how large one may be.",
            object_of({"files": list_of(ANY_OBJECT)}, {"limit": {"type": ["integer", "null"]}}),
        ),
        lambda served, request, _, extra: served.show_files(request, extra),
    ),
    CatalogueRoute(EVENTS, lambda served, request, _, extra: served.show_events(request, extra)),
)
"""In the order in which they are tried."""

RECORDED = {"getPrompt": "prompts/get", "readContents": "resources/read"}
"""The operations (by id) that are exchanges for people to see, and their methods. Lists are none, as those of tools,
nor are previews, and values that are offered with each key: the page reads all these by itself.
"""
