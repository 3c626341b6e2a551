"""The answers to names that a server does not have, or that its caller may not see: the same bytes for both. Pure."""

from __future__ import annotations

from adapter.errors import ToolUnknown
from adapter.rules.text.unicode import shown
from adapter.wire.envelope import error_response

METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602

NOT_FOUND_LEGACY, NOT_FOUND_MODERN = -32002, INVALID_PARAMS
"""The code of an unknown resource, which MCP 2026-07-28 changed."""

_LONGEST_NAME = 100
_LONGEST_URI = 1000


def unknown_tool(name: str) -> ToolUnknown:
    """The failure of a call of a tool that is not there."""
    return ToolUnknown(f"Unknown tool: {shown(name, _LONGEST_NAME)}")


def unknown_prompt(id_bytes: bytes, name: str) -> bytes:
    """The response to a request for a prompt that is not there (MCP, prompts, "Error Handling")."""
    return error_response(id_bytes, INVALID_PARAMS, f"Unknown prompt: {shown(name, _LONGEST_NAME)}")


def unknown_resource(id_bytes: bytes, uri: str, *, modern: bool) -> bytes:
    """The response to a request for a resource that is not there (MCP, resources, "Error Handling")."""
    code = NOT_FOUND_MODERN if modern else NOT_FOUND_LEGACY
    return error_response(id_bytes, code, "Resource not found", {"uri": shown(uri, _LONGEST_URI)})


def unknown_method(id_bytes: bytes, method: str) -> bytes:
    """The response to a request that is not served (JSON-RPC 2.0, "Error object")."""
    return error_response(id_bytes, METHOD_NOT_FOUND, f"Method not found: {shown(method, _LONGEST_NAME)}")
