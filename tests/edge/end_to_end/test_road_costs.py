"""The Python calls that an exchange costs, so that no feature makes every call dearer without anybody's knowing.

Frames of ``adapter/`` alone are counted, on a warm road: the number is the same on every machine. Whoever changes one
below says in the same commit why.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest

import adapter as package
from tests.edge.bearers import bearer, core, signed
from tests.edge.conftest import StartRoad
from tests.edge.file_tools import READS, upload
from tests.edge.file_tools import call as call_tool
from tests.edge.modern_upstream import ModernScript, refuse
from tests.edge.raw import (
    INITIALIZE,
    Exchange,
    RawClient,
    call_body,
    event,
    modern_body,
    modern_fields,
    read_chunk,
)
from tests.oauth.authorization_server import authorization_server

HOUSE = str(Path(package.__file__).parent)
WARM, COUNTED = 5, 21

LONGEST_REST = 20.0
"""Seconds for which the audit log may be waited for."""

Go = Callable[[RawClient], Awaitable[Any]]
Hold = Callable[[str, Go, RawClient], Awaitable[None]]

COSTS = {
    "a call that is passed on": 77,
    "a call whose tool is guarded": 77,
    "a list whose tools are guarded": 116,
    "a planned call without an active stage": 78,
    "a call with one stage": 149,
    "a call of a hosted tool": 125,
    "a call over stdio": 107,
    # Five of these are for its copy.
    "a call that is given a file": 183,
    "a session that is opened and ended": 247,
    # It writes twice: the session and its end, which comes before its pin would be written.
    "a session as SDKs open it, with its first list": 481,
    "a call answered by a stream": 150,
    "a call with a static token": 77,
    "a call with an access token": 80,
    # At most 1.15 of what the two cost at the server's own mount.
    "a call through a merged mount": 84,
    "a call through a merged mount, answered by a stream": 171,
    # At most twice what a call costs that is passed on.
    "a call of a legacy client at a modern server": 140,
    "a call of a modern client at a legacy server": 149,
    "a call that is counted": 83,
    "a call that is counted, and answered by a stream": 220,
    "a call that is recorded": 85,
    "a call that is judged, counted and recorded": 89,
    # Thirteen of these are for its spans, some seventy for writing the ids of the second one into the message as any
    # other edit is made, and the others for the metrics that telemetry brings too.
    "a call that is passed on and traced": 165,
    "a call that is passed on and continues a trace": 165,
}
"""Calls of Python functions for one exchange."""

INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}'
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("tool", "other", "hidden")]
GUARD: dict[str, Any] = {"core": {"tool_definition_pinning": {"mode": "warn"}}}
COUNTS = {"telemetry": {"prometheus": {"enabled": True}}}
# Nobody listens on the port of "discard".
NOBODY = {"transport": "http", "endpoint": "http://127.0.0.1:9"}
TRACES: dict[str, Any] = {"telemetry": {"enabled": True, **NOBODY}}
PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
NO_STAGE = {"server": {"stages": {"tool": {"errors": {"mode": "result"}}}}}
ONE_STAGE = {"server": {"stages": {"tool": {"limits": {"rate": {"window": 60, "max": 1_000_000}}}}}}

RECORD = {"audit": {"file": "audit.log"}}

CODE = "async def answer(payload, context):\n    return payload['inputs']\n"
HOSTED = {
    "servers": [
        {
            "id": "raw",
            "mount_path": "/mcp",
            "upstream": {"transport": "hosted"},
            "tools": {
                "define": [
                    {"name": "tool", "handler": "tools.py#answer"},
                    {"name": "other", "handler": "tools.py#answer"},
                ]
            },
        }
    ]
}

PROGRAM = """
import json, sys
for message in map(json.loads, sys.stdin):
    result = {"content": []}
    if message["method"] == "initialize":
        info = {"name": "costs", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "other", "inputSchema": {"type": "object"}}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
STDIO = {
    "servers": [
        {
            "id": "raw",
            "mount_path": "/mcp",
            "upstream": {"transport": "stdio", "command": sys.executable, "args": ["program.py"]},
        }
    ]
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, below which the settings name code."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


FLAGGED = {"content": [{"type": "text", "text": "done"}], "isError": False}
"""A result of a tool as SDKs write it."""


async def listing(exchange: Exchange) -> None:
    """Answers lists of tools, and every call with the text "done"."""
    if "id" not in exchange.message:
        return await exchange.send(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    found = {"tools": TOOLS} if exchange.message.get("method") == "tools/list" else FLAGGED
    return await exchange.json(message(exchange.message["id"], found))


def message(number: object, found: object) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "result": found})


