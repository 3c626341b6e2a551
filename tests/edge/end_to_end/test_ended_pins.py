"""What a session was pinned to is taken away when it has ended."""

from __future__ import annotations

import asyncio

import orjson

from adapter.relay.tools.pins import PINS
from adapter.state.memory import MemoryStore
from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, result


async def with_tools(exchange: Exchange) -> None:
    """Offers one tool and answers every call of it."""
    number = exchange.message["id"]
    if exchange.message["method"] == "tools/list":
        tools = [{"name": "tool", "description": "Does.", "inputSchema": {"type": "object"}}]
        listed = {"jsonrpc": "2.0", "id": number, "result": {"tools": tools}}
        await exchange.json(orjson.dumps(listed))
    else:
        assert isinstance(number, int)
        await exchange.json(result(number))


async def pins_are(store: MemoryStore, count: int) -> None:
    """Wait until there are that many."""
    async with asyncio.timeout(20):
        while await store.count(PINS) != count:
            await asyncio.sleep(0.01)


async def test_ended_sessions_leave_no_pins(road: StartRoad) -> None:
    """Of several that end one after the other as of the first; a session that goes on keeps its own."""
    store, core = MemoryStore(), {"tool_definition_pinning": {"mode": "block"}}
    async with road(with_tools, store=store, core=core) as (_, front, goes), front.client() as stays:
        await stays.initialize()
        await stays.call()
        for _ in range(2):
            for _ in range(3):
                await goes.initialize()
                await goes.call()
                await goes.request("DELETE")
            await goes.initialize()
            await goes.call()
            await pins_are(store, 2)
            await goes.request("DELETE")
            await pins_are(store, 1)
