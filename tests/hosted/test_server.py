"""A hosted server behind the real adapter: what the SDK's client and a raw one see of it in both eras."""

from __future__ import annotations

import asyncio
import gc
import gzip
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from adapter.errors import UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.pipeline.call import PlannedCall
from adapter.pipeline.failures import Outcome
from adapter.upstream.port import Upstream, UpstreamReply, UpstreamRequest, header
from tests.edge.raw import RawClient, call_body, modern_body, modern_fields
from tests.hosted.serving import ERAS, TOOLS, Front, Waiting, echo, front, hosted, text, tool

INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}, "clientInfo": {"name": "t"}}
BOTH = ("Accept", "application/json, text/event-stream")
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Front]:
    """The usual tools behind the adapter."""
    async with front(hosted(TOOLS), tmp_path) as adapter:
        yield adapter


def message(method: str, params: Any = None, number: Any = 1) -> bytes:
    said = {"jsonrpc": "2.0", "id": number, "method": method}
    return orjson.dumps(said if params is None else {**said, "params": params})


async def post(
    upstream: Upstream, body: bytes, *fields: tuple[str, str], read_timeout: float | None = 5.0
) -> UpstreamReply:
    return await upstream.send(UpstreamRequest("POST", [BOTH, *fields], body), read_timeout)


async def opened(upstream: Upstream, version: str = "2025-11-25") -> tuple[str, str]:
    """The header of a new session at the hosted server itself."""
    reply = await post(upstream, message("initialize", {**INITIALIZE, "protocolVersion": version}))
    session = header(reply.headers, "mcp-session-id")
    assert reply.status == 200
    assert session is not None
    return ("Mcp-Session-Id", session)


async def modern(
    upstream: Upstream, method: str, params: dict[str, Any] | None = None, *fields: tuple[str, str]
) -> UpstreamReply:
    body = message(method, {"_meta": META, **(params or {})})
    head = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)]
    if params and "name" in params:
        head.append(("Mcp-Name", params["name"]))
    return await post(upstream, body, *head, *fields)


def read(reply: UpstreamReply) -> dict[str, Any]:
    assert reply.whole is not None
    found = orjson.loads(reply.whole)
    assert isinstance(found, dict)
    return found


# --- the SDK's client through the adapter -------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_lists_and_calls_hosted_tools(served: Front, era: str) -> None:
    """In either era the tools are there and answer with text and object."""
    async with served.client(era) as client:
        assert [each.name for each in (await client.list_tools()).tools] == [
            "echo",
            "count",
            "fail",
            "refuse",
        ]
        result = await client.call_tool("echo", {"text": "hi"})
        assert isinstance(result.content[0], TextContent)
        assert (result.content[0].text, result.structured_content) == ("you said hi", {"said": "hi"})


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_hears_of_progress_in_its_order(served: Front, era: str) -> None:
    """What a tool says of its progress comes before its answer, piece by piece."""
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with served.client(era) as client:
        await client.call_tool("count", {}, progress_callback=hear)
    assert heard == [(0, "0 of 100"), (50, "50 of 100"), (100, "100 of 100")]


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_tool_raises_does_not_reach_the_client(served: Front, era: str) -> None:
    """An exception nobody foresaw is answered in general; an error the tool chose comes as it chose it."""
    async with served.client(era) as client:
        with pytest.raises(MCPError) as failed:
            await client.call_tool("fail", {})
        with pytest.raises(MCPError) as refused:
            await client.call_tool("refuse", {})
    assert failed.value.error.code == -32603
    assert "hunter2" not in failed.value.error.message
    assert (refused.value.error.code, refused.value.error.data) == (-32000, {"why": "rain"})


async def test_a_hosted_server_that_began_anew_costs_no_client_its_session(tmp_path: Path) -> None:
    """Its sessions are in memory; the adapter gets 404 for the old one and initializes again behind the client."""
    async with front(hosted(TOOLS), tmp_path) as adapter, RawClient(adapter.port) as client:
        await client.initialize()
        adapter.app.servers["hosted"].upstream = hosted(TOOLS)
        head, body = await client.call("echo")
        assert head.status == 200
        assert b"you said None" in body
        assert [session.generation for session in adapter.app.sessions.opened()] == [1]


async def test_a_modern_call_through_the_adapter_is_complete(served: Front) -> None:
    """A raw answer of the stateless era carries what its schema requires."""
    async with RawClient(served.port) as client:
        head, body = await client.request("POST", modern_body("echo"), **modern_fields("echo"))
    result = orjson.loads(body)["result"]
    assert (head.status, result["resultType"], result["isError"]) == (200, "complete", False)
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "hosted", "version": "1.0"}


