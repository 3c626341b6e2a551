"""Counts of calls by server, tool and outcome, whichever way they take."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import orjson

from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, RawClient, beginning, call_body, event, result
from tests.edge.test_telemetry_metrics import ON, numbers

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


async def test_calls_are_counted_by_tool_and_outcome(in_session: StartRoad) -> None:
    """A name is a label once its server has listed it; invented ones are all the same."""
    async with in_session(tools, telemetry=ON) as (_, _, client):
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


async def secretive(exchange: Exchange) -> None:
    """Plays a server without any tool, whose answers to single calls are compressed."""
    said = orjson.loads(exchange.body)
    error = {"code": -32602, "message": "Unknown tool"}
    if isinstance(said, dict):
        body = gzip.compress(answer(said["id"], error=error))
        return await exchange.json(body, "Content-Encoding: gzip")
    await exchange.begin_stream()
    for each in said:
        told = {"result": {}} if each["method"] == "ping" else {"error": error}
        await exchange.chunk(event(answer(each["id"], **told)))
    return await exchange.end_stream()


def batch(*methods: str, **params: str) -> bytes:
    messages = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, method in enumerate(methods)
    ]
    return orjson.dumps(messages)


async def test_invented_names_are_no_labels(in_session: StartRoad) -> None:
    """Neither where the answer cannot be read, nor where a batch has a result beside the error; that one has failed."""
    async with in_session(secretive, version="2025-03-26", telemetry=ON) as (_, _, client):
        for number in range(3):
            await client.request("POST", call_body(f"invented-{number}"), **{"accept-encoding": "gzip"})
        await client.request("POST", batch("tools/call", "ping", name="invented-in-a-batch"))
        found = await numbers(client)
    assert {key[1:]: value for key, value in found.items() if key[0] == CALLS} == {
        ("ok", "raw", "other"): 3,
        ("rpc_error", "raw", "other"): 1,
    }


async def test_the_answer_to_a_batch_is_downloaded_once(in_session: StartRoad) -> None:
    """However many artifacts it was to read."""
    async with in_session(secretive, version="2025-03-26", telemetry=ON) as (_, _, client):
        reads = batch("resources/read", "resources/read", "resources/read", uri="artifact://sessions/a/b")
        _, body = await client.request("POST", reads)
        found = await numbers(client)
    assert found["adapter_artifact_downloads_total", "rpc_error", "raw"] == 3
    assert found["adapter_artifact_download_bytes_total", "raw"] == len(body)


async def test_a_version_that_nobody_knows_does_not_stay_in_memory(in_session: StartRoad) -> None:
    """It may fill a whole head, and each request may have another one."""
    async with in_session(tools, telemetry=ON) as (_, front, client):
        for number in range(3):
            fields = {"mcp-protocol-version": f"{number}" * 16_000}
            await client.request("POST", call_body("good"), **fields)
        assert front.app.metering is not None
        waiting = front.app.metering.operations.waiting
        assert {version for _, _, _, version, _ in waiting.seconds} == {None}
        found = await numbers(client)
    assert found[CALLS, "ok", "raw", "good"] == 3


async def test_a_flood_of_tiny_events_is_not_read(in_session: StartRoad) -> None:
    """Each of them would take the time of hundreds of bytes; the call counts as it would without an answer's text."""
    flood = b"data:x\n\n" * 60_000

    async def flooding(exchange: Exchange) -> None:
        number = exchange.message["id"]
        failed = event(answer(number, result={"content": [], "isError": True}))
        if params_of(exchange)["name"] == "whole":
            return await exchange.answer(200, flood + failed, "Content-Type: text/event-stream")
        return await exchange.stream(flood, failed)

    async with in_session(flooding, telemetry=ON) as (_, _, client):
        for name in ("whole", "streamed"):
            _, body = await client.request("POST", call_body(name))
            assert body.startswith(flood)
        found = await numbers(client)
    assert {key[1:]: value for key, value in found.items() if key[0] == CALLS} == {("ok", "raw", "other"): 2}
    assert found["adapter_mcp_requests_in_flight", "raw"] == 0


async def test_a_call_whose_client_leaves_has_not_succeeded(road: StartRoad) -> None:
    """Neither the client's, nor the one that the adapter made for it."""
    endless = beginning(event(b'{"jsonrpc":"2.0","method":"notifications/progress"}'))
    async with road(endless, telemetry=ON) as (_, front, other):
        async with front.client() as client:
            await client.initialize()
            await client.send("POST", call_body("slow"))
            await client.head()
        async with asyncio.timeout(10):
            while (found := await numbers(other))["adapter_mcp_requests_in_flight", "raw"]:
                await asyncio.sleep(0.05)
    gone = {(key[0], key[1]) for key in found if key[0] in (SERVED, SENT) and "tools/call" in key}
    assert gone == {(SERVED, "cancelled"), (SENT, "cancelled")}


def params_of(exchange: Exchange) -> dict[str, Any]:
    params = exchange.message["params"]
    assert isinstance(params, dict)
    return params


async def test_the_life_of_a_session_is_counted(in_session: StartRoad) -> None:
    """From its beginning over a rest to its end."""
    sessions = {"idle_ttl_seconds": 0.3, "allow_revival": True}
    core = {"cleanup_interval_seconds": 0.1}
    events = "adapter_sessions_lifecycle_total"
    async with in_session(tools, telemetry=ON, sessions=sessions, core=core) as (_, _, client):
        async with asyncio.timeout(10):
            while not (await numbers(client)).get((events, "idle", "raw")):
                await asyncio.sleep(0.05)
        await call(client, "good")
        assert (await client.request("DELETE"))[0].status == 200
        found = await numbers(client)
    assert {key[1]: value for key, value in found.items() if key[0] == events} == {
        **{"created": 1, "idle": 1, "revived": 1, "ended": 1}
    }
