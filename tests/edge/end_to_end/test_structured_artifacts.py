"""Artifacts in structured content, over a socket: the definition that a client sees and the answers agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.conftest import StartAdapter, StartRoad, StartUpstream
from tests.edge.file_tools import DOWNLOADS, WRITES, rpc
from tests.edge.raw import Exchange, RawClient, Script

CLOSED = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
OWN = {"type": "object", "properties": {"artifacts": {"type": "array"}}}
SERVER = {"adapters": [WRITES]}


def tool(schema: dict[str, Any] | None, structured: Any, **more: Any) -> Script:
    """An upstream with a tool of this output schema that writes a file and answers with structured content; ``more``
    are other members of its definition.
    """

    async def script(exchange: Exchange) -> None:
        message: Any = exchange.message
        if message["method"] == "tools/call":
            Path(message["params"]["arguments"]["filename"]).write_bytes(b"made")
            answer = {"content": [], "structuredContent": structured}
        else:
            definition = {"name": "write", "inputSchema": {"type": "object"}, **more}
            answer = {"tools": [definition if schema is None else {**definition, "outputSchema": schema}]}
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}))

    return script


async def schema_of(client: RawClient) -> Any:
    tools = (await rpc(client, "tools/list", {}))["tools"]
    (listed,) = (tool for tool in tools if tool["name"] == "write")
    return listed.get("outputSchema")


async def answer_of(client: RawClient) -> Any:
    answer = await rpc(client, "tools/call", {"name": "write", "arguments": {"filename": "a.txt"}})
    assert answer["_meta"]["artifact"]["filename"] == "a.txt"
    return answer["structuredContent"]


@pytest.mark.parametrize("first", ["list", "call"])
@pytest.mark.parametrize("pinning", ["off", "warn", "block"])
@pytest.mark.parametrize(
    ("schema", "own", "name"), [(CLOSED, {"n": 1}, "artifacts"), (OWN, {}, "adapter_artifacts")]
)
async def test_answer_and_definition_agree(
    in_session: StartRoad, first: str, pinning: str, schema: dict[str, Any], own: Any, name: str
) -> None:
    """Also where a client calls before anybody has listed the tool."""
    core = {"tool_definition_pinning": {"mode": pinning}, **DOWNLOADS}
    async with in_session(tool(schema, own), server=SERVER, core=core) as (_, front, client):
        if first == "list":
            await schema_of(client)
        answer = await answer_of(client)
        (entry,) = answer.pop(name)
        assert answer == own
        assert entry.keys() == {"uri", "name", "mimeType", "size", "sha256", "download_url"}
        seen = await schema_of(client)
        assert seen["properties"].keys() - schema["properties"].keys() == {name}
        async with front.client() as other:
            await other.initialize()
            assert await schema_of(other) == seen


@pytest.mark.parametrize(
    ("schema", "structured"), [(None, {"n": 1}), (None, [1]), ({"type": "array"}, [1]), (CLOSED, {"n": 1})]
)
async def test_never_adds_nothing(
    in_session: StartRoad, schema: dict[str, Any] | None, structured: Any
) -> None:
    """Schema and structured content are those of the tool; with `auto` objects alone have the list."""
    for mode in ("never", "auto"):
        artifacts = {"in_structured_content": mode}
        road = in_session(tool(schema, structured), server=SERVER, artifacts=artifacts)
        async with road as (_, _, client):
            adds = mode == "auto" and isinstance(structured, dict)
            assert (await schema_of(client) != schema) == (adds and schema is not None)
            assert (await answer_of(client) != structured) == adds


async def test_the_addition_is_no_drift(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """A server's baseline of before stays, and calls are not barred."""
    pinning = {"mode": "block", "baseline": "server"}
    async with upstream(tool(CLOSED, {"n": 1})) as up:
        for mode in ("never", "auto", "never"):
            front = adapter(
                up,
                server=SERVER,
                core={"tool_definition_pinning": pinning},
                artifacts={"in_structured_content": mode},
            )
            async with front as started, started.client() as client:
                await client.initialize()
                assert (await schema_of(client) == CLOSED) == (mode == "never")
                assert ("artifacts" in await answer_of(client)) == (mode == "auto")


async def test_what_a_tool_makes_of_its_file_is_listed_too(in_session: StartRoad) -> None:
    """A consumer with `edits` writes artifacts as a producer does; one without has none to tell of."""
    for edits in (True, False):
        takes = {"type": "upload_consumer", "tools": ["write"], "file_path_argument": "path", "edits": edits}
        async with in_session(tool(CLOSED, {}), server={"adapters": [takes]}) as (_, _, client):
            *_, listed = (await rpc(client, "tools/list", {}))["tools"]
            assert ("artifacts" in listed["outputSchema"]["properties"]) == edits
