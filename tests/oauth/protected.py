"""A protected upstream that answers with the token it was called with, and requests to it."""

from __future__ import annotations

from typing import Any

import orjson

from tests.edge.raw import MODERN_META, Exchange, RawClient, result
from tests.oauth.token_serving import TokenServer

PINNED: dict[str, Any] = {"tool_definition_pinning": {"mode": "block"}}


async def answer(exchange: Exchange) -> None:
    """Answer lists with one tool of the caller's own, calls with its token, and streams with silence."""
    method, token = exchange.message.get("method"), str(exchange.head.get("authorization")).split()[-1]
    number = exchange.message.get("id")
    if exchange.head.method == "GET":
        await exchange.begin_stream()
    elif method == "tools/list":
        tool = {"name": f"tool_{token}", "inputSchema": {"type": "object"}}
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": number, "result": {"tools": [tool]}}))
    elif method == "tools/call":
        await exchange.json(result(number, token))  # type: ignore[arg-type]  # a number, as clients send
    else:
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": number, "result": {}}))


def auth(tokens: TokenServer, kind: str = "client_credentials", **more: Any) -> dict[str, Any]:
    """The entry of a server with this type of credentials."""
    section = {"type": kind, "token_endpoint": tokens.url, "client_id": "adapter", "client_secret": "s"}
    return {"upstream": {"auth": section | more}}


def asking(method: str, number: int = 5) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {}})


async def tools_of(client: RawClient, **fields: str) -> bytes:
    """The list of the caller with these fields, in the era without sessions."""
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}})
    asked = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/list", **fields}
    head, text = await client.request("POST", body, **asked)
    assert head.status == 200 and b'"error"' not in text, text
    return bytes(text)
