"""Counts of calls by server, tool and outcome, whichever way they take."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.raw import Exchange, RawClient, call_body, event, result
from tests.edge.test_request_metrics import ON, numbers

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("good", "bad", "streams", "torn")]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CALLS, TIMES = "adapter_upstream_tool_calls_total", "adapter_upstream_tool_call_duration_seconds_count"
SERVED, SENT = "mcp_server_operation_duration_seconds_count", "mcp_client_operation_duration_seconds_count"


def answer(number: object, **members: object) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, **members})


async def tools(exchange: Exchange) -> None:
    """Plays a server with four tools; it knows no other."""
    message: dict[str, Any] = exchange.message
    number, params = message.get("id", 0), message.get("params") or {}
    if message["method"] == "tools/list":
        return await exchange.json(answer(number, result={"tools": TOOLS}))
    if message["method"] != "tools/call":
        return await exchange.json(answer(number, error={"code": -99, "message": "Unknown method"}))
    match params["name"]:
        case "good":
            await exchange.json(result(number))
        case "bad":
            await exchange.json(answer(number, result={"content": [], "isError": True}))
        case "streams":
            said = event(b'{"jsonrpc":"2.0","method":"notifications/progress"}')
            await exchange.send(HEAD + b"%x\r\n%b\r\n" % (len(said), said))
            await exchange.chunk(event(answer(number, result={"content": [], "isError": True})))
            await exchange.end_stream()
        case "torn":
            exchange.break_off()
        case _:
            error = {"code": -32602, "message": "Unknown tool"}
            await exchange.json(answer(number, error=error))
    return None


async def call(client: RawClient, name: str) -> None:
    await client.request("POST", call_body(name))


async def test_calls_are_counted_by_tool_and_outcome(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """A name is a label once its server has listed it; invented ones are all the same."""
    async with upstream(tools) as up, adapter(up, telemetry=ON) as front, front.client() as client:
        await client.initialize()
        await client.request("POST", orjson.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}))
        for name in ("good", "good", "bad", "streams", "torn", "invented-1", "invented-2", "x" * 500):
            await call(client, name)
        await client.request("POST", orjson.dumps({"jsonrpc": "2.0", "id": 7, "method": "stranger/made-up"}))
        found = await numbers(client)
    outcomes = {key[1:]: value for key, value in found.items() if key[0] == CALLS}
    assert outcomes == {
        ("ok", "raw", "good"): 2,
        ("tool_error", "raw", "bad"): 1,
        ("tool_error", "raw", "streams"): 1,
        ("upstream_unanswered", "raw", "torn"): 1,
        ("rpc_error", "raw", "other"): 3,
    }
    assert found[TIMES, "ok", "raw", "good"] == 2
    served = {key[1:]: value for key, value in found.items() if key[0] == SERVED}
    sent = {key[1:]: value for key, value in found.items() if key[0] == SENT}
    # error type, method, protocol version, server, status code, tool, transport
    expected = {
        ("", "initialize", "", "raw", "", "", "tcp"): 1,
        ("", "tools/list", "", "raw", "", "", "tcp"): 1,
        ("", "tools/call", "", "raw", "", "good", "tcp"): 2,
        ("tool_error", "tools/call", "", "raw", "", "bad", "tcp"): 1,
        ("tool_error", "tools/call", "", "raw", "", "streams", "tcp"): 1,
        ("-32602", "tools/call", "", "raw", "-32602", "other", "tcp"): 3,
        ("other", "_OTHER", "", "raw", "other", "", "tcp"): 1,
    }
    assert served == {**expected, ("-32011", "tools/call", "", "raw", "-32011", "torn", "tcp"): 1}
    assert sent == {**expected, ("upstream_unanswered", "tools/call", "", "raw", "", "torn", "tcp"): 1}
    assert found["adapter_mcp_requests_in_flight", "raw"] == 0


async def test_the_life_of_a_session_is_counted(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """From its beginning over a rest to its end."""
    sessions = {"idle_ttl_seconds": 0.3, "allow_revival": True}
    core = {"cleanup_interval_seconds": 0.1}
    events = "adapter_sessions_lifecycle_total"
    async with (
        upstream(tools) as up,
        adapter(up, telemetry=ON, sessions=sessions, core=core) as front,
        front.client() as client,
    ):
        await client.initialize()
        async with asyncio.timeout(10):
            while not (await numbers(client)).get((events, "idle", "raw")):
                await asyncio.sleep(0.05)
        await call(client, "good")
        assert (await client.request("DELETE"))[0].status == 200
        found = await numbers(client)
    assert {key[1]: value for key, value in found.items() if key[0] == events} == {
        **{"created": 1, "idle": 1, "revived": 1, "ended": 1},
    }
