"""The routes of the tool API: the tables that the adapter and hosts that embed it share, and their records.

``ServerRoutes`` are its branches below ``console.path``, for each server. ``openapi.yaml`` describes them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from adapter.edge.api.server_catalogue import ServerCatalogue, completion, prompt, resource
from adapter.edge.api.tool_api import WARNING_FIELD, ToolApi
from adapter.edge.http.request import Branch, Names, Request, names_behind
from adapter.edge.http.response import send
from adapter.edge.mcp.endpoint import LONGEST_NAME
from adapter.edge.router import ExchangeRecords
from adapter.rules.calls.tool_api import HttpOutcome, refused
from adapter.rules.text.unicode import shown

if TYPE_CHECKING:
    # Late: few ask for traces.
    from adapter.edge.telemetry import ServerSpans

NAME = "{name}"
"""The one part of a path that may hold slashes, for names of tools may."""

CALL_FIELD = "X-Adapter-Call"
"""The field in which a caller gives its call an id."""

_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_READ, _POST = ("GET", "HEAD"), ("POST",)
_EXPOSED = (WARNING_FIELD, "Content-Disposition")

Api = TypeVar("Api")


class ApiRoute(NamedTuple, Generic[Api]):
    """A route below a server's path, or below a host's own.

    ``recorded``: the method under which it is an exchange for people to see. Lists are none, nor are previews, and
    values that are offered with each key: the page reads all these by itself.
    """

    methods: tuple[str, ...]
    path: str
    serve: Callable[[Api, Request, str], Awaitable[object]]
    recorded: str | None = None

    @property
    def parts(self) -> Names:
        """The parts of the path."""
        return tuple(self.path.strip("/").split("/"))


GO_ON: ApiRoute[ToolApi] = ApiRoute(
    _POST, "/tools/{name}/continue", partial(ToolApi.call, going_on=True), "tools/call"
)
"""The route of calls that asked for input, which a host's own tools do not."""

ROUTES: tuple[ApiRoute[ToolApi], ...] = (
    ApiRoute(_POST, "/tools/{name}/call", ToolApi.call, "tools/call"),
    ApiRoute(_POST, "/tools/{name}/validate", ToolApi.validate),
    ApiRoute(_READ, "/tools", ToolApi.show_tools),
    ApiRoute(_READ, "/meta", ToolApi.show_meta),
    ApiRoute(_READ, "/tools/{name}", ToolApi.show_tool),
)
"""In the order in which they are tried; the first is that of calls."""

CATALOGUE_ROUTES: tuple[ApiRoute[ServerCatalogue], ...] = (
    ApiRoute(_READ, "/prompts", partial(ServerCatalogue.show_list, kind="prompts")),
    ApiRoute(_READ, "/resources/list", partial(ServerCatalogue.show_list, kind="resources")),
    ApiRoute(_READ, "/resources/templates", partial(ServerCatalogue.show_list, kind="templates")),
    ApiRoute(_POST, "/prompts/get", partial(ServerCatalogue.ask, read=prompt), "prompts/get"),
    ApiRoute(
        _POST,
        "/resources/read",
        partial(ServerCatalogue.ask, read=resource, execution=False),
        "resources/read",
    ),
    ApiRoute(_POST, "/complete", partial(ServerCatalogue.ask, read=completion)),
    ApiRoute(_POST, "/tools/{name}/answer", ServerCatalogue.answer),
    ApiRoute(_READ, "/files", ServerCatalogue.show_files),
    ApiRoute(("GET",), "/events", ServerCatalogue.show_events),
)
PREVIEW: ApiRoute[ServerCatalogue] = ApiRoute(_READ, "/resources", ServerCatalogue.show_resource)


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


@dataclass(eq=False, repr=False, slots=True)
class ServerRoutes:
    """Serves ``apis`` (by server id) below ``path``, and ``document``.

    ``records`` gets the line of each call, prompt and resource, and ``spans`` the span of a call, as those over MCP do.
    """

    path: str
    apis: Mapping[str, ServerCatalogue]
    document: bytes
    records: ExchangeRecords
    spans: ServerSpans | None = None

    def branches(self) -> Sequence[Branch]:
        """The branches, to be tried in this order behind those of the console's data."""
        call, *others = ROUTES
        return (
            *(self._branch(route) for route in CATALOGUE_ROUTES),
            *(self._branch(route, of_tools=True) for route in (call, GO_ON, *others)),
            self._branch(PREVIEW),
            PatternBranch(self.path, 0, _READ, (), self._show_document, ("openapi.json",)),
        )

    def _branch(self, route: ApiRoute[Any], *, of_tools: bool = False) -> PatternBranch:
        parts = ("{server}", *route.parts)
        serve = partial(self._serve, route, of_tools)
        return PatternBranch(self.path, 0, route.methods, _EXPOSED, serve, parts)

    async def _serve(self, route: ApiRoute[Any], of_tools: bool, request: Request, names: Names) -> None:
        server, api = names[0], self.apis.get(names[0])
        if api is None:
            send(request, refused(404, f"Server not found: {server}"))
            return
        serve = partial(route.serve, api.tools if of_tools else api, request, names[-1])
        if route.recorded is None:
            await serve()
            return
        await self._record(route.recorded, request, server, names[-1] if of_tools else None, serve)

    async def _record(
        self,
        method: str,
        request: Request,
        server: str,
        tool: str | None,
        serve: Callable[[], Awaitable[object]],
    ) -> None:
        """Serve, and record what is answered as exchanges over MCP are: a call under the id that its caller gave it,
        and nothing of its contents.
        """
        spans = None if tool is None else self.spans
        span = None if spans is None or tool is None else spans.begin_call(request.headers, server, tool)
        self.records.begin()
        # What nobody took any more has no status: 499 is what proxies write for it.
        began, outcome, status = time.monotonic(), "client_gone", 499
        try:
            answered = await serve()
            # The status of an event stream is that of its beginning, whatever came of the call.
            sent = answered.status if isinstance(answered, HttpOutcome) else request.reply.status
            if sent is not None:
                outcome, status = "failed" if sent >= 500 else "refused" if sent >= 400 else "ok", sent
        finally:
            if spans is not None and span is not None:
                spans.end(span, outcome if outcome in ("ok", "client_gone") else str(status))
            line: dict[str, object] = {
                "at": time.time(),
                "event": "exchange",
                "server": server,
                "http": request.method,
                "era": None,
                "method": method,
                "name": None if tool is None else shown(tool, LONGEST_NAME),
                "status": status,
                "outcome": outcome,
                "ms": int((time.monotonic() - began) * 100_000) / 100,
                "entrance": "http",
            }
            given = request.headers.get(CALL_FIELD, "")
            if tool is not None and _CALL_ID.fullmatch(given):
                line["call"] = given
            self.records.write(request, server, line)

    async def _show_document(self, request: Request, names: Names) -> None:  # noqa: ARG002 (a branch's)
        fields = [("Content-Type", "application/json"), ("Cache-Control", "no-cache")]
        request.reply.send(200, fields, self.document)
