"""The upload widget over sockets: who is told of it, and what a host reads."""

from __future__ import annotations

from typing import Any

import orjson

from adapter.rules.clients.hosts import EXTENSION, FILES_WIDGET, MEDIA_TYPE, UPLOAD_WIDGET
from tests.edge.conftest import StartRoad
from tests.edge.file_tools import READS, WRITES, call, rpc
from tests.edge.raw import MODERN_META, Exchange, initialize_body

ANNOUNCED = {"extensions": {EXTENSION: {"mimeTypes": [MEDIA_TYPE]}}}
NAMED = {"ui": {"resourceUri": UPLOAD_WIDGET}, "ui/resourceUri": UPLOAD_WIDGET}
FILES_NAMED = {"ui": {"resourceUri": FILES_WIDGET}, "ui/resourceUri": FILES_WIDGET}
OFFERS = {"server": {"adapters": [READS]}}


async def lists(exchange: Exchange) -> None:
    """An upstream with a tool and a widget of its own."""
    message: Any = exchange.message
    result: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
    if message["method"] == "tools/list":
        own = {"name": "read", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://a"}}}
        result["tools"] = [own]
        result["tools"].append({"name": "write", "inputSchema": {"type": "object"}})
    elif message["method"] == "resources/read":
        result["contents"] = [{"uri": message["params"]["uri"], "text": "the upstream's"}]
    await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))


def own_and_other(tools: list[dict[str, Any]]) -> tuple[object, object]:
    """What the helper tool and the upstream's tool say in ``_meta``."""
    metas: dict[str, Any] = {tool["name"]: tool.get("_meta") for tool in tools}
    return metas["raw_get_upload_url"], metas["read"]["ui"]["resourceUri"]


async def test_only_who_shows_widgets_is_told(road: StartRoad) -> None:
    """In both eras, in any order; widgets of the upstream's own stay as they are."""
    async with road(lists, **OFFERS) as (_, _, client):
        for capabilities, meta in [({}, None), (ANNOUNCED, NAMED)] * 2:
            await client.initialize(initialize_body(capabilities=capabilities))
            assert own_and_other((await rpc(client, "tools/list", {}))["tools"]) == (meta, "ui://a")
        client.session = None
        for capabilities, meta in [({}, None), (ANNOUNCED, NAMED)] * 2:
            said = {**MODERN_META, "io.modelcontextprotocol/clientCapabilities": capabilities}
            body = orjson.dumps(
                {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": said}}
            )
            fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/list"}
            result = orjson.loads((await client.request("POST", body, **fields))[1])["result"]
            assert own_and_other(result["tools"]) == (meta, "ui://a")
            assert result["cacheScope"] == "private"


async def test_producers_name_the_widget_of_files(road: StartRoad) -> None:
    """Where downloads are on, unless they have a widget of their own."""
    made = {"server": {"adapters": [{**WRITES, "tools": ["write", "read"]}]}}
    for downloads, meta in ((False, None), (True, FILES_NAMED)):
        async with road(lists, core={"allow_artifacts_download": downloads}, **made) as (_, _, client):
            await client.initialize(initialize_body(capabilities=ANNOUNCED))
            metas = {
                tool["name"]: tool.get("_meta") for tool in (await rpc(client, "tools/list", {}))["tools"]
            }
            assert (metas["write"], metas["read"]) == (meta, {"ui": {"resourceUri": "ui://a"}})
            (found,) = (await rpc(client, "resources/read", {"uri": FILES_WIDGET}))["contents"]
            assert ("_meta" in found) is downloads


async def test_tools_that_write_no_file_name_no_widget(road: StartRoad) -> None:
    """A producer whose file nobody looks for; an editor of files writes one."""
    edits = {**READS, "tools": ["write"], "edits": True}
    silent = {"type": "artifact_producer", "tools": ["write"]}
    for adapter, meta in ((edits, FILES_NAMED), (silent, None)):
        made = {"server": {"adapters": [adapter]}}
        async with road(lists, core={"allow_artifacts_download": True}, **made) as (_, _, client):
            await client.initialize(initialize_body(capabilities=ANNOUNCED))
            tools = {tool["name"]: tool for tool in (await rpc(client, "tools/list", {}))["tools"]}
            assert tools["write"].get("_meta") == meta


async def test_a_list_of_too_many_values_names_no_widget(road: StartRoad) -> None:
    """To read them would hold up everybody else; one of as many bytes and fewer values does."""

    listed: list[Any] = []

    async def lists_much(exchange: Exchange) -> None:
        message: Any = exchange.message
        tools = [
            {"name": name, "inputSchema": {"type": "object", "x": listed}}
            for name in ("write", *map(str, range(199)))
        ]
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}))

    made = {"server": {"adapters": [{**WRITES, "tools": ["write"]}]}}
    async with road(lists_much, core={"allow_artifacts_download": True}, **made) as (_, _, client):
        await client.initialize(initialize_body(capabilities=ANNOUNCED))
        for values, meta in (([[]] * 3000, None), (["0" * 9000], FILES_NAMED)):
            listed[:] = values
            tools = {tool["name"]: tool for tool in (await rpc(client, "tools/list", {}))["tools"]}
            assert tools["write"].get("_meta") == meta and tools["write"]["inputSchema"]["x"] == values


async def test_a_host_reads_the_widget_before_any_call(road: StartRoad) -> None:
    """It is the same for everybody, has no link, and may connect to the adapter alone."""
    async with road(lists, **OFFERS) as (_, _, client):
        await client.initialize(initialize_body(capabilities=ANNOUNCED))
        (before,) = (await rpc(client, "resources/read", {"uri": UPLOAD_WIDGET}))["contents"]
        offer = (await call(client, "raw_get_upload_url", {}))["structuredContent"]
        (after,) = (await rpc(client, "resources/read", {"uri": UPLOAD_WIDGET}))["contents"]
        assert before == after and before["mimeType"] == MEDIA_TYPE
        assert before["text"].startswith("<!doctype html>") and "sig=" not in before["text"]
        (origin,) = before["_meta"]["ui"]["csp"]["connectDomains"]
        assert offer["upload_url"].startswith(f"{origin}/upload/raw?")
        (other,) = (await rpc(client, "resources/read", {"uri": "ui://a"}))["contents"]
        assert other["text"] == "the upstream's"
