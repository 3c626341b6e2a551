"""The tools of the conformance server: what each does when it is called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from tests.e2e import conformance_catalogue as catalogue
from tests.e2e import conformance_rounds as rounds
from tests.e2e.conformance_rounds import Context, Params, Rounds, say

STEP = 0.05
"""Seconds between two messages of one call: the suite wants to see them arrive one by one."""

RECONNECT = 0.2
"""Seconds a call goes on after its stream was closed: longer than ``retry:`` tells the client to wait."""

CHANGES = InMemorySubscriptionBus()
"""What ``subscriptions/listen`` streams hear of."""

Call = Callable[[Context, Params], Awaitable[Rounds]]

_IMAGE = types.ImageContent(type="image", data=catalogue.PNG, mime_type="image/png")


def _embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=contents)


def _fixed(*blocks: types.ContentBlock, is_error: bool = False) -> Call:
    async def answer(_: Context, __: Params) -> Rounds:
        return types.CallToolResult(content=list(blocks), is_error=is_error)

    return answer


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


async def _log(ctx: Context, text: str) -> None:
    params = types.LoggingMessageNotificationParams(level="info", data=text)
    await ctx.session.send_notification(types.LoggingMessageNotification(params=params), ctx.request_id)


async def with_logging(ctx: Context, _: Params) -> Rounds:
    """Three log messages on the call's own stream."""
    await _log(ctx, "Tool execution started")
    await asyncio.sleep(STEP)
    await _log(ctx, "Tool processing data")
    await asyncio.sleep(STEP)
    await _log(ctx, "Tool execution completed")
    return say("Tool with logging executed successfully")


async def log_when_asked(ctx: Context, _: Params) -> Rounds:
    """One log message, which 2026-07-28 lets through only when the request's ``_meta`` names a level."""
    await ctx.session.send_log_message("info", "Working", related_request_id=ctx.request_id)
    return say("Logged, if that was asked for.")


async def with_progress(ctx: Context, _: Params) -> Rounds:
    """Progress 0, 50 and 100 of 100; the SDK sends none without a progress token."""
    for progress in (0, 50, 100):
        await ctx.session.report_progress(progress, 100)
        await asyncio.sleep(STEP)
    return say("Tool with progress executed successfully")


async def sampling(ctx: Context, params: Params) -> Rounds:
    """Asks the client's model, on the call's own stream."""
    request = rounds.sample(str((params.arguments or {})["prompt"]), 100)
    if ctx.protocol_version >= rounds.SINCE:
        answer = (params.input_responses or {}).get("sample")
        if answer is None:
            return types.InputRequiredResult(input_requests={"sample": request})
        return say(f"LLM response: {rounds.sampled(answer)}")
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    result = await ctx.session.send_request(request, types.CreateMessageResult, metadata=related)
    return say(f"LLM response: {rounds.sampled(result)}")


async def _elicit(ctx: Context, params: Params, message: str, form: dict[str, Any], opening: str) -> Rounds:
    if ctx.protocol_version >= rounds.SINCE:
        asked = types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=message, requested_schema=form)
        )
        result = (params.input_responses or {}).get("form")
        if not isinstance(result, types.ElicitResult):
            return types.InputRequiredResult(input_requests={"form": asked})
    else:
        result = await ctx.session.elicit_form(message, form, ctx.request_id)
    return say(f"{opening}: action={result.action}, content={json.dumps(result.content or {})}")


async def elicitation(ctx: Context, params: Params) -> Rounds:
    """Asks the user for a name and an address."""
    return await _elicit(
        ctx, params, str((params.arguments or {})["message"]), catalogue.USER_FORM, "User response"
    )


async def elicitation_defaults(ctx: Context, params: Params) -> Rounds:
    """A form whose fields have defaults (SEP-1034)."""
    return await _elicit(ctx, params, "Please check", catalogue.DEFAULTS_FORM, "Elicitation completed")


async def elicitation_enums(ctx: Context, params: Params) -> Rounds:
    """A form with every kind of enum (SEP-1330)."""
    return await _elicit(ctx, params, "Please choose", catalogue.ENUMS_FORM, "Elicitation completed")


async def reconnection(ctx: Context, _: Params) -> Rounds:
    """Closes its own stream in the middle: the answer comes on a later GET (SEP-1699)."""
    await _log(ctx, "Before disconnect")
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await asyncio.sleep(RECONNECT)
    return say("Reconnection test completed")


async def missing_capability(ctx: Context, _: Params) -> Rounds:
    """Refuses a client that did not declare sampling (2026-07-28, -32021)."""
    if not ctx.session.check_client_capability(types.ClientCapabilities(sampling=types.SamplingCapability())):
        missing: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs sampling", missing)
    return say("The client can sample.")


async def change_tools(_: Context, __: Params) -> Rounds:
    """Tells the listeners that the tools changed."""
    await CHANGES.publish(ToolsListChanged())
    return say("Announced a change of tools")


async def change_prompts(_: Context, __: Params) -> Rounds:
    """Tells the listeners that the prompts changed."""
    await CHANGES.publish(PromptsListChanged())
    return say("Announced a change of prompts")


async def accept(_: Context, params: Params) -> Rounds:
    """Says what it was given."""
    return say(json.dumps(params.arguments or {}, sort_keys=True))


_MIXED = (
    _text("Multiple content types test:"),
    _IMAGE,
    _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
)

CALLS: dict[str, Call] = {
    "test_simple_text": _fixed(_text("This is a simple text response for testing.")),
    "test_image_content": _fixed(_IMAGE),
    "test_audio_content": _fixed(types.AudioContent(type="audio", data=catalogue.WAV, mime_type="audio/wav")),
    "test_embedded_resource": _fixed(
        _embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": _fixed(*_MIXED),
    "test_error_handling": _fixed(
        _text("This tool intentionally returns an error for testing"), is_error=True
    ),
    "test_tool_with_logging": with_logging,
    "test_logging_tool": log_when_asked,
    "test_tool_with_progress": with_progress,
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_elicitation_sep1034_defaults": elicitation_defaults,
    "test_elicitation_sep1330_enums": elicitation_enums,
    "test_reconnection": reconnection,
    "test_missing_capability": missing_capability,
    "test_trigger_tool_change": change_tools,
    "test_trigger_prompt_change": change_prompts,
    "test_mirrored_header": accept,
    "json_schema_2020_12_tool": accept,
    **rounds.TOOLS,
}

_SCHEMAS = {
    "test_sampling": catalogue.text_argument("prompt"),
    "test_elicitation": catalogue.text_argument("message"),
    "test_mirrored_header": catalogue.text_argument("region", **{"x-mcp-header": "Region"}),
    "json_schema_2020_12_tool": catalogue.JSON_SCHEMA_2020_12,
}

TOOLS = [
    types.Tool(
        name=name,
        description=f"Conformance tool {name}",
        input_schema=_SCHEMAS.get(name, catalogue.NO_ARGUMENTS),
    )
    for name in CALLS
]