# --- the legacy era, at the server itself -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"),
    [("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")],
)
async def test_initialize_negotiates_a_version(asked: str, given: str) -> None:
    """A version that is served is given; for any other the client is offered the latest."""
    upstream = hosted(TOOLS)
    result = read(await post(upstream, message("initialize", {**INITIALIZE, "protocolVersion": asked})))[
        "result"
    ]
    assert result == {
        "protocolVersion": given,
        "serverInfo": {"name": "hosted", "version": "1.0"},
        "capabilities": {"tools": {}},
    }


async def test_a_request_outside_any_session_is_refused() -> None:
    """400 without an id, 404 with one that was never given: the status that makes a client begin anew."""
    upstream = hosted(TOOLS)
    assert (await post(upstream, message("tools/list"))).status == 400
    assert (await post(upstream, message("tools/list"), ("Mcp-Session-Id", "x"))).status == 404
    for method in ("GET", "DELETE"):
        request = UpstreamRequest(method, [("Mcp-Session-Id", "x")])
        assert (await upstream.send(request, 1)).status == 404


async def test_a_legacy_answer_holds_nothing_of_the_other_era() -> None:
    """No resultType, no cache hints: 2025-11-25 knows neither."""
    upstream = hosted(TOOLS)
    session = await opened(upstream)
    assert read(await post(upstream, message("ping", number="a-1"), session)) == {
        "jsonrpc": "2.0",
        "id": "a-1",
        "result": {},
    }
    assert list(read(await post(upstream, message("tools/list"), session))["result"]) == ["tools"]


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("resources/list", None, -32601),
        ("server/frobnicate", None, -32601),
        ("tools/call", {"name": "nope"}, -32601),
        ("tools/call", {"name": 5}, -32602),
        ("tools/call", [1], -32602),
        ("tools/call", {"name": "echo", "arguments": [1]}, -32602),
        ("tools/list", {"cursor": "never given"}, -32602),
        ("tools/list", {"cursor": "9" * 5000}, -32602),
    ],
)
async def test_legacy_errors_leave_with_status_200(method: str, params: Any, code: int) -> None:
    """A legacy client takes another status for a broken server, so only the code says what was wrong."""
    upstream = hosted(TOOLS)
    reply = await post(upstream, message(method, params), await opened(upstream))
    assert (reply.status, read(reply)["error"]["code"]) == (200, code)


async def test_the_code_for_unknown_tools_can_be_chosen() -> None:
    """``core.errors.unknown_tool_code``: -32602 is what the specification shows."""
    upstream = hosted(TOOLS, unknown_tool_code=-32602)
    reply = await post(upstream, message("tools/call", {"name": "nope"}), await opened(upstream))
    assert read(reply)["error"] == {"code": -32602, "message": "Unknown tool: nope"}


async def test_long_lists_come_in_pages() -> None:
    """Every tool is on exactly one page, in the order in which they were given."""
    upstream = hosted([tool(f"t{number}", echo) for number in range(7)], page=3)
    session, cursor, pages = await opened(upstream), None, []
    while True:
        result = read(
            await post(upstream, message("tools/list", {"cursor": cursor} if cursor else {}), session)
        )
        pages.append([each["name"] for each in result["result"]["tools"]])
        cursor = result["result"].get("nextCursor")
        if cursor is None:
            break
    assert pages == [["t0", "t1", "t2"], ["t3", "t4", "t5"], ["t6"]]


async def test_a_batch_is_answered_as_one_in_the_version_that_has_them() -> None:
    """2025-03-26 only: an array of the answers; a batch of notifications is accepted without a word."""
    upstream = hosted(TOOLS)
    body = b"[" + call_body("echo", 1) + b"," + message("ping", number=2) + b"]"
    reply = await post(upstream, body, await opened(upstream, "2025-03-26"))
    assert reply.whole is not None
    assert {each["id"] for each in orjson.loads(reply.whole)} == {1, 2}
    assert (await post(upstream, body, await opened(upstream))).status == 400


async def test_a_withdrawn_call_is_answered_with_nothing() -> None:
    """``notifications/cancelled`` ends the tool; the POST that asked for it gets 202 and no body."""
    waiting = Waiting()
    upstream = hosted([tool("wait", waiting)])
    session = await opened(upstream)
    call = asyncio.create_task(post(upstream, call_body("wait", 7), session))
    await waiting.began.wait()
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    assert (await post(upstream, orjson.dumps(cancelled), session)).status == 202
    reply = await call
    assert (reply.status, reply.whole, waiting.cancelled) == (202, b"", 1)


