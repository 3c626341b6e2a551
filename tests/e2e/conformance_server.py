"""``python -m tests.e2e.conformance_server [PORT]``: an MCP server on the SDK that the suite passes.

It serves both eras on one address. Prints its URL, then serves until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette

from tests.e2e import conformance_catalogue as catalogue
from tests.e2e import conformance_rounds as rounds
from tests.e2e.conformance_calls import CALLS, CHANGES, TOOLS
from tests.e2e.conformance_rounds import Context
from tests.e2e.serving import serve

RETRY_MS = 100
"""What ``retry:`` tells a client to wait before it asks for the rest of a stream."""

_TEMPLATE = re.compile(r"test://template/([^/]+)/data")


class Replay(EventStore):
    """Every event of the process, numbered over all streams, so that an id alone finds its stream."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        """Numbers ``message`` (None: the priming event that only carries an id)."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Sends what its stream got after ``last_event_id``; None for an id this store never gave."""
        position = int(last_event_id) if last_event_id.isdecimal() else 0
        if not 0 < position <= len(self._events):
            return None
        stream_id = self._events[position - 1][0]
        for number, (stream, message) in enumerate(self._events[position:], position + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """All tools, on one page."""
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> rounds.Rounds:
    """Calls the tool; -32602 for a name that is not in the list."""
    call = CALLS.get(params.name)
    if call is None:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await call(ctx, params)


async def list_resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    """All resources that are not templates."""
    return types.ListResourcesResult(resources=catalogue.RESOURCES)


async def list_templates(
    _: Context, __: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    """The one template."""
    return types.ListResourceTemplatesResult(resource_templates=catalogue.TEMPLATES)


async def read_resource(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    """Reads a resource; -32602 with the address in ``data`` when there is none (SEP-2164)."""
    uri = str(params.uri)
    contents: types.TextResourceContents | types.BlobResourceContents
    if uri == "test://static-binary":
        contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=catalogue.PNG)
    elif uri == "test://static-text":
        text = "This is the content of the static text resource."
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    elif uri == "test://watched-resource":
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text="Watched")
    elif (found := _TEMPLATE.fullmatch(uri)) is not None:
        text = json.dumps({"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"})
        contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
    else:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return types.ReadResourceResult(contents=[contents])


async def subscribe(
    _: Context, __: types.SubscribeRequestParams | types.UnsubscribeRequestParams
) -> types.EmptyResult:
    """Accepts: the watched resource never changes, so nothing has to be remembered."""
    return types.EmptyResult()


async def list_prompts(_: Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    """All prompts, on one page."""
    return types.ListPromptsResult(prompts=catalogue.PROMPTS)


async def get_prompt(
    _: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    """Writes the prompt's messages; -32602 for an unknown prompt or a missing argument."""
    if params.name == "test_input_required_result_prompt":
        return await rounds.prompt(params)
    try:
        blocks = _prompt_blocks(params.name, params.arguments or {})
    except KeyError as missing:
        raise MCPError(types.INVALID_PARAMS, f"Unknown prompt or argument: {missing}") from missing
    return types.GetPromptResult(
        messages=[types.PromptMessage(role="user", content=block) for block in blocks]
    )


def _prompt_blocks(name: str, arguments: dict[str, str]) -> list[types.ContentBlock]:
    def text(words: str) -> types.TextContent:
        return types.TextContent(type="text", text=words)

    if name == "test_simple_prompt":
        return [text("This is a simple prompt for testing.")]
    if name == "test_prompt_with_arguments":
        return [text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")]
    if name == "test_prompt_with_image":
        image = types.ImageContent(type="image", data=catalogue.PNG, mime_type="image/png")
        return [image, text("Please analyze the image above.")]
    if name == "test_prompt_with_embedded_resource":
        contents = types.TextResourceContents(
            uri=arguments["resourceUri"],
            mime_type="text/plain",
            text="Embedded resource content for testing.",
        )
        embedded = types.EmbeddedResource(type="resource", resource=contents)
        return [embedded, text("Please process the embedded resource above.")]
    raise KeyError(name)


async def complete(_: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    """Three cities, as far as they begin with what was typed."""
    values = [city for city in ("paris", "park", "party") if city.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


async def set_level(_: ServerRequestContext, __: types.SetLevelRequestParams) -> types.EmptyResult:
    """Accepts any level: every log message of this server is at info."""
    return types.EmptyResult()


def conformance_server() -> Server[Any]:
    """The server, which speaks both eras."""
    server = Server(
        "conformance",
        version="1.0",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=subscribe,
        on_subscriptions_listen=ListenHandler(CHANGES),
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )
    # Not on_set_logging_level=: the SDK warns of it as deprecated, and the legacy era still has it.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    return server


def build() -> Starlette:
    """The server as an application with both eras on ``/mcp``; Host and Origin must be loopback."""
    return conformance_server().streamable_http_app(event_store=Replay(), retry_interval=RETRY_MS)


async def serve_stdio() -> None:
    """Serve over standard input and output instead."""
    server = conformance_server()
    async with stdio_server() as (messages, answers):
        await server.run(messages, answers, server.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        asyncio.run(serve_stdio())
    else:
        serve(build)
