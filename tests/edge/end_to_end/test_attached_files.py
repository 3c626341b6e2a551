"""Files that ChatGPT attaches to calls, over sockets: what its lists say, and what becomes of its calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.attaching import CHATGPT, FileHost, attached, opened, whole
from tests.edge.conftest import StartRoad, merged
from tests.edge.file_tools import DOWNLOADS, READS, WRITES, call, rpc, size_below, text_of, upload
from tests.edge.raw import MODERN_META, Exchange, RawClient

PATH = {"type": "string", "description": "The file."}
SCHEMA = {"type": "object", "properties": {"path": PATH, "n": {"type": "integer"}}, "required": ["path"]}
LARGEST = 64 * 1024


class Tools:
    """An upstream with one tool; ``got`` are the arguments of its calls, ``read`` what was in their files."""

    def __init__(self, schema: dict[str, Any] = SCHEMA) -> None:
        self.schema = schema
        self.got: list[dict[str, Any]] = []
        self.read: list[tuple[str, bytes]] = []

    async def __call__(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        found: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
        if message["method"] == "tools/list":
            found["tools"] = [
                {"name": "read", "inputSchema": self.schema},
                {"name": "other", "inputSchema": {"type": "object"}},
            ]
        else:
            arguments = message["params"]["arguments"]
            self.got.append(arguments)
            paths = arguments.get("path")
            for path in map(Path, paths if isinstance(paths, list) else [paths] if paths else []):
                self.read.append((path.name, path.read_bytes()))
            found["content"] = [{"type": "text", "text": f"read {paths}"}]
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}))


def settings(depot: FileHost, **hosts: Any) -> dict[str, Any]:
    """Those of an adapter in front of the tool, which may ask the host."""
    allowed = {"file_url_allow": [depot.authority], **hosts}
    return {
        "server": {"adapters": [READS], "hosts": allowed},
        "uploads": {"max_file_bytes": LARGEST, "stall_timeout_seconds": 5},
    }


async def tool_seen(client: RawClient) -> dict[str, Any]:
    """The definition of the tool that takes files."""
    tools = (await rpc(client, "tools/list", {}))["tools"]
    (found,) = [tool for tool in tools if tool["name"] == "read"]
    return dict(found)


def is_declared(tool: dict[str, Any]) -> bool:
    declared = "openai/fileParams" in tool.get("_meta", {})
    assert declared == ("download_url" in orjson.dumps(tool).decode())
    return declared


# --- lists ----------------------------------------------------------------------------------------------------


async def test_only_chatgpt_is_told(road: StartRoad, depot: FileHost) -> None:
    """In any order of lists, also when these come from what was kept; for others not a byte is different."""
    off = settings(depot, openai_file_params="off")
    async with road(Tools(), **off) as (_, _, client):
        await opened(client)
        plain = await tool_seen(client)
        assert not is_declared(plain)
    async with road(Tools(), **settings(depot)) as (_, _, client):
        for name, tells in [("raw", False), (CHATGPT, True)] * 3 + [("openai-mcp (Responses API)", False)]:
            await opened(client, name)
            tool = await tool_seen(client)
            assert is_declared(tool) is tells
            assert tells or tool == plain
    assert tool["inputSchema"]["properties"]["n"] == {"type": "integer"}


async def test_a_host_without_sessions_is_told_by_its_request(road: StartRoad, depot: FileHost) -> None:
    """Since MCP 2026-07-28 each request has the client's name. Nobody may share such a list."""
    async with road(Tools(), **settings(depot)) as (_, _, client):
        for name, tells in [(CHATGPT, True), ("claude-ai", False), (CHATGPT, True)]:
            meta = {**MODERN_META, "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}
            body = orjson.dumps(
                {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
            )
            fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/list"}
            _, answer = await client.request("POST", body, **fields)
            result = orjson.loads(answer)["result"]
            (tool,) = [tool for tool in result["tools"] if tool["name"] == "read"]
            assert is_declared(tool) is tells and result["cacheScope"] == "private"


async def test_all_hosts_can_be_told(road: StartRoad, depot: FileHost) -> None:
    """For clients that nobody knows yet. YAML reads a bare on as true."""
    async with road(Tools(), **settings(depot, openai_file_params=True)) as (_, _, client):
        await opened(client, "some-new-host")
        assert is_declared(await tool_seen(client))
        answer = await call(client, "read", {"path": attached(depot.put("/a", b"hello"))})
        assert "isError" not in answer


@pytest.mark.parametrize("mode", ["warn", "block"])
async def test_the_declaration_is_no_drift(road: StartRoad, depot: FileHost, mode: str) -> None:
    """A pin is of what the upstream said, whichever host saw it first."""
    tools, made = Tools(), settings(depot)
    pinning = {"core": {"tool_definition_pinning": {"mode": mode, "baseline": "server"}}}
    async with road(tools, **merged(made, pinning)) as (_, _, client):
        for name in ("raw", CHATGPT, "raw", CHATGPT):
            await opened(client, name)
            tool = await tool_seen(client)
            assert is_declared(tool) is (name == CHATGPT)
            assert "changed" not in tool["description"]
        tools.schema = {**SCHEMA, "required": []}
        await opened(client)
        changed = await rpc(client, "tools/list", {})
        if mode == "warn":
            (tool,) = [tool for tool in changed["tools"] if tool["name"] == "read"]
            assert is_declared(tool) and "changed" in tool["description"]
        else:
            assert changed["code"] == -32010


# --- calls ----------------------------------------------------------------------------------------------------


async def test_an_attached_file_reaches_its_tool(road: StartRoad, depot: FileHost) -> None:
    """It is an upload of the caller by then: the tool gets a path, and its answer shows the handle."""
    tools = Tools()
    async with road(tools, **settings(depot)) as (_, _, client):
        await opened(client)
        url = depot.put("/a", b"hello", "Content-Type: text/plain")
        answer = await call(client, "read", {"path": attached(url, file_name="größe.txt"), "n": 1})
        assert tools.read == [("größe.txt", b"hello")] and tools.got[0]["n"] == 1
        handle = text_of(answer).removeprefix("read ")
        assert handle.startswith("upload://sessions/")
        assert "isError" not in await call(client, "read", {"path": handle})
        assert tools.read[1][1] == b"hello"


async def test_the_same_file_is_fetched_once(road: StartRoad, depot: FileHost) -> None:
    """A retry, or the next tool, gets the same handle; under another URL the file may be another one."""
    tools = Tools({"type": "object", "properties": {"path": {"type": "array", "items": PATH}}})
    async with road(tools, **settings(depot)) as (_, _, client):
        await opened(client)
        one, two = attached(depot.put("/1", b"one")), attached(depot.put("/2", b"two"))
        first = await call(client, "read", {"path": [one, two, one]})
        again = await call(client, "read", {"path": [one, two, one]})
        assert text_of(first) == text_of(again)
        assert [content for _, content in tools.read] == [b"one", b"two", b"one"] * 2
        assert len(depot.asked) == 2


@pytest.mark.parametrize("mode", ["auto", "off"])
async def test_other_hosts_attach_nothing(road: StartRoad, depot: FileHost, mode: str) -> None:
    """For them such an object is no handle, as it always was; nothing is fetched."""
    tools = Tools()
    async with road(tools, **settings(depot, openai_file_params=mode)) as (_, _, client):
        await opened(client, "raw" if mode == "auto" else CHATGPT)
        answer = await call(client, "read", {"path": attached(depot.put("/a", b"hello"))})
        assert answer["isError"] and "must be the handle of an uploaded file" in text_of(answer)
        assert depot.asked == [] and tools.got == []


async def test_a_nested_argument_is_lifted(road: StartRoad, depot: FileHost) -> None:
    """The tool gets it where it wants it, also from a call with the handle."""
    nested = {"type": "object", "properties": {"path": PATH}, "required": ["path"]}
    tools = Tools({"type": "object", "properties": {"options": nested}, "required": ["options"]})
    made = settings(depot)
    made["server"]["adapters"] = [{**READS, "file_path_argument": "options.path"}]
    async with road(tools, **made) as (_, _, client):
        await opened(client)
        assert (await tool_seen(client))["_meta"] == {"openai/fileParams": ["options_path"]}
        await call(client, "read", {"options_path": attached(depot.put("/a", b"hello"))})
        handle = (await upload(client, b"by hand"))[1]["upload_handle"]
        await call(client, "read", {"options_path": handle, "options": {}})
        contents = [Path(got["options"]["path"]).read_bytes() for got in tools.got]
        assert [sorted(got) for got in tools.got] == [["options"]] * 2
    assert contents == [b"hello", b"by hand"]


@pytest.mark.parametrize("listed", [True, False])
async def test_an_argument_of_that_name_is_the_tools_own(
    road: StartRoad, depot: FileHost, listed: bool
) -> None:
    """What a call gives it goes to the tool as it is, also in a process that has listed no tools yet."""
    nested = {"type": "object", "properties": {"path": PATH}}
    tools = Tools({"type": "object", "properties": {"options": nested, "options_path": {}}})
    made = settings(depot)
    made["server"]["adapters"] = [{**READS, "file_path_argument": "options.path"}]
    async with road(tools, **made) as (_, _, client):
        await opened(client)
        assert not listed or not is_declared(await tool_seen(client))
        own = attached(depot.put("/a", b"hello"))
        await call(client, "read", {"options_path": own})
        assert tools.got == [{"options_path": own}] and depot.asked == []


async def test_a_plan_sees_the_handle(road: StartRoad, depot: FileHost) -> None:
    """Stages that check arguments by the tool's schema pass the call."""
    tools, made = Tools({**SCHEMA, "additionalProperties": False}), settings(depot)
    made["server"]["stages"] = {"read": {"validate": True}}
    async with road(tools, **made) as (_, _, client):
        await opened(client)
        answer = await call(client, "read", {"path": attached(depot.put("/a", b"hello"))})
        assert tools.read and "isError" not in answer
        refused = await call(client, "read", {"path": attached(depot.url("/missing"))})
        assert "status 404" in text_of(refused)


# --- files that tools wrote -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "refers"), [(CHATGPT, True), ("raw", False)])
async def test_a_file_that_a_tool_wrote_is_a_file_reference(road: StartRoad, name: str, refers: bool) -> None:
    """For ChatGPT the entry in structured content has the members of one too; also of a server that takes no files."""

    async def script(exchange: Exchange) -> None:
        message: Any = exchange.message
        found: dict[str, Any] = {"tools": [{"name": "write", "inputSchema": {"type": "object"}}]}
        if message["method"] == "tools/call":
            Path(message["params"]["arguments"]["filename"]).write_bytes(b"made")
            found = {"content": [], "structuredContent": {}}
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}))

    async with road(script, server={"adapters": [WRITES]}, core=DOWNLOADS) as (_, _, client):
        await opened(client, name)
        answer = await call(client, "write", {"filename": "a.txt"})
        (entry,), artifact = answer["structuredContent"]["artifacts"], answer["_meta"]["artifact"]
        made = {"mime_type": "text/plain", "file_name": "a.txt", "file_id": artifact["artifact_id"]}
        assert {key: entry.get(key) for key in made} == (made if refers else dict.fromkeys(made))
        assert entry["download_url"] == artifact["download_url"]


