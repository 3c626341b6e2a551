"""Clients of the modern era at a server that speaks the legacy one only."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from adapter.wire.eras import Era
from tests.edge.conftest import StartRoad
from tests.edge.raw import MODERN_META, Exchange, RawClient, event, modern_fields, result
from tests.edge.test_telemetry_metrics import numbers

CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
QUESTION = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "Name?"}}
YES = {"action": "accept", "content": {"name": "Ada"}}
TOKENS = [{"name": "ada", "token": "a" * 32}, {"name": "bea", "token": "b" * 32}]
AUTH = {"auth": {"enabled": True, "tokens": TOKENS}}


class Legacy:
    """A script that refuses the modern era, asks in each call, and keeps what it is answered."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.answered = asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        message = exchange.message
        if exchange.head.method == "GET":
            await exchange.answer(405, b"")
        elif exchange.head.get("mcp-protocol-version") == "2026-07-28":
            await exchange.answer(400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}')
        elif "method" not in message:
            self.answers.append(message)
            await exchange.answer(202, b"")
            self.answered.set()
        else:
            await self.call(exchange)

    async def call(self, exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event(orjson.dumps(QUESTION)))
        gone = asyncio.ensure_future(exchange.gone())
        answered = asyncio.ensure_future(self.answered.wait())
        await asyncio.wait([gone, answered], return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            number = exchange.message["id"]
            found = result(0).replace(b'"id":0', b'"id":' + orjson.dumps(number))
            await exchange.chunk(event(found))
            await exchange.end_stream()
        else:
            self.gone.set()
        gone.cancel()
        answered.cancel()


async def call(
    client: RawClient,
    number: int,
    given: Any = None,
    state: str | None = None,
    arguments: Any = None,
    **more: str,
) -> dict[str, Any]:
    """The answer to one round of a call, with its status."""
    params = {
        "name": "tool",
        "arguments": arguments or {},
        "_meta": {**MODERN_META, CAPABILITIES_KEY: {"elicitation": {}}},
    }
    if state is not None:
        params |= {"inputResponses": given, "requestState": state}
    body = orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    head, text = await client.request("POST", body, **modern_fields(), **more)
    data = text.split(b"data: ")[-1].strip() if head["content-type"] == "text/event-stream" else text
    return {**orjson.loads(data), "status": head.status}


@pytest.mark.parametrize("auth", [False, True])
async def test_call_with_a_question_takes_two_requests(road: StartRoad, auth: bool) -> None:
    """The server is found to be a legacy one by its refusal, and asked and answered in its own way."""
    script = Legacy()
    fields = {"authorization": f"Bearer {'a' * 32}"} if auth else {}
    async with road(script, core=AUTH if auth else {}) as (up, front, client):
        asked = await call(client, 1, **fields)
        assert asked["result"]["resultType"] == "input_required", asked
        assert front.app.servers["raw"].eras == {Era.LEGACY}
        [key] = asked["result"]["inputRequests"]
        found = await call(client, 2, {key: YES}, asked["result"]["requestState"], **fields)
        assert (found["id"], found["result"]["content"][0]["text"]) == (2, "done")
        assert script.answers == [{"jsonrpc": "2.0", "id": "q", "result": YES}]
        legacy = [
            each for each in up.calls("tools/call") if each.head["mcp-protocol-version"] != "2026-07-28"
        ]
        assert len(legacy) == 1
        again = await call(client, 3, {key: YES}, asked["result"]["requestState"], **fields)
        assert (again["status"], again["error"]["code"]) == (400, -32602)
        if not auth:
            await up.arrived("DELETE")


async def test_refused_states_are_counted(road: StartRoad) -> None:
    """Of another person, changed, with other arguments, and a second time; none of them takes the call away."""
    script, telemetry = Legacy(), {"prometheus": {"enabled": True}}
    ada, bea = ({"authorization": f"Bearer {letter * 32}"} for letter in "ab")
    async with road(script, core=AUTH, telemetry=telemetry) as (_, _, client):
        asked = await call(client, 1, **ada)
        state = asked["result"]["requestState"]
        [key] = asked["result"]["inputRequests"]
        given, middle = {key: YES}, len(state) // 2
        changed = state[:middle] + ("B" if state[middle] == "A" else "A") + state[middle + 1 :]
        refused = [
            await call(client, 2, given, state, **bea),
            await call(client, 3, given, changed, **ada),
            await call(client, 4, given, state, {"other": 1}, **ada),
        ]
        assert (await call(client, 5, given, state, **ada))["result"]["content"][0]["text"] == "done"
        refused.append(await call(client, 6, given, state, **ada))
        assert {each["error"]["code"] for each in refused} == {-32602}
        found = await numbers(client, **ada)
        assert found["adapter_request_rejections_total", "request_state_refused", "mcp", "raw"] == 4
        assert len(script.answers) == 1