async def call(client: RawClient, /, **fields: str) -> None:
    head, body = await client.request("POST", call_body(), **fields)
    assert head.status == 200, body


async def list_tools(client: RawClient) -> None:
    asked = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
    head, body = await client.request("POST", asked)
    assert head.status == 200 and b'"other"' in body


class PacedStream:
    """A call that is answered by a stream: head and progress, then the result, then the end, each in a read of its own.

    The upstream goes on when the client has read what came before, so the reads are the same each time.
    """

    def __init__(self) -> None:
        self._read = asyncio.Semaphore(0)

    async def answer(self, exchange: Exchange) -> None:
        """The upstream's side."""
        if exchange.message.get("method") != "tools/call":
            return await listing(exchange)
        progress = event(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}')
        await exchange.send(b"%b%x\r\n%b\r\n" % (STREAM_HEAD, len(progress), progress))
        await self._read.acquire()
        await exchange.chunk(event(message(1, FLAGGED)))
        await self._read.acquire()
        return await exchange.end_stream()

    async def call(self, client: RawClient, tool: str = "tool", path: str = "/mcp") -> None:
        """The client's side."""
        await client.send("POST", call_body(tool), path)
        assert (await client.head()).status == 200
        for told in (b"progress", b"done"):
            assert told in await read_chunk(client.reader)
            self._read.release()
        assert await read_chunk(client.reader) == b""


async def in_one_era(exchange: Exchange) -> None:
    """The same, for legacy clients only."""
    is_modern = exchange.head.get("mcp-protocol-version") == "2026-07-28"
    await (refuse if is_modern else listing)(exchange)


async def session(client: RawClient, *, lists: bool = False) -> None:
    await client.initialize()
    if lists:
        assert (await client.request("POST", INITIALIZED))[0].status == 202
        await list_tools(client)
    assert (await client.request("DELETE"))[0].status == 200


async def usual_cost(go: Go, client: RawClient) -> int:
    """The number of calls that most of the exchanges took; now and then one meets a timer or a second read."""
    for _ in range(WARM):
        await go(client)
    costs: Counter[int] = Counter()
    calls = 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(HOUSE)

    for _ in range(COUNTED):
        calls = 0
        sys.setprofile(look)
        try:
            await go(client)
        finally:
            sys.setprofile(None)
        costs[calls] += 1
    return costs.most_common(1)[0][0]


@pytest.fixture
def hold(record_property: Callable[[str, object], None]) -> Hold:
    """Whether an exchange costs no more than is known of its way; the benchmark reads the count from the report."""

    async def holding(way: str, go: Go, client: RawClient) -> None:
        calls = await usual_cost(go, client)
        # One line of the audit log that took long, as on a crowded machine, sends those behind it to a thread for a
        # hundred times as long.
        until = time.monotonic() + LONGEST_REST
        while way.endswith("recorded") and calls > COSTS[way] and time.monotonic() < until:
            await asyncio.sleep(0.5)
            calls = await usual_cost(go, client)
        record_property("road", way)
        record_property("python_calls", calls)
        assert calls <= COSTS[way]

    return holding


@pytest.mark.parametrize(
    ("way", "go", "settings"),
    [
        ("a call that is passed on", call, {}),
        ("a call whose tool is guarded", call, GUARD),
        ("a list whose tools are guarded", list_tools, GUARD),
        ("a planned call without an active stage", call, NO_STAGE),
        ("a call with one stage", call, ONE_STAGE),
        ("a call of a hosted tool", call, HOSTED),
        ("a call over stdio", call, STDIO),
        ("a session that is opened and ended", session, {}),
        ("a session as SDKs open it, with its first list", partial(session, lists=True), GUARD),
        ("a call that is counted", call, {**COUNTS, **GUARD}),
        ("a call that is recorded", call, {"core": RECORD}),
        (
            "a call that is judged, counted and recorded",
            call,
            {**COUNTS, "core": {**RECORD, **GUARD["core"]}},
        ),
        # While no collector takes any span; what the thread exports is not counted here.
        ("a call that is passed on and traced", call, TRACES),
        ("a call that is passed on and continues a trace", partial(call, traceparent=PARENT), TRACES),
    ],
)
async def test_a_road_costs_no_more_than_is_known(
    in_session: StartRoad, place: Path, way: str, go: Go, settings: dict[str, Any], hold: Hold
) -> None:
    """A call more in every exchange is a decision, not an accident."""
    (place / "tools.py").write_text(CODE)
    (place / "program.py").write_text(PROGRAM)
    async with in_session(listing, **settings) as (_, _, client):
        await list_tools(client)
        await hold(way, go, client)


