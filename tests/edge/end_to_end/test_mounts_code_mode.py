"""Code mode of a merged mount, over sockets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from tests.edge.mounting import ALL, MountClient, mount, tooled
from tests.edge.raw import MODERN_META, RawUpstream, error_of, modern_fields

TWO = {"a": tooled("a", "run", "stop"), "b": tooled("b", "run", "files.read")}


@contextlib.asynccontextmanager
async def folded(root: Path, **more: Any) -> AsyncIterator[tuple[dict[str, RawUpstream], MountClient]]:
    """Two servers at a mount in code mode, and a client."""
    entry = {"id": "all", "servers": ["*"], "list_timeout_seconds": 20, "code_mode_enabled": True, **more}
    async with mount(root, TWO, mounts=[entry]) as (ups, client):
        yield ups, client


async def called(client: MountClient, tool: str, arguments: Mapping[str, Any]) -> Any:
    return (await client.rpc("tools/call", {"name": tool, "arguments": arguments}))["result"]


async def test_three_tools_stand_for_those_of_all_servers(tmp_path: Path) -> None:
    """They find, describe and call tools by the names that the mount gives them."""
    async with folded(tmp_path) as (ups, client):
        assert await client.names() == ["all_search_tools", "all_get_tool_schema", "all_call_tool"]
        found = (await called(client, "all_search_tools", {"query": ""}))["structuredContent"]
        names = [tool["name"] for tool in found["tools"]]
        assert names[:3] == ["a_run", "a_stop", "b_files_read_" + names[2][-8:]]
        assert names[3:] == ["b_run"]
        one = await called(client, "all_get_tool_schema", {"name": "b_run"})
        assert one["structuredContent"]["name"] == "b_run"
        for name, said in (("b_run", "b ran run"), (names[2], "b ran files.read"), ("a_stop", "a ran stop")):
            ran = await called(client, "all_call_tool", {"name": name, "arguments": {"x": 1}})
            assert ran["content"][0]["text"] == said
        assert ups["a"].calls("tools/call")[0].message["params"] == {"name": "stop", "arguments": {"x": 1}}


async def test_fields_that_mirror_the_third_tool_reach_no_server(tmp_path: Path) -> None:
    """They say nothing of the tool that is called through it, whatever the era."""
    async with folded(tmp_path) as (ups, client):
        fields = {"Mcp-Name": "all_call_tool", "Mcp-Param-Name": "a_run"}
        await client.rpc(
            "tools/call", {"name": "all_call_tool", "arguments": {"name": "a_run"}}, fields=fields
        )
        (sent,) = ups["a"].calls("tools/call")
        assert not {"mcp-name", "mcp-param-name"} & {name for name, _ in sent.head.fields}


async def test_tools_are_not_called_by_their_own_names(tmp_path: Path) -> None:
    """The refusal says how to call them, also after a call that was made the right way."""
    async with folded(tmp_path) as (ups, client):
        for _ in range(2):
            await called(client, "all_call_tool", {"name": "a_run"})
            refused = await client.rpc("tools/call", {"name": "a_run", "arguments": {}})
            assert refused["error"]["code"] == -32602
            assert "all_call_tool" in refused["error"]["message"]
        assert len(ups["a"].calls("tools/call")) == 2


async def test_what_the_mount_hides_is_neither_found_nor_called(tmp_path: Path) -> None:
    """The rules of the mount hold for the tools behind the three; what cannot be used is said to the model."""
    async with folded(tmp_path, tools={"deny": ["a_*"]}) as (ups, client):
        found = await called(client, "all_search_tools", {"query": "run"})
        assert [tool["name"] for tool in found["structuredContent"]["tools"]] == ["b_run"]
        asked = {"name": "all_call_tool", "arguments": {"name": "a_run"}}
        assert (await client.rpc("tools/call", asked))["error"]["message"] == "Unknown tool: a_run"
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("all_call_tool", {"name": "all_call_tool"}),
            ("all_call_tool", {"name": "all_search_tools"}),
            ("all_get_tool_schema", {"name": "a_run"}),
            ("all_search_tools", {"query": 1}),
        ]
        assert all([(await called(client, tool, arguments))["isError"] for tool, arguments in wrong])
        paged = await client.rpc("tools/list", {"cursor": "1"})
        assert paged["error"]["code"] == -32602
        assert ups["a"].calls("tools/call") == []


async def test_the_search_names_servers_that_are_missing(tmp_path: Path) -> None:
    """As a list does, since its tools are not found."""
    servers = [{"id": "dead", "upstream": {"url": "http://127.0.0.1:9/mcp"}}]
    entry = {"id": "all", "servers": ["*"], "list_timeout_seconds": 20, "code_mode_enabled": True}
    async with mount(tmp_path, {}, mounts=[entry], servers=servers) as (_, client):
        found = await called(client, "all_search_tools", {"query": ""})
        assert list(found["_meta"]["mcp-file-adapter/missing"]) == ["dead"]


async def test_stateless_clients_call_through_the_three_tools(tmp_path: Path) -> None:
    """The server gets the header fields of the call that is meant."""
    async with folded(tmp_path) as (ups, client):
        client.session = None
        params = {"name": "all_call_tool", "arguments": {"name": "b_run"}, "_meta": MODERN_META}
        found = await client.rpc("tools/call", params, fields=modern_fields("all_call_tool"))
        assert found["result"]["content"][0]["text"] == "b ran run"
        assert ups["b"].calls("tools/call")[0].head["mcp-name"] == "run"
        direct = {"name": "b_run", "arguments": {}, "_meta": MODERN_META}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": direct}
        _, body = await client.request("POST", orjson.dumps(asked), ALL, **modern_fields("b_run"))
        assert error_of(body)["code"] == -32602