# --- attacks --------------------------------------------------------------------------------------------------


async def refused(client: RawClient, value: Any) -> str:
    answer = await call(client, "read", {"path": value})
    assert answer["isError"] is True, answer
    return text_of(answer)


async def test_nothing_inside_is_asked(road: StartRoad, depot: FileHost) -> None:
    """By address, by a name that leads there, by a redirect, and without TLS; the tool is not called."""
    tools = Tools()
    depot.put("/in", b"secret")
    away = depot.redirect("/away", depot.url("/in", "localhost"))
    async with road(tools, **settings(depot)) as (up, _, client):
        await opened(client)
        for url in (depot.url("/in", "localhost"), "https://169.254.169.254/latest", "https://[::1]/", away):
            assert "cannot be reached at a public address" in await refused(client, attached(url))
        for url in (depot.url("/in", scheme="http"), up.url, "file:///etc/passwd"):
            assert "must begin with https://" in await refused(client, attached(url))
        assert tools.got == [] and len(depot.asked) == 1


async def test_large_files_are_not_read(road: StartRoad, depot: FileHost, tmp_path: Path) -> None:
    """Neither one that is announced as such, nor one without an end; no byte of them stays."""
    tools = Tools()

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\n"
    async with road(tools, **settings(depot)) as (_, _, client):
        await opened(client)
        for answer in (huge, endless, whole(b"x" * (LARGEST + 1))):
            depot.answers["/a"] = answer
            assert "uploads.max_file_bytes" in await refused(client, attached(depot.url("/a")))
        assert size_below(tmp_path / "uploads") == 0 and tools.got == []
        depot.put("/a", b"x" * LARGEST)
        await call(client, "read", {"path": attached(depot.url("/a"))})
        assert len(tools.read[0][1]) == LARGEST


async def test_a_call_has_few_files(road: StartRoad, depot: FileHost) -> None:
    """A hundred are refused before the first is fetched, and so are more than uploads.max_files."""
    many = [attached(depot.put(f"/{number}", b"x"), f"file_{number}") for number in range(100)]
    schema = {"type": "object", "properties": {"path": {"type": "array", "items": PATH}}}
    async with road(Tools(schema), **settings(depot)) as (_, _, client):
        await opened(client)
        assert "at most 32 attached files" in await refused(client, many)
    async with road(Tools(schema), **merged(settings(depot), {"uploads": {"max_files": 2}})) as (
        _,
        _,
        client,
    ):
        await opened(client)
        assert "at most 2 attached files" in await refused(client, many[:3])
    assert depot.asked == []