async def test_a_client_cannot_cancel_another_s_call() -> None:
    """Ids belong to their session, and true is not 1."""
    waiting = Waiting()
    upstream = hosted([tool("wait", waiting)])
    mine, other = await opened(upstream), await opened(upstream)
    call = asyncio.create_task(post(upstream, call_body("wait", 1), mine))
    await waiting.began.wait()
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    await post(upstream, orjson.dumps(cancelled), other)
    cancelled["params"] = {"requestId": True}
    await post(upstream, orjson.dumps(cancelled), mine)
    waiting.go.set()
    assert (await call).status == 200


async def test_a_compressed_body_is_read() -> None:
    """The relay passes a piped body on as it came, coding and all."""
    upstream = hosted(TOOLS)
    session = await opened(upstream)
    packed = gzip.compress(call_body("echo"))
    assert (await post(upstream, packed, session, ("Content-Encoding", "gzip"))).status == 200
    assert (await post(upstream, b"x", session, ("Content-Encoding", "gzip"))).status == 400
    assert (await post(upstream, b"x", session, ("Content-Encoding", "br"))).status == 415


async def test_the_number_of_sessions_has_an_end() -> None:
    """The session that was unused for longest makes room; one with a call under way is spared."""
    waiting = Waiting()
    upstream = hosted([tool("wait", waiting)], sessions=2)
    busy = await opened(upstream)
    call = asyncio.create_task(post(upstream, call_body("wait"), busy))
    await waiting.began.wait()
    idle = await opened(upstream)
    await opened(upstream)
    assert (await post(upstream, message("ping"), idle)).status == 404
    waiting.go.set()
    assert (await call).status == 200


# --- the modern era, at the server itself -------------------------------------------------------------------------


async def test_discover_says_what_is_served() -> None:
    """Versions, capabilities and who answers; to be kept by nobody but the client."""
    assert read(await modern(hosted(TOOLS), "server/discover"))["result"] == {
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "hosted", "version": "1.0"}},
    }


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "prompts/list", "unknown/method"]
)
async def test_methods_the_modern_era_has_not_are_404(method: str) -> None:
    """Also those that the other era has: -32601 under the request's id."""
    reply = await modern(hosted(TOOLS), method)
    assert (reply.status, read(reply)["error"]["code"], read(reply)["id"]) == (404, -32601, 1)


@pytest.mark.parametrize("missing", list(META))
async def test_a_modern_request_without_its_meta_is_refused(missing: str) -> None:
    """-32602 and 400, naming what is missing."""
    meta = {key: value for key, value in META.items() if key != missing}
    reply = await modern(hosted(TOOLS), "tools/list", {"_meta": meta})
    assert (reply.status, read(reply)["error"]["code"]) == (400, -32602)
    assert missing in read(reply)["error"]["message"]


async def test_a_version_that_is_not_served_is_named_with_those_that_are() -> None:
    """-32022 and 400; the data says what was asked for and what there is."""
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    fields = [("MCP-Protocol-Version", "2099-01-01"), ("Mcp-Method", "tools/list")]
    reply = await post(hosted(TOOLS), message("tools/list", {"_meta": meta}), *fields)
    assert (reply.status, read(reply)["error"]["code"]) == (400, -32022)
    assert read(reply)["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


async def test_headers_that_do_not_mirror_the_body_are_refused() -> None:
    """-32020 and 400: the method, and an argument that its schema has mirrored."""
    schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}
    upstream = hosted([tool("weather", echo, inputSchema=schema)])
    wrong = await post(
        upstream,
        message("tools/list", {"_meta": META}),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
    )
    assert (wrong.status, read(wrong)["error"]["code"]) == (400, -32020)
    call = {"name": "weather", "arguments": {"city": "Köln"}}
    assert (await modern(upstream, "tools/call", call)).status == 400
    assert (await modern(upstream, "tools/call", call, ("Mcp-Param-City", "Bonn"))).status == 400
    assert (
        await modern(upstream, "tools/call", call, ("Mcp-Param-City", "=?base64?S8O2bG4=?="))
    ).status == 200


async def test_there_is_nothing_but_post_in_the_modern_era() -> None:
    """405, and what is allowed."""
    for method in ("GET", "DELETE"):
        request = UpstreamRequest(method, [("MCP-Protocol-Version", "2026-07-28")])
        reply = await hosted(TOOLS).send(request, 1)
        assert (reply.status, header(reply.headers, "allow")) == (405, "POST")


