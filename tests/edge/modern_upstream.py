"""A raw upstream that speaks MCP 2026-07-28 only: it refuses ``initialize``, and answers calls as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.edge.raw import Exchange, Script, event

REFUSED = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["2026-07-28"]}}

DISCOVERED = {
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "public",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
    "instructions": "Be kind.",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "7"}},
}

COMPLETE = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}


async def refuse(exchange: Exchange) -> None:
    """Answer what it does not know."""
    await exchange.answer(
        400, orjson.dumps(answer(exchange, error=REFUSED)), "Content-Type: application/json"
    )


def answer(exchange: Exchange, **content: Any) -> dict[str, Any]:
    """A response to what came."""
    return {"jsonrpc": "2.0", "id": exchange.message["id"], **content}


def params(exchange: Exchange) -> Any:
    """The params of what came."""
    return exchange.message["params"]


def asking(*requests: Mapping[str, Any], state: str | None = None) -> dict[str, Any]:
    """A result that asks these, under the keys q0, q1, …"""
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = {f"q{index}": each for index, each in enumerate(requests)}
    return result if state is None else {**result, "requestState": state}


def form(message: str = "Name?") -> dict[str, Any]:
    """A question to the user."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


@dataclass
class ModernScript:
    """Answers discoveries and lists of ``tools``; ``call`` answers calls, ``others`` the methods that it names.

    ``listening`` are the streams of subscriptions that were opened, ``left`` is set when one is over.
    """

    call: Script | None = None
    others: Mapping[str, Script] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    listening: list[Exchange] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, exchange: Exchange) -> None:
        """See Script."""
        method = str(exchange.message.get("method"))
        if method in self.others:
            await self.others[method](exchange)
        elif exchange.head.get("mcp-protocol-version") != "2026-07-28":
            await refuse(exchange)
        elif method == "server/discover":
            await exchange.json(orjson.dumps(answer(exchange, result=DISCOVERED)))
        elif method == "tools/list":
            result = {"tools": self.tools, "resultType": "complete", "ttlMs": 5, "cacheScope": "public"}
            await exchange.json(orjson.dumps(answer(exchange, result=result)))
        elif method == "subscriptions/listen":
            await exchange.begin_stream()
            wanted = {"notifications": params(exchange)["notifications"]}
            await exchange.chunk(
                event(notification("notifications/subscriptions/acknowledged", wanted, exchange))
            )
            self.listening.append(exchange)
            self.heard.set()
            await exchange.gone()
            self.left.set()
        elif self.call is not None:
            await self.call(exchange)
        else:
            await exchange.json(orjson.dumps(answer(exchange, result=COMPLETE)))


def notification(method: str, content: Mapping[str, Any], exchange: Exchange) -> bytes:
    """A notification of the subscription that an exchange opened."""
    meta = {"io.modelcontextprotocol/subscriptionId": exchange.message["id"]}
    return orjson.dumps({"jsonrpc": "2.0", "method": method, "params": {**content, "_meta": meta}})
