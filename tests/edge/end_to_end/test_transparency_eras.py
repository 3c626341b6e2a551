"""Both eras on one mount, and the batches of the one version that has them."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import (
    Exchange,
    answering,
    call_body,
    event,
    in_json,
    read_chunk,
    result,
)

VERSION = "2026-07-28"
META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28", "vendor/x":1.0,'
    b'"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"}}'
)
MODERN_CALL = (
    b'{"id":1,"jsonrpc":"2.0", "method":"tools/call","params":{"name":"t\xc3\xb6\xc3\xb6l",%s}}' % META
)
MIRRORS = {
    "mcp_protocol_version": VERSION,
    "mcp_method": "tools/call",
    "mcp_name": "=?base64?dMO2w7Zs?=",
    "mcp_param_region": "eu west",
    "Mcp-Param-X.y": "=?base64?w6k=?=",
}


async def test_modern_call_is_forwarded_with_its_mirrors_and_mints_nothing(in_session: StartRoad) -> None:
    """Bytes and headers pass; a session id that the client sends anyway, even a good one, is left out."""
    said = (
        b'{"id":1,"jsonrpc":"2.0","result":{"resultType":"inputRequired","inputRequests":{"q":{"x":1.0}},'
        b'"requestState":"\\u0061","ttlMs":1e3,"cacheScope":"public"}}'
    )

    async with in_session(in_json(said, "Mcp-Session-Id: of-the-upstream")) as (up, _, client):
        head, body = await client.request("POST", MODERN_CALL, **MIRRORS)
        assert (head.status, body) == (200, said)
        assert head.get("mcp-session-id") is None
        asked = up.seen[-1]
        assert asked.body == MODERN_CALL
        assert {name: value for name, value in asked.head.fields if name.startswith("mcp-")} == {
            "mcp-protocol-version": VERSION,
            "mcp-method": "tools/call",
            "mcp-name": "=?base64?dMO2w7Zs?=",
            "mcp-param-region": "eu west",
            "mcp-param-x.y": "=?base64?w6k=?=",
        }
        assert len(up.seen) == 2


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "vendor/own"])
async def test_modern_methods_pass_without_a_session(road: StartRoad, method: str) -> None:
    """Discovery, lists with ttlMs and cacheScope, and methods nobody knows are the upstream's to answer."""
    asked = b'{"jsonrpc":"2.0","id":"a","method":"%s","params":{%s}}' % (method.encode(), META)
    said = (
        b'{"jsonrpc":"2.0","id":"a","result":{"supportedVersions":["x"],"ttlMs":1.0,"tools":[{"z":1,"a":2}]}}'
    )

    async with road(in_json(said)) as (up, _, client):
        _, body = await client.request("POST", asked, mcp_protocol_version=VERSION, mcp_method=method)
        assert body == said
        assert [each.body for each in up.seen] == [asked]


async def test_subscription_outlives_silence_and_closes_with_its_client(road: StartRoad) -> None:
    """``subscriptions/listen`` may be silent longer than any call; its events come at once, its end is told."""
    asked = b'{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{%s}}' % META
    told = event(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":1.0}}')
    closed = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(told)
        await asyncio.sleep(0.1)
        await exchange.chunk(told)
        await exchange.gone()
        closed.set()

    impatient = {"upstream_request_timeout_seconds": 0.02}
    async with road(script, core=impatient) as (_, _, client):
        await client.send("POST", asked, mcp_protocol_version=VERSION, mcp_method="subscriptions/listen")
        assert (await client.head()).status == 200
        assert await read_chunk(client.reader) == told
        assert await read_chunk(client.reader) == told
        client.close()
        async with asyncio.timeout(8):
            await closed.wait()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"mcp_protocol_version": "2027-01-01"}, "MCP-Protocol-Version"),
        ({"mcp_method": "tools/list"}, "Mcp-Method"),
    ],
)
async def test_modern_headers_that_disagree_with_the_body_are_refused_here(
    road: StartRoad, changed: dict[str, str], named: str
) -> None:
    """A mirror that is absent or wrong gets 400 with -32020 and the request's id; nothing goes upstream."""
    async with road() as (up, _, client):
        head, body = await client.request("POST", MODERN_CALL, **(MIRRORS | changed))
        answer = orjson.loads(body)
        assert head.status == 400 and answer["id"] == 1
        assert answer["error"]["code"] == -32020 and named in answer["error"]["message"]
        assert up.seen == []