@pytest.mark.parametrize(
    ("way", "token"), [("a call with a static token", "static-secret"), ("a call with an access token", None)]
)
async def test_a_credential_costs_no_more_than_is_known(
    road: StartRoad, way: str, token: str | None, hold: Hold
) -> None:
    """A verified token is looked up once in each call, and nothing else is done again."""
    async with authorization_server() as server:
        fields = signed(server) if token is None else bearer(token)
        settings = core(server.issuer, token="static-secret")
        async with road(listing, core=settings) as (_, _, client):
            await client.initialize(**fields)
            await hold(way, partial(call, **fields), client)


async def test_a_legacy_client_of_a_modern_server_costs_no_more_than_is_known(
    road: StartRoad, hold: Hold
) -> None:
    """Its request gains what the other era wants, beside its progress token, and the answer loses it."""
    other = [{"name": "other", "inputSchema": {"type": "object"}}]
    async with road(ModernScript(tools=other), opening=refuse) as (_, _, client):
        await client.initialize()
        await list_tools(client)
        asked = orjson.loads(call_body())
        asked["params"]["_meta"] = {"progressToken": 7}

        async def go(client: RawClient) -> None:
            head, body = await client.request("POST", orjson.dumps(asked))
            assert head.status == 200, body

        await hold("a call of a legacy client at a modern server", go, client)


async def test_a_modern_client_of_a_legacy_server_costs_no_more_than_is_known(
    road: StartRoad, hold: Hold
) -> None:
    """Its request is one in the session of its principal, with the progress token that SDKs send."""
    async with road(in_one_era, core={"auth": {"enabled": True, "token": "static-secret"}}) as (_, _, client):
        fields = {**modern_fields(), "authorization": "Bearer static-secret"}

        asked = modern_body().replace(b'"_meta":{', b'"_meta":{"progressToken":7,')
        assert orjson.loads(asked)["params"]["_meta"]["progressToken"] == 7

        async def go(client: RawClient) -> None:
            head, body = await client.request("POST", asked, **fields)
            assert head.status == 200 and b'"complete"' in body

        await hold("a call of a modern client at a legacy server", go, client)


@pytest.mark.parametrize("lists", [True, False], ids=["listed", "never listed"])
async def test_a_merged_mount_costs_no_more_than_is_known(
    in_session: StartRoad, hold: Hold, lists: bool
) -> None:
    """A call that was made before finds its server, and the name there, without looking at anything again, also where
    the lists of others are not known.
    """
    mounts = [{"id": "all", "servers": ["*"]}]
    async with in_session(listing, mounts=mounts) as (_, _, client):
        head, _ = await client.request("POST", INITIALIZE, "/mcp/all")
        client.session = head["mcp-session-id"]
        if lists:
            asked = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
            await client.request("POST", asked, "/mcp/all")

        async def go(client: RawClient) -> None:
            head, body = await client.request("POST", call_body("raw_tool"), "/mcp/all")
            assert head.status == 200, body

        await hold("a call through a merged mount", go, client)


async def test_a_streamed_call_through_a_merged_mount_costs_no_more_than_is_known(
    in_session: StartRoad, hold: Hold
) -> None:
    """Progress and a result that name no id of the server's leave as they come."""
    stream = PacedStream()
    async with in_session(stream.answer, mounts=[{"id": "all", "servers": ["*"]}]) as (_, _, client):
        head, _ = await client.request("POST", INITIALIZE, "/mcp/all")
        client.session = head["mcp-session-id"]
        go = partial(stream.call, tool="raw_tool", path="/mcp/all")
        await hold("a call through a merged mount, answered by a stream", go, client)


async def test_a_call_with_a_file_costs_no_more_than_is_known(in_session: StartRoad, hold: Hold) -> None:
    """A small file is checked and copied in one hop to a thread, whose own work is not counted here."""
    async with in_session(listing, server={"adapters": [{**READS, "tools": ["tool"]}]}) as (_, _, client):
        await list_tools(client)
        _, answer = await upload(client, b"hello")

        async def go(client: RawClient) -> None:
            given = await call_tool(client, "tool", {"path": answer["upload_handle"]})
            assert not given["isError"], given

        await hold("a call that is given a file", go, client)


@pytest.mark.parametrize(
    ("way", "settings"),
    [("a call answered by a stream", {}), ("a call that is counted, and answered by a stream", COUNTS)],
)
async def test_a_streamed_call_costs_no_more_than_is_known(
    in_session: StartRoad, way: str, settings: dict[str, Any], hold: Hold
) -> None:
    """The beginning of a stream is what its client waits for, so it is counted as a whole answer is."""
    stream = PacedStream()
    async with in_session(stream.answer, **settings) as (_, _, client):
        await hold(way, stream.call, client)
