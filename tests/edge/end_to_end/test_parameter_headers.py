"""``Mcp-Param-*`` headers of calls that move files, over a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartRoad
from tests.edge.raw import Exchange, RawClient, modern_fields

READS = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
WRITES = {"type": "artifact_producer", "tools": ["write"], "output_path_argument": "filename"}
TOOLS = {"adapters": [READS, WRITES]}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
SCHEMAS = {"read": "path", "write": "filename"}


async def playing(exchange: Exchange) -> None:
    """An upstream that lists its tools one on a page, and whose calls always succeed."""
    message: Any = exchange.message
    result: dict[str, Any] = {"resultType": "complete", "content": [], "ttlMs": 0, "cacheScope": "private"}
    if message["method"] == "tools/list":
        second = message["params"].get("cursor") == "2"
        name = "write" if second else "read"
        properties = {SCHEMAS[name]: {"type": "string", "x-mcp-header": "File"}}
        result |= {"tools": [{"name": name, "inputSchema": {"type": "object", "properties": properties}}]}
        result |= {} if second else {"nextCursor": "2"}
    await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))


async def called(client: RawClient, tool: str, arguments: Any, **fields: str) -> tuple[int, dict[str, Any]]:
    """The status and the response of a modern call with further header fields."""
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    head, answer = await client.request("POST", body, **modern_fields(tool), **fields)
    return head.status, orjson.loads(answer)


HANDLE = f"upload://sessions/{'0' * 32}/{'1' * 32}"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("read", {"path": HANDLE}, "upload://other"),
        ("read", {}, HANDLE),
        ("read", {"path": None}, HANDLE),
        ("write", {"filename": "a.txt"}, "b.txt"),
        ("write", {}, "b.txt"),
    ],
)
async def test_mirror_that_disagrees_is_400_before_anything_is_rewritten(
    road: StartRoad, tmp_path: Path, tool: str, arguments: Any, said: str
) -> None:
    """-32020; the upstream never sees the call, and no place is made for its file. No client has listed tools yet."""
    async with road(playing, server=TOOLS) as (up, _, client):
        status, answer = await called(client, tool, arguments, mcp_param_file=said)
        assert (status, answer["error"]["code"]) == (400, -32020)
        assert "Mcp-Param-File" in answer["error"]["message"]
        assert up.calls("tools/call") == []
        assert list((tmp_path / "artifacts").iterdir()) == []


async def test_argument_without_its_mirror_is_400_where_the_schema_is_known(road: StartRoad) -> None:
    """As an upstream has to refuse it. One that both leave out is the adapter's to give, with its mirror."""
    async with road(playing, server=TOOLS) as (up, _, client):
        assert (await called(client, "write", {"filename": "a.txt"}, mcp_param_file="a.txt"))[0] == 200
        assert (await called(client, "write", {"filename": "a.txt"}))[0] == 400
        assert (await called(client, "write", {}))[0] == 200
        sent = up.calls("tools/call")[-1]
        params: Any = sent.message["params"]
        assert sent.head["mcp-param-file"] == params["arguments"]["filename"]
