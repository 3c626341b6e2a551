"""Parts of the adapter inside a host's aiohttp application: the tool API of a host's own tools, or all of it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple, TypedDict

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from adapter.edge.api.routes import NAME, ROUTES, ApiRoute
from adapter.edge.api.tool_api import ApiOptions, ApiResult, AuthHook, Hook, Tell, ToolApi
from adapter.edge.console.page_files import PageFiles
from adapter.edge.http.aiohttp_bridge import Act, HostRequest, answered
from adapter.edge.http.bodies import TERMS, BodyLimits, ClientGone
from adapter.edge.http.request import Request
from adapter.edge.http.response import send
from adapter.errors import AdapterError
from adapter.pipeline.validation_stage import SchemaChecks
from adapter.rules.access.host_and_origin_check import host_allowed, origin_allowed
from adapter.rules.access.principals import ANONYMOUS
from adapter.rules.calls.tool_api import HttpOutcome, InvalidJson, refused
from adapter.rules.results.refusals import Expose

Application = web.Application
RouteDef = web.RouteDef

Tools = Sequence[Any] | Callable[[], Sequence[Any]] | Callable[[], Awaitable[Sequence[Any]]]
"""A host's tools: a list, or what gives one, asked each time."""

HandleCall = Callable[..., Awaitable[tuple[Sequence[Any], bool, str | None]]]
"""A host's handler: name and arguments, and the request where it takes three, to content, is_error and trace id."""


class Options(TypedDict, total=False):
    """The options of the API that a host may set. Their defaults are those of ``console``.

    ``auth_hook`` is given the host's request and stands around each call.
    ``allowed_origins`` are pages of other hosts that may call. ``allowed_hosts`` are the Hosts that are served.
    With None any Host is served; this is for a host that checks Hosts itself, because names can be made to point
    to a loopback address.
    """

    title: str
    allow_execute: bool
    auth_hook: Hook | None
    discovery_auth: bool
    invalid_json: InvalidJson
    max_body: int
    expose: Expose
    allowed_origins: Sequence[str] | None
    allowed_hosts: Sequence[str] | None


_OF_THE_API = frozenset(field.name for field in fields(ApiOptions))


class Mount(NamedTuple):
    """The arguments of ``Application.add_subapp``: ``app.add_subapp(*mount)``."""

    prefix: str
    app: web.Application


# --- a host's own tools ---------------------------------------------------------------------------------------


class HostTools:
    """A Provider: tools and handler of a host's own. A handler of three parameters or more gets the request too."""

    name, reads = "the host", False

    def __init__(self, tools: Tools, handle_call: HandleCall) -> None:
        self._tools = tools
        self._handle_call = handle_call
        self._takes_request = _positional(handle_call) >= 3

    def principal(self, request: Request) -> str:  # noqa: ARG002 (a Provider's)
        """See Provider: whoever they are, the host has let them in."""
        return ANONYMOUS

    async def tools(self, request: Request) -> Sequence[Any]:  # noqa: ARG002 (a Provider's)
        """See Provider."""
        found: Any = self._tools() if callable(self._tools) else self._tools
        return list(await found if inspect.isawaitable(found) else found)

    async def tool(self, name: str, request: Request) -> Any | None:
        """See Provider."""
        for tool in await self.tools(request):
            if (tool.get("name") if isinstance(tool, dict) else getattr(tool, "name", None)) == name:
                return tool
        return None

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        request: Request,
        tell: Tell | None,  # noqa: ARG002 (a Provider's)
        continued: Mapping[str, Any] | None = None,  # noqa: ARG002 (a Provider's)
    ) -> ApiResult:
        """See Provider. Raises TypeError for a handler that returns something else, and what it raises."""
        more = (seen_by_host(request, name),) if self._takes_request else ()
        returned: Any = self._handle_call(name, arguments, *more)
        returned = await returned if inspect.isawaitable(returned) else returned
        if not isinstance(returned, tuple) or len(returned) != 3:
            raise TypeError("The handler returns content, is_error and a trace id.")
        content, is_error, trace_id = returned
        return ApiResult.of(content, is_error, trace_id)


def seen_by_host(request: Request, name: str) -> Any:  # noqa: ARG001 (a ToolApi's view)
    """The request as the host knows it."""
    return request.original if isinstance(request, HostRequest) else request


