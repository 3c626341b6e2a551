"""kill -9 to the process of the adapter that holds a question of a modern server to a legacy client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.replicas import replicated
from tests.edge.modern_upstream import COMPLETE, ModernScript, answer, asking, form, params, refuse
from tests.edge.raw import INITIALIZE, Exchange, RawClient, RawUpstream, call_body, read_chunk

pytestmark = [pytest.mark.e2e, pytest.mark.timed]

SOON = 1.0
"""Seconds in which a client hears that its call is lost."""

PATIENCE = 20.0


async def asks(exchange: Exchange) -> None:
    """Ask in the first round of each call."""
    is_asked = "inputResponses" not in params(exchange)
    found = asking(form(), state="s") if is_asked else COMPLETE
    await exchange.json(orjson.dumps(answer(exchange, result=found)))


async def next_message(client: RawClient) -> Any:
    """The next message on the stream of a call."""
    while True:
        chunk = await read_chunk(client.reader)
        assert chunk, "the stream ended"
        if b"data: {" in chunk:
            return orjson.loads(chunk.rpartition(b"data: ")[2])


async def question(client: RawClient, number: int) -> Any:
    """The question that is asked in a new call."""
    await client.send("POST", call_body(number=number))
    assert (await client.head()).status == 200
    return await next_message(client)


def accepted(asked: Any) -> bytes:
    """The client's answer."""
    return orjson.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {}}})


async def test_a_question_ends_with_its_process(tmp_path: Path) -> None:
    """The call ends with a named error, whatever the client answers then runs nothing, and its session goes on."""
    tools = [{"name": "tool", "inputSchema": {"type": "object"}}]
    upstream = RawUpstream(ModernScript(asks, tools=tools), opening=refuse)
    await upstream.start()
    try:
        async with asyncio.timeout(4 * PATIENCE), replicated(tmp_path, upstream.url, 2) as front:
            one, two = front.replicas
            async with (
                RawClient(one.port) as opener,
                RawClient(two.port) as client,
                RawClient(two.port) as beside,
            ):
                head, _ = await opener.request("POST", INITIALIZE)
                client.session = beside.session = head["mcp-session-id"]
                lost = await question(client, 1)
                await one.kill()
                async with asyncio.timeout(SOON):
                    failed = await next_message(client)
                assert (failed["id"], failed["error"]["code"]) == (1, -32011), failed
                assert "have run" in failed["error"]["message"]
                await beside.request("POST", accepted(lost))
                async with RawClient(two.port) as again:
                    again.session = client.session
                    asked = await question(again, 2)
                    assert (await beside.request("POST", accepted(asked)))[0].status == 202
                    assert (await next_message(again))["result"]["content"] == COMPLETE["content"]
    finally:
        await upstream.stop()
    assert ["inputResponses" in params(each) for each in upstream.calls("tools/call")] == [False, False, True]
