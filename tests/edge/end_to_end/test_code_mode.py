"""Code mode over HTTP, as a host with the SDK lives it in both eras: three tools in the place of all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import orjson
import pytest
from mcp.shared.exceptions import MCPError

from tests.e2e.filing import PythonHost, python_host, said, texts
from tests.edge.conftest import Adapter, StartAdapter, StartRoad, StartUpstream
from tests.edge.raw import MODERN_VERSION, Exchange, RawUpstream, call_body, error_of

THREE = ["raw_search_tools", "raw_get_tool_schema", "raw_call_tool"]
DRAW = {
    "name": "draw_chart",
    "title": "Draw a chart",
    "description": "Draws a chart.\nOf anything.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["①"], "x-mcp-header": "Kind"},
            "size": {"type": "integer"},
        },
    },
    "_meta": {"vendor/x": 1.0},
}
SECRET = {"name": "delete_all", "description": "Draws nothing.", "inputSchema": {"type": "object"}}
MAIL = {"name": "send_mail", "description": "Sends mail.", "inputSchema": {"type": "object"}}
ERAS = pytest.mark.parametrize("mode", ["legacy", MODERN_VERSION])


class Desk:
    """An upstream's script with ``tools``, each of which answers with the arguments it was given."""

    def __init__(self, *tools: dict[str, Any]) -> None:
        self.tools = list(tools)

    async def __call__(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        params = message.get("params", {})
        result: dict[str, Any] = {"resultType": "complete"} if "_meta" in params else {}
        if message["method"] == "tools/list":
            result |= {"tools": self.tools, "ttlMs": 0, "cacheScope": "private"}
        elif message["method"] == "tools/call":
            said = orjson.dumps({key: params[key] for key in ("name", "arguments") if key in params})
            result |= {"content": [{"type": "text", "text": said.decode()}]}
        else:
            await exchange.answer(405, b"")
            return
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))


StartHost = Callable[..., AbstractAsyncContextManager[tuple[RawUpstream, Adapter, PythonHost]]]
CODED = {"code_mode_enabled": True, "disabled_tools": ["delete_.*"]}


@pytest.fixture
def hosted(adapter: StartAdapter, upstream: StartUpstream) -> StartHost:
    """``async with hosted(Desk(…)) as (up, front, me)``: a host of code mode with ``delete_.*`` disabled."""

    @asynccontextmanager
    async def start(
        desk: Desk, mode: str = "legacy", **server: Any
    ) -> AsyncIterator[tuple[RawUpstream, Adapter, PythonHost]]:
        async with (
            upstream(desk) as up,
            adapter(up, server={**CODED, **server}) as front,
            python_host(f"http://127.0.0.1:{front.port}/mcp", mode) as me,
        ):
            yield up, front, me

    return start


@ERAS
async def test_a_tool_is_found_described_and_called(hosted: StartHost, mode: str) -> None:
    """Three tools are listed; a search finds by words, the definition is the upstream's, the call arrives as direct."""
    async with hosted(Desk(DRAW, SECRET, MAIL), mode) as (up, _, me):
        assert await me.tools() == THREE

        found = await me.call("raw_search_tools", query="draw something", limit=5)
        (tool,) = found["structuredContent"]["tools"]
        assert (tool["name"], tool["title"]) == ("draw_chart", "Draw a chart")
        assert tool["description"] == "Draws a chart. Of anything."
        assert said(found).startswith("draw_chart (")

        described = await me.call("raw_get_tool_schema", name="draw_chart")
        assert described["structuredContent"] == orjson.loads(said(described)) == DRAW

        arguments = {"kind": "①", "size": 3}
        drawn = await me.call("raw_call_tool", name="draw_chart", arguments=arguments)
        assert orjson.loads(said(drawn)) == {"name": "draw_chart", "arguments": arguments}
        (call,) = up.calls("tools/call")
        if mode != "legacy":
            assert (call.head["mcp-method"], call.head["mcp-name"]) == ("tools/call", "draw_chart")
            assert call.head["mcp-param-kind"] == "=?base64?4pGg?="
        assert len(up.calls("tools/list")) == 1


@ERAS
async def test_a_tool_called_by_its_name_is_refused_with_the_way(hosted: StartHost, mode: str) -> None:
    """Nothing goes upstream, whether or not there is such a tool."""
    async with hosted(Desk(DRAW), mode) as (up, _, me):
        for name in ("draw_chart", "nothing"):
            with pytest.raises(MCPError, match="called through raw_call_tool") as refused:
                await me.call(name, kind="bar")
            assert refused.value.error.code == -32602
        assert up.calls("tools/call") == []


