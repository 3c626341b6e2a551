"""``python -m tests.e2e.eras_server [PORT | stdio] both|legacy|modern [sse]``: the conformance server in chosen eras.

It refuses requests of the other era as servers of the SDKs do that have it switched off, or do not know it. In the
legacy era it asks, and tells of changes, by messages of the session.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import NotificationOptions
from mcp.server.lowlevel.server import Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.e2e.conformance_calls import CALLS, CHANGES, TOOLS, Call
from tests.e2e.conformance_catalogue import NO_ARGUMENTS
from tests.e2e.conformance_rounds import SINCE, Context, Params, Rounds, say
from tests.e2e.conformance_server import RETRY_MS, Replay, conformance_server, get_prompt
from tests.e2e.serving import serve

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
WATCHED = "test://watched-resource"

_RESULTS: dict[str, type[Any]] = {
    "elicitation/create": types.ElicitResult,
    "roots/list": types.ListRootsResult,
    "sampling/createMessage": types.CreateMessageResult,
}


# --- what differs between the eras ---------------------------------------------------------------------------


async def _answers(ctx: Context, requests: types.InputRequests) -> dict[str, Any] | None:
    """What a legacy client answers to all questions of one round; None if it declines one."""
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    asking = [
        ctx.session.send_request(request, _RESULTS[request.method], metadata=related)
        for request in requests.values()
    ]
    try:
        found = await asyncio.gather(*asking)
    except MCPError:
        return None
    if any(isinstance(each, types.ElicitResult) and each.action != "accept" for each in found):
        return None
    return dict(zip(requests, found, strict=True))


async def call_tool(ctx: Context, params: Params) -> Rounds:
    """Call a tool. What it wants to know is asked in the way of the era."""
    legacy = ctx.protocol_version < SINCE
    call = TOLD.get(params.name) if legacy else None
    call = call or OWN.get(params.name) or CALLS.get(params.name)
    if call is None:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    result = await call(ctx, params)
    while legacy and isinstance(result, types.InputRequiredResult):
        answers = await _answers(ctx, result.input_requests or {})
        if answers is None:
            return say("The client declined.")
        known = {"input_responses": answers, "request_state": result.request_state}
        result = await call(ctx, params.model_copy(update=known))
    return result


async def prompt(ctx: Context, params: types.GetPromptRequestParams) -> Any:
    """Write a prompt. What it wants to know is asked in the way of the era."""
    result = await get_prompt(ctx, params)
    while ctx.protocol_version < SINCE and isinstance(result, types.InputRequiredResult):
        answers = await _answers(ctx, result.input_requests or {}) or {}
        result = await get_prompt(ctx, params.model_copy(update={"input_responses": answers}))
    return result


async def tell_of_tools(ctx: Context, _: Params) -> Rounds:
    """Tells a legacy client that the tools changed."""
    await ctx.session.send_tool_list_changed()
    return say("Announced a change of tools")


async def tell_of_prompts(ctx: Context, _: Params) -> Rounds:
    """Tells a legacy client that the prompts changed."""
    await ctx.session.send_prompt_list_changed()
    return say("Announced a change of prompts")


async def tell_of_resource(ctx: Context, _: Params) -> Rounds:
    """Tells a legacy client that the watched resource changed."""
    await ctx.session.send_resource_updated(WATCHED)
    return say("Announced a change of a resource")


async def change_resource(_: Context, __: Params) -> Rounds:
    """Tells the listeners that the watched resource changed."""
    await CHANGES.publish(ResourceUpdated(WATCHED))
    return say("Announced a change of a resource")


_ENDED: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


async def wait(ctx: Context, params: Params) -> Rounds:
    """Reports that it runs, and waits until it is cancelled."""
    try:
        await ctx.session.report_progress(1, 2)
        await asyncio.Event().wait()
    finally:
        _ENDED[str((params.arguments or {})["name"])].set()
    raise AssertionError("nobody sets the event")


async def ended(_: Context, params: Params) -> Rounds:
    """Answers once the waiting call of that name is cancelled."""
    await _ENDED[str((params.arguments or {})["name"])].wait()
    return say("It was cancelled")


TOLD: dict[str, Call] = {
    "test_trigger_tool_change": tell_of_tools,
    "test_trigger_prompt_change": tell_of_prompts,
    "test_trigger_resource_change": tell_of_resource,
}
"""The tools that are others in sessions."""

OWN: dict[str, Call] = {
    "test_trigger_resource_change": change_resource,
    "test_wait": wait,
    "test_ended": ended,
}
"""Tools beside those of the suite."""


# --- the eras of requests --------------------------------------------------------------------------------------


def refusal(era: str, requested: str, number: Any) -> dict[str, Any]:
    """The error for a request of the other era."""
    if era == "modern":
        data = {"supported": [SINCE], "requested": requested}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
    else:
        error = {"code": -32600, "message": f"Bad Request: Unsupported protocol version: {requested}"}
    return {"jsonrpc": "2.0", "id": number, "error": error}


class OneEra:
    """Refuses all requests of HTTP but those of one era."""

    def __init__(self, app: ASGIApp, era: str) -> None:
        self._app = app
        self._era = era

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "http":
            headers = {name.lower(): value.decode() for name, value in scope["headers"]}
            version = headers.get(b"mcp-protocol-version", "")
            if (version >= SINCE) is not (self._era == "modern"):
                answer = JSONResponse(refusal(self._era, version, None), 400)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


@asynccontextmanager
async def filtered(era: str, messages: Any, answers: Any) -> AsyncIterator[Any]:
    """The messages of one era; requests of the other are answered here."""
    send, receive = anyio.create_memory_object_stream[Any](0)

    async def relay() -> None:
        async with send:
            async for item in messages:
                message = item.message if isinstance(item, SessionMessage) else None
                params = getattr(message, "params", None) or {}
                version = (params.get("_meta") or {}).get(VERSION_KEY)
                if isinstance(message, types.JSONRPCRequest) and (version is not None) is not (
                    era == "modern"
                ):
                    error = refusal(era, version or "", message.id)
                    await answers.send(SessionMessage(types.JSONRPCError.model_validate(error)))
                else:
                    await send.send(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(relay)
        yield receive
        tasks.cancel_scope.cancel()


# --- the server ------------------------------------------------------------------------------------------------


class Announcing(Server[Any]):
    """Announces to legacy clients that its lists change."""

    def create_initialization_options(self, *_: Any, **__: Any) -> Any:
        """See Server."""
        return super().create_initialization_options(NotificationOptions(True, True, True))


async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """All tools, on one page."""
    own = [
        types.Tool(name=name, description=str(call.__doc__), input_schema=NO_ARGUMENTS)
        for name, call in OWN.items()
    ]
    return types.ListToolsResult(tools=[*TOOLS, *own])


def eras_server() -> Server[Any]:
    """The server, which speaks both eras."""
    server = conformance_server()
    server.__class__ = Announcing
    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, prompt)
    return server


def application(era: str) -> Starlette:
    """The server over HTTP."""
    app = eras_server().streamable_http_app(event_store=Replay(), retry_interval=RETRY_MS)
    if era != "both":
        app.add_middleware(OneEra, era=era)
    return app


def over_sse() -> Starlette:
    """The server over HTTP+SSE, which is of the legacy era."""
    server = eras_server()
    transport = SseServerTransport("/messages/")

    async def events(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    posts = Mount("/messages/", app=transport.handle_post_message)
    return Starlette(routes=[Route("/mcp", endpoint=events), posts])


async def serve_stdio(era: str) -> None:
    """Serve over standard input and output instead."""
    server = eras_server()
    options = server.create_initialization_options()
    async with stdio_server() as (messages, answers):
        if era == "both":
            await server.run(messages, answers, options)
            return
        async with filtered(era, messages, answers) as chosen:
            await server.run(chosen, answers, options)


if __name__ == "__main__":
    place, chosen_era = sys.argv[1:3]
    assert chosen_era in ("both", "modern", "legacy"), sys.argv
    if place == "stdio":
        asyncio.run(serve_stdio(chosen_era))
    else:
        serve(over_sse if "sse" in sys.argv else lambda: application(chosen_era))
