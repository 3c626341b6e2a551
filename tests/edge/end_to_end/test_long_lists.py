"""Long lists of tools that come again: nobody reads them twice, and every client gets its own answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, RawClient

TOOLS = [
    {"name": f"tool_{number}", "description": "Does something. " * 40, "inputSchema": {"type": "object"}}
    for number in range(2000)
]
SETTINGS: dict[str, Any] = {
    "core": {
        "tool_definition_pinning": {"mode": "block"},
        "tool_description_policy": {"mode": "truncate", "max_tool_description_chars": 100},
    }
}

Write = Callable[[object, list[dict[str, Any]]], bytes]


def id_first(number: object, tools: list[dict[str, Any]]) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "result": {"tools": tools}})


def id_last(number: object, tools: list[dict[str, Any]]) -> bytes:
    return orjson.dumps({"result": {"tools": tools}, "jsonrpc": "2.0", "id": number})


class Lister:
    """An upstream that answers every list with ``tools``, in two writes."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.tools = TOOLS

    async def __call__(self, exchange: Exchange) -> None:
        body = self.write(exchange.message["id"], self.tools)
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body[:7]
        )
        await exchange.send(body[7:])


async def listed(client: RawClient, number: object) -> bytes:
    asked = orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/list"})
    head, body = await client.request("POST", asked)
    assert head.status == 200 and int(head["content-length"]) == len(body)
    return body


@pytest.mark.parametrize("write", [id_first, id_last])
async def test_every_client_gets_the_list_under_its_own_id(in_session: StartRoad, write: Write) -> None:
    """All of it, as policy has it, whatever the id is and wherever it stands."""
    async with in_session(Lister(write), **SETTINGS) as (up, _, client):
        first = await listed(client, 1)
        tools = orjson.loads(first)["result"]["tools"]
        assert [tool["name"] for tool in tools] == [tool["name"] for tool in TOOLS]
        assert all(len(tool["description"]) <= 100 for tool in tools)
        for number in (2, "text", 1, 10**12):
            again = await listed(client, number)
            assert again == first.replace(b'"id":1', b'"id":' + orjson.dumps(number))
        assert len(up.calls("tools/list")) == 5


async def test_a_list_with_one_other_byte_is_read_anew(in_session: StartRoad) -> None:
    """A tool that changed under its name, in the middle of a long list, is drift at once."""
    lister = Lister(id_first)
    async with in_session(lister, **SETTINGS) as (_, _, client):
        await listed(client, 1)
        lister.tools = [*TOOLS]
        lister.tools[1000] = {**TOOLS[1000], "description": "Does something. " * 39 + "Does somethinG. "}
        await listed(client, 2)
        lister.tools[1000] = {**TOOLS[1000], "description": "does something. " * 40}
        refused = orjson.loads(await listed(client, 3))
        assert refused["error"]["code"] and "tool_1000" in str(refused["error"])


async def test_a_slow_client_holds_nobody_up(in_session: StartRoad) -> None:
    """Who does not read its list keeps the others from none of theirs, and gets all of it when it reads on."""
    async with in_session(Lister(id_first), **SETTINGS) as (_, front, slow), front.client() as client:
        first = await listed(slow, 1)
        asked = orjson.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        slow.stop_reading()
        await slow.send("POST", asked)
        await client.initialize()
        assert await listed(client, 1) == first
        slow.read_on()
        head = await slow.head()
        body = await slow.reader.readexactly(int(head["content-length"]))
        assert body == first.replace(b'"id":1', b'"id":2')