async def test_modern_404_is_the_upstreams_answer(road: StartRoad) -> None:
    """404 means "no such method" in the modern era: it passes, and no session is replayed for it."""
    said = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}'

    piped = {"upstream": {"bridge": "never"}}
    async with road(answering(404, said, "Content-Type: application/json"), server=piped) as (up, _, client):
        head, body = await client.request("POST", MODERN_CALL, **MIRRORS)
        assert (head.status, body) == (404, said)
        assert len(up.seen) == 1


async def test_batch_of_2025_03_26_is_piped(in_session: StartRoad) -> None:
    """Requests and notifications in one array go out as one array; answers on a stream come as they are sent."""
    batch = b'[ %s,{"jsonrpc":"2.0","method":"notifications/x"} ,%s]' % (
        call_body(number=1),
        call_body(number=2),
    )
    answers = [event(b"[%s]" % result(2)), b": between\n\n", event(result(1))]
    read = asyncio.Semaphore(0)

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for each in answers:
            await read.acquire()
            await exchange.chunk(each)
        await exchange.end_stream()

    async with in_session(script, version="2025-03-26") as (up, _, client):
        await client.send("POST", batch)
        await client.head()
        for each in answers:
            read.release()
            assert await read_chunk(client.reader) == each
        assert await read_chunk(client.reader) == b""
        assert up.seen[-1].body == batch
        assert up.seen[-1].head["mcp-session-id"] == "upstream-1"


async def test_batch_answered_as_json_and_batch_of_notifications(in_session: StartRoad) -> None:
    """An array of answers is piped like one answer; an array that waits for none gets the upstream's 202."""
    said = b"[%s , %s]" % (result(2), result(1))

    async def script(exchange: Exchange) -> None:
        if b"tools/call" in exchange.body:
            await exchange.json(said)
        else:
            await exchange.answer(202, b"")

    async with in_session(script, version="2025-03-26") as (up, _, client):
        head, body = await client.request("POST", b"[%s,%s]" % (call_body(number=1), call_body(number=2)))
        assert (head.status, body) == (200, said)
        notes = b'[{"jsonrpc":"2.0","method":"notifications/a"}, {"jsonrpc":"2.0","id":3,"result":{}}]'
        head, body = await client.request("POST", notes)
        assert (head.status, body) == (202, b"")
        assert up.seen[-1].body == notes


async def test_refused_client_does_not_take_its_era_from_a_server(road: StartRoad) -> None:
    """Whoever looks for the eras of a server after a refusal asks with no field of the client's own request."""

    async def script(exchange: Exchange) -> None:
        message: Any = exchange.message
        if exchange.head.method == "DELETE":
            return await exchange.answer(200, b"")
        if message["method"] == "initialize":
            found: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}
        elif message["method"] == "server/discover":
            mirrors = sorted(
                name.lower() for name, _ in exchange.head.fields if name.lower().startswith("mcp-")
            )
            assert mirrors == ["mcp-method", "mcp-protocol-version", "mcp-session-id"]
            found = {"supportedVersions": [VERSION], "capabilities": {}}
        else:
            return await exchange.answer(400, b"{}", "Content-Type: application/json")
        said = orjson.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": found})
        return await exchange.answer(200, said, "Content-Type: application/json")

    async with road(script) as (up, _, client):
        head, body = await client.request("POST", MODERN_CALL, **MIRRORS)
        assert (head.status, body) == (400, b"{}")
        methods = [orjson.loads(seen.body)["method"] for seen in up.seen if seen.body]
        assert "server/discover" in methods and methods.count("tools/call") == 1