@ERAS
async def test_a_hidden_tool_is_neither_found_nor_described_nor_called(hosted: StartHost, mode: str) -> None:
    """Code mode is no way around a policy, in any spelling of the name."""
    async with hosted(Desk(DRAW, SECRET), mode) as (up, _, me):
        found = await me.call("raw_search_tools", query="delete_all draws nothing")
        assert [tool["name"] for tool in found["structuredContent"]["tools"]] == ["draw_chart"]
        described = await me.call("raw_get_tool_schema", name="delete_all")
        assert described["isError"] and "The tool delete_all does not exist" in texts(described)
        for name in ("delete_all", "DELETE_all", "delete_\u200ball"):
            with pytest.raises(MCPError, match="Unknown tool"):
                await me.call("raw_call_tool", name=name)
        assert up.calls("tools/call") == []


async def test_what_was_misasked_is_told_to_the_model(hosted: StartHost) -> None:
    """As the tool's own failure, which a model can mend, and not as an error of the protocol."""
    async with hosted(Desk(DRAW)) as (up, _, me):
        flat = await me.call("raw_call_tool", name="draw_chart", kind="bar")
        assert flat["isError"] and "go into arguments" in texts(flat)
        many = await me.call("raw_search_tools", query="x", limit=1000)
        assert many["isError"] and "from 1 to 100" in texts(many)
        assert up.calls("tools/call") == []


async def test_the_upload_helper_stays_first_and_is_called_by_its_name(hosted: StartHost) -> None:
    """A wrapped tool is called through code mode with a handle, which reaches it as a path."""
    read = {"name": "read", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}}
    consumer = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
    async with hosted(Desk(read), adapters=[consumer]) as (up, front, me):
        assert await me.tools() == ["raw_get_upload_url", "raw_upload_status", *THREE]
        offered = (await me.call("raw_get_upload_url"))["structuredContent"]
        assert "raw_get_upload_url" in said(await me.call("raw_get_tool_schema", name="read"))
        async with front.client() as client:
            form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--b--\r\n'
            path = "/" + offered["upload_url"].split("/", 3)[3]
            _, answer = await client.request(
                "POST", form, path, content_type="multipart/form-data; boundary=b"
            )
        handle = orjson.loads(answer)["upload_handle"]
        await me.call("raw_call_tool", name="read", arguments={"path": handle})
        (call,) = up.calls("tools/call")
        params: Any = call.message["params"]
        assert params["name"] == "read" and params["arguments"]["path"].endswith("a.txt")


async def test_drift_is_told_where_tools_are_searched(hosted: StartHost) -> None:
    """In `warn` a changed tool is found with its warning; in `block` with a subset it is not found at all."""
    changed = {**MAIL, "description": "Sends mail to everybody."}
    for mode, strategy in (("warn", "error"), ("block", "baseline_subset"), ("block", "error")):
        desk = Desk(DRAW, MAIL)
        pinning = {"mode": mode, "block_strategy": strategy}
        async with hosted(desk, tool_definition_pinning=pinning) as (_, front, me):
            await me.call("raw_search_tools", query="mail")
            desk.tools = [DRAW, changed]
            front.app.servers["raw"].stages.guard.changed()  # type: ignore[union-attr]  # the gate is there
            if strategy == "error" and mode == "block":
                with pytest.raises(MCPError, match="send_mail") as refused:
                    await me.call("raw_search_tools", query="mail")
                assert refused.value.error.code == -32010
                continue
            found = (await me.call("raw_search_tools", query="mail"))["structuredContent"]["tools"]
            described = await me.call("raw_get_tool_schema", name="send_mail")
            if mode == "warn":
                assert found[0]["description"].startswith("[Warning:")
                assert described["structuredContent"]["description"].startswith("[Warning:")
            else:
                assert found == [] and described["isError"]
                with pytest.raises(MCPError):
                    await me.call("raw_call_tool", name="send_mail")
                assert said(await me.call("raw_call_tool", name="draw_chart"))


async def test_a_batch_does_not_get_around_it(in_session: StartRoad) -> None:
    """Each tool call in a batch is refused on its own, for nobody unfolds it there."""
    async with in_session(Desk(DRAW), version="2025-03-26", server=CODED) as (up, _, client):
        _, answer = await client.request("POST", b"[" + call_body("draw_chart") + b"]")
        (refused,) = orjson.loads(answer)
        assert refused["error"]["code"] == -32600
        assert up.calls("tools/call") == []


async def test_a_cursor_is_refused(in_session: StartRoad) -> None:
    """The list has one page, so nobody was given a cursor."""
    async with in_session(Desk(DRAW), server=CODED) as (_, _, client):
        body = b'{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"x"}}'
        _, answer = await client.request("POST", body)
        assert error_of(answer)["code"] == -32602
