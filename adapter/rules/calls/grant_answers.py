"""Answers to requests that need a person's authorization first, by what the client can do with a link. Pure.

Source of the rules: MCP 2025-11-25 and 2026-07-28, "Elicitation" (URL mode), and "Multi Round-Trip Requests".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from adapter.errors import BadJson, GrantRequired
from adapter.wire.envelope import Envelope, dump, parse
from adapter.wire.spans import Drop, edit, find

INPUT = "mcp-file-adapter/grant"
"""The key of the adapter's own request for input."""

ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests that may be answered with a wish for input, and that need a grant before they go upstream."""

CAPABILITIES = ("params", "_meta", "io.modelcontextprotocol/clientCapabilities")
"""The place of a modern client's capabilities."""

_RESPONSES = ("params", "inputResponses")

Action = Literal["accept", "decline", "cancel"]


def takes_urls(capabilities: object) -> bool:
    """Tell whether a client with these capabilities has declared that it can show links (elicitation, URL mode)."""
    elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(elicitation, dict) and isinstance(elicitation.get("url"), dict)


def member_of(body: bytes, path: tuple[str, ...]) -> Any:
    """The value at a path of a message, None where there is none."""
    try:
        span = find(body, path)
        return None if span is None else parse(body[slice(*span)])
    except BadJson:
        return None


def input_required(id_bytes: bytes, error: GrantRequired) -> bytes:
    """The response that asks a modern client to have a link opened, and to call again."""
    link = error.data or {}
    params = {"mode": "url", "url": link.get("url"), "message": link.get("message")}
    request = {"method": "elicitation/create", "params": params}
    return _response(id_bytes, {"resultType": "input_required", "inputRequests": {INPUT: request}})


def tool_error(id_bytes: bytes, error: GrantRequired, *, modern: bool) -> bytes:
    """The result of a failed tool, with the link in its text, for clients that cannot show links by themselves."""
    result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
    return _response(id_bytes, {"resultType": "complete", **result} if modern else result)


def elicitations(error: GrantRequired) -> Mapping[str, Any]:
    """The data of a URLElicitationRequiredError."""
    return {"elicitations": [error.data or {}]}


def own_input(envelope: Envelope) -> tuple[Action | None, bytes]:
    """The person's answer to the adapter's own wish for input, and the message without it.

    None and the body as it is where there is none: what answers the upstream's wishes stays as it came.
    """
    body = envelope.body
    given = member_of(body, _RESPONSES) if b"inputResponses" in body else None
    if not isinstance(given, dict) or INPUT not in given:
        return None, body
    answer = given[INPUT]
    action = answer.get("action") if isinstance(answer, dict) else None
    left = edit(body, [Drop(_RESPONSES if len(given) == 1 else (*_RESPONSES, INPUT))])
    return action if action in ("accept", "decline") else "cancel", left


def _response(id_bytes: bytes, result: Mapping[str, Any]) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"result":' + dump(result) + b"}"
