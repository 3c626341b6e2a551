"""The tools that the public conformance suite calls, as hosted ones; other features of its server are not tools."""

from __future__ import annotations

from typing import Any

from adapter.hosted.server import HostedServer, HostedTool
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import CallRefused, Outcome
from adapter.upstream.local.upstream import LocalUpstream
from tests.e2e.conformance_catalogue import JSON_SCHEMA_2020_12, PNG, WAV
from tests.hosted.serving import answer, hosted, text, tool

_IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}

SCENARIOS = {
    "2025-11-25": (
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-error",
        "tools-call-with-progress",
        "json-schema-2020-12",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ),
    "2026-07-28": (
        "server-stateless",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-error",
        "tools-call-with-progress",
        "json-schema-2020-12",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "http-header-validation",
        "http-custom-header-server-validation",
    ),
}
"""What of each revision is about tools and the transport alone. The rest needs prompts, resources, completion,
logging, sampling or elicitation, which no hosted tool has."""


def _resource(uri: str, media_type: str, words: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "text": words}}


def _says(name: str, *content: dict[str, Any], is_error: bool = False) -> HostedTool:
    async def run(_: PlannedCall) -> Outcome:
        return answer(content, is_error=is_error)

    return tool(name, run)


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


async def _progress(call: PlannedCall) -> Outcome:
    for percent in (0, 50, 100):
        await call.client.progress(percent)
    return text("Tool with progress executed successfully")


async def _needs_sampling(_: PlannedCall) -> Outcome:
    raise CallRefused(-32021, "This tool needs sampling", {"requiredCapabilities": {"sampling": {}}})


async def _accept(call: PlannedCall) -> Outcome:
    return text(", ".join(sorted(call.arguments)))


def conformance_upstream() -> LocalUpstream[HostedServer]:
    """A hosted server of these tools."""
    mirrored = {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    }
    mixed = (
        _text("Multiple content types test:"),
        _IMAGE,
        _resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    )
    tools = [
        _says("test_simple_text", _text("This is a simple text response for testing.")),
        _says("test_image_content", _IMAGE),
        _says("test_audio_content", {"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
        _says(
            "test_embedded_resource",
            _resource("test://embedded-resource", "text/plain", "This is an embedded resource content."),
        ),
        _says("test_multiple_content_types", *mixed),
        _says(
            "test_error_handling",
            _text("This tool intentionally returns an error for testing"),
            is_error=True,
        ),
        _says("test_logging_tool", _text("Nothing was logged.")),
        _says("test_streaming_elicitation", _text("Nothing was asked.")),
        tool("test_tool_with_progress", _progress),
        tool("test_missing_capability", _needs_sampling),
        tool("test_x_mcp_header", _accept, inputSchema=mirrored),
        tool("json_schema_2020_12_tool", _accept, inputSchema=JSON_SCHEMA_2020_12),
    ]
    return hosted(tools)