async def test_a_subscription_lasts_until_the_server_closes() -> None:
    """First it is told what is honoured, which is nothing, as the tools never change; at the end comes its result."""
    upstream = hosted(TOOLS)
    stream = await modern(upstream, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    tag = b'"_meta":{"io.modelcontextprotocol/subscriptionId":1}'
    assert b'"notifications":{},' + tag in await stream.read(1)
    with pytest.raises(UpstreamSilent):
        await stream.read(0.01)
    await upstream.close()
    assert b'"result":{"resultType":"complete",' + tag in await stream.read(1)
    assert await stream.read(1) == b""


async def test_progress_only_goes_on() -> None:
    """The specification wants it to increase: what is no further than before is not told."""

    async def waver(call: PlannedCall) -> Outcome:
        for percent in (0, 10, 5, 10, 20):
            await call.client.progress(percent)
        return text("there")

    call = message("tools/call", {"name": "waver", "_meta": {"progressToken": 1}})
    upstream = hosted([tool("waver", waver)])
    reply = await post(upstream, call, await opened(upstream))
    heard = b""
    while piece := await reply.read(1):
        heard += piece
    assert [each.split(b",")[0] for each in heard.split(b'"progress":')[1:]] == [b"0", b"10", b"20"]


def test_two_tools_of_one_name_are_refused() -> None:
    """Which of them a call would reach is nobody's guess."""
    with pytest.raises(ValueError, match="one name"):
        hosted([tool("same", echo), tool("same", echo)])


# --- the port -------------------------------------------------------------------------------------------------


async def test_a_tool_that_says_nothing_is_given_up() -> None:
    """UpstreamSilent after the silence that the relay allows, and the tool is cancelled."""
    waiting = Waiting()
    upstream = hosted([tool("wait", waiting)])
    with pytest.raises(UpstreamSilent):
        await post(upstream, call_body("wait"), await opened(upstream), read_timeout=0.01)
    await waiting.ended.wait()
    assert waiting.cancelled == 1


async def test_a_reply_that_is_aborted_cancels_its_tool() -> None:
    """The client of a stream went away: its tool ends, and whoever still reads is told."""
    waiting = Waiting()
    upstream = hosted([tool("wait", waiting)])
    call = message("tools/call", {"name": "wait", "_meta": {"progressToken": 0}})
    reply = await post(upstream, call, await opened(upstream))
    assert b'"progressToken":0,"progress":1,"total":100,"message":"waiting"' in await reply.read(1)
    reply.abort()
    await waiting.ended.wait()
    with pytest.raises(UpstreamBroken):
        await reply.read(1)
    reply.abort()


async def test_nobody_is_streamed_to_who_cannot_read_streams() -> None:
    """A client that accepts JSON alone gets JSON, whatever it says of progress."""
    upstream = hosted(TOOLS)
    session = await opened(upstream)
    call = message("tools/call", {"name": "count", "_meta": {"progressToken": 1}})
    request = UpstreamRequest("POST", [("Accept", "application/json"), session], call)
    assert header((await upstream.send(request, 1)).headers, "content-type") == "application/json"


async def test_a_tool_waits_for_a_client_that_does_not_read() -> None:
    """Progress that nobody takes is not piled up: the tool goes on when it is read."""
    told: list[int] = []

    async def chatter(call: PlannedCall) -> Outcome:
        for number in range(1000):
            await call.client.progress(number / 10)
            told.append(number)
        return text("said all")

    upstream = hosted([tool("chatter", chatter)])
    call = message("tools/call", {"name": "chatter", "_meta": {"progressToken": 1}})
    reply = await post(upstream, call, await opened(upstream))
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(told) < 100
    heard = b""
    while piece := await reply.read(1):
        heard += piece
    assert heard.count(b"notifications/progress") == 1000
    assert heard.endswith(b"}\n\n")


async def test_close_ends_everything() -> None:
    """Calls are broken off, streams end, and nothing is answered any more."""
    waiting = Waiting()
    upstream = hosted([tool("wait", waiting)])
    session = await opened(upstream)
    listening = await upstream.send(UpstreamRequest("GET", [session]), 1)
    call = asyncio.create_task(post(upstream, call_body("wait"), session))
    await waiting.began.wait()
    await upstream.close()
    with pytest.raises(UpstreamBroken):
        await call
    assert await listening.read(1) == b""
    assert upstream.server.running == 0
    with pytest.raises(UpstreamUnreachable):
        await post(upstream, message("ping"), session)


async def test_a_call_leaves_no_cycle_behind() -> None:
    """What a call held, its message among it, is free when it ends, and not when the collector comes by."""
    tasks: list[weakref.ref[asyncio.Task[Any]]] = []

    async def note(_: PlannedCall) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(weakref.ref(task))
        return text("noted")

    upstream = hosted([tool("note", note)])
    session = await opened(upstream)
    gc.disable()
    try:
        await post(upstream, call_body("note"), session)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task() for task in tasks] == [None]
    finally:
        gc.enable()