def _positional(function: Callable[..., Any]) -> int:
    """The number of arguments that it takes by position; at least two where nobody can tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return 3
    return sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)


# --- routes ---------------------------------------------------------------------------------------------------


class _Explorer:
    """Answers the routes of one embedded API."""

    def __init__(self, api: ToolApi, log: FilteringBoundLogger, options: Options) -> None:
        self._api = api
        self._log = log
        self._origins = options.get("allowed_origins")
        self._hosts = options.get("allowed_hosts")
        self._page = PageFiles()

    async def tool_route(self, route: ApiRoute[ToolApi], original: web.Request) -> web.StreamResponse:
        name = original.match_info.get("name", "")

        async def act(request: Request) -> None:
            await route.serve(self._api, request, name)

        return await self._answered(original, act)

    async def page(self, original: web.Request) -> web.StreamResponse:
        async def act(request: Request) -> None:
            status, head, body = await self._page.page(request.headers)
            request.reply.send(status, head, body)

        return await self._answered(original, act)

    async def to_page(self, original: web.Request) -> web.StreamResponse:
        """Redirect from the path without a final slash, where the page's relative paths would be wrong."""
        last = original.path.rpartition("/")[2]
        return web.Response(status=308, headers={"Location": f"{last}/"})

    async def asset(self, original: web.Request) -> web.StreamResponse:
        async def act(request: Request) -> None:
            names = tuple(original.match_info["file"].split("/"))
            status, head, body = await self._page.file(names, request.headers)
            request.reply.send(status, head, body)

        # The plot frame has no origin: browsers send "Origin: null" along when it loads its script.
        return await self._answered(original, act, public=True)

    async def _answered(self, original: web.Request, act: Act, *, public: bool = False) -> web.StreamResponse:
        async def guarded(request: Request) -> None:
            if (stranger := self._stranger(request, public=public)) is not None:
                send(request, stranger)
                return
            try:
                await act(request)
            except ClientGone:
                raise
            except AdapterError as error:
                send(request, refused(error.http, str(error)))
            except Exception:
                self._log.exception("a request failed unexpectedly", path=request.path)
                if request.reply.status is None:
                    send(request, refused(500, "The request failed unexpectedly; the log has the details."))

        return await answered(original, guarded)

    def _stranger(self, request: Request, *, public: bool) -> HttpOutcome | None:
        host, origin = request.headers.get("Host"), request.headers.get("Origin")
        if self._hosts is not None and not host_allowed(host, bound_to_loopback=False, allowed=self._hosts):
            return refused(421, "This Host is not served here.")
        if not public and not origin_allowed(origin, host, allowed=self._origins):
            return refused(403, "This Origin may not call the tools.")
        return None


def routes(
    tools: Tools, handle_call: HandleCall, log: FilteringBoundLogger, options: Options, checks: SchemaChecks
) -> list[web.RouteDef]:
    """The page and the API of a host's own tools, relative to wherever the host puts them."""
    hook = options.get("auth_hook")
    chosen: dict[str, Any] = {name: value for name, value in options.items() if name in _OF_THE_API}
    api = ToolApi(
        HostTools(tools, handle_call),
        ApiOptions(**chosen),
        log,
        hook=None if hook is None else AuthHook(hook, log),
        view=seen_by_host,
        checks=checks,
    )
    explorer = _Explorer(api, log, options)
    served = [
        web.route(
            route.methods[0], route.path.replace(NAME, "{name:.+}"), partial(explorer.tool_route, route)
        )
        for route in ROUTES
    ]
    return [
        *served,
        web.get("/assets/{file:.+}", explorer.asset),
        web.get("/", explorer.page),
        web.get("", explorer.to_page),
    ]


def mount(prefix: str, explorer: Sequence[web.RouteDef], end: Callable[[], Awaitable[None]]) -> Mount:
    """Build an application of its own from these routes; ``end`` is awaited when it ends."""

    async def living(_: web.Application) -> AsyncIterator[None]:
        yield
        await end()

    app = web.Application()
    app.add_routes(explorer)
    app.cleanup_ctx.append(living)
    return Mount(prefix, app)


# --- all of it ------------------------------------------------------------------------------------------------


def application(
    serve: Act, lifetime: Callable[[], AbstractAsyncContextManager[None]], terms: BodyLimits = TERMS
) -> web.Application:
    """Build an application that gives every request to ``serve`` and enters ``lifetime`` as long as it runs.

    ``terms`` are the limits for the bodies of requests.
    """

    async def living(_: web.Application) -> AsyncIterator[None]:
        async with lifetime():
            yield

    async def handle(original: web.Request) -> web.StreamResponse:
        return await answered(original, serve, _prefix(original), terms)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    app.cleanup_ctx.append(living)
    return app


def _prefix(original: web.Request) -> str:
    """The path below which the host has put the application."""
    resource = original.match_info.route.resource
    return "" if resource is None else resource.canonical.removesuffix("/{tail}")
