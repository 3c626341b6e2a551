"""Calls and errors over the last hour: of all replicas for operators, their own for viewers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from adapter.edge.console.activity import stream
from adapter.edge.console.status import Viewer
from adapter.edge.http.request import Branch, Names, Request
from adapter.relay.http_api.recent_exchanges import Recent
from adapter.rules.access.principals import ANONYMOUS
from tests.edge.conftest import StartUpstream
from tests.edge.consoling import (
    AGENT,
    AUTH,
    DATA,
    OPERATOR,
    VIEWER,
    Console,
    Shop,
    StartConsole,
    bearer,
    opened_console,
    tool,
)
from tests.edge.raw import Exchange, RawClient, call_body, read_chunk
from tests.edge.test_console_data import READ, eventually
from tests.edge.tool_serving import guard_of, listening
from tests.hosted.serving import hosted
from tests.relay.relaying import Relaying
from tests.state.shared import SharedMemory
from tests.waiting import until

EXECUTE = {"allow_execute": True}
OFF = {"tool_definition_pinning": {"mode": "off"}}


def sums(told: Any) -> tuple[int, ...]:
    """Calls, other exchanges and failures of the hour."""
    assert len(told["minutes"]) == 60
    return tuple(sum(minute[place] for minute in told["minutes"]) for place in (1, 2, 3))


async def test_an_hour_is_counted_by_the_minute(console: StartConsole) -> None:
    """All of it for operators; a viewer learns of nobody else's."""

    async def half(exchange: Exchange) -> None:
        message: Any = exchange.message
        if message.get("params", {}).get("name") == "broken":
            await exchange.answer(500, b"")
        else:
            await Shop(READ)(exchange)

    async with console(half, core={"auth": AUTH, **OFF}) as (_, front, agent):
        await agent.initialize(**bearer(AGENT))
        for name in ("read", "read", "broken"):
            await agent.request("POST", call_body(name), **bearer(AGENT))
        told = await front.get("/activity", OPERATOR)
        assert sums(told) == (3, 1, 1) and told["whose"] == "all"
        assert told["minutes"][-1][0] % 60 == 0 and told["since"] > 0
        assert (told["replica"], told["heard"], told["silent"]) == (None, [], [])
        own, others = await front.get("/activity", AGENT), await front.get("/activity", VIEWER)
        assert sums(own) == (3, 1, 1) and own["whose"] == others["whose"] == "own"
        assert sums(others) == (0, 0, 0)


async def test_replicas_are_counted_together(tmp_path: Path, upstream: StartUpstream) -> None:
    """Whichever of them is asked says which of them it heard."""
    shared = SharedMemory()
    settings: dict[str, Any] = {"core": OFF, "storage": {"lock_mode": "none"}}
    async with (
        upstream(Shop(READ)) as up,
        opened_console(tmp_path, up, store=shared.replica(), **settings) as one,
        opened_console(tmp_path, up, store=shared.replica(), **settings) as other,
        other.client() as agent,
    ):
        await agent.initialize()
        await agent.request("POST", call_body("read"))
        told = await eventually(one, "/activity", lambda told: told["heard"])
        assert sums(told) == (1, 1, 0)
        assert len(told["heard"]) == 1 and told["silent"] == [] and told["replica"] not in told["heard"]


async def test_a_call_is_found_by_the_id_that_its_caller_gave_it(console: StartConsole) -> None:
    """Among its own exchanges, and by nobody else; an id that is not well formed is none."""
    core = {"auth": AUTH, **OFF}
    async with console(Shop(READ), core=core, console=EXECUTE) as (_, front, client):
        for call in ("a-call_1", "not well formed"):
            fields = {"x-adapter-call": call, "content-type": "application/json", **bearer(VIEWER)}
            await client.request("POST", orjson.dumps({}), "/explorer/raw/tools/read/call", **fields)
        own = await front.get("/exchanges", VIEWER)
        assert [(each["own"], each.get("call")) for each in own] == [(True, None), (True, "a-call_1")]
        every = await front.get("/exchanges", OPERATOR)
        assert [(each["own"], "call" in each) for each in every] == [(False, False)] * 2


# --- the last exchanges over the wire: as a list, and live until somebody leaves ----------------------------------


STREAM = {"accept": "text/event-stream"}


async def watch(client: RawClient, token: str | None = None) -> None:
    """Open the stream, and read its first piece."""
    await client.send("GET", b"", f"{DATA}/exchanges", **STREAM, **bearer(token))
    head = await client.head()
    assert head.status == 200 and head["content-type"] == "text/event-stream"
    assert await read_chunk(client.reader) == b": exchanges\n\n"


async def pieces(client: RawClient) -> AsyncIterator[tuple[str, Any]]:
    """Events as they come, heartbeats among them, until the stream ends."""
    text = b""
    async with asyncio.timeout(20):
        while chunk := await read_chunk(client.reader):
            text += chunk
            *whole, text = text.split(b"\n\n")
            for event in whole:
                if event.startswith(b":"):
                    yield "comment", event
                    continue
                kind, data = event.split(b"\n")
                yield kind.removeprefix(b"event: ").decode(), orjson.loads(data.removeprefix(b"data: "))


async def no_watchers(front: Console) -> None:
    recent = front.recent
    await until(lambda: not (recent.watchers))


async def test_the_last_exchanges_are_told(console: StartConsole) -> None:
    """Those that failed too; a name is told of tools only."""
    async with console(Shop(tool("weigh")), core=OFF) as (_, front, agent):
        await agent.initialize()
        await agent.call("weigh")
        agent.session = "unknown"
        await agent.call("weigh", 2)
        told = await front.get("/exchanges")
        assert [(each["method"], each["tool"], each["outcome"], each["status"]) for each in told] == [
            ("tools/call", "weigh", "session_unknown", 404),
            ("tools/call", "weigh", "ok", 200),
            ("initialize", None, "ok", 200),
        ]
        assert all(each["server"] == "raw" and each["ms"] >= 0 and each["stages"] == [] for each in told)
        assert {each["entrance"] for each in told} == {"mcp"}


async def test_a_planned_call_carries_its_stages(console: StartConsole) -> None:
    """By either entrance, in the order they began, up to the one that failed."""
    key = {"plugin": "api_key", "policy": {"value": "opensesame"}}
    server = {"stages": {"weigh": {"auth": key, "validate": True, "limits": {"egress": "1Mi"}}}}
    async with console(Shop(tool("weigh")), server=server, core=OFF, console=EXECUTE) as (_, front, agent):
        await agent.initialize()
        await agent.request("POST", call_body("weigh"), x_api_key="opensesame")
        await agent.request("POST", b"{}", "/explorer/raw/tools/weigh/call", x_api_key="opensesame")
        await agent.request("POST", b"{}", "/explorer/raw/tools/weigh/call")
        calls = [each for each in await front.get("/exchanges") if each["method"] == "tools/call"]
        whole = [("auth", "ok"), ("validate", "ok"), ("execute", "ok")]
        assert [(each["entrance"], each["status"], walked(each)) for each in reversed(calls)] == [
            ("mcp", 200, whole),
            ("http", 200, whole),
            ("http", 401, [("auth", "failed")]),
        ]


def walked(exchange: Any) -> list[tuple[str, str]]:
    """The stages of an exchange and what became of each; each begins no earlier than the one before it."""
    stages = exchange["stages"]
    begun = [stage["start_ms"] for stage in stages]
    assert begun == sorted(begun) and all(0 <= stage["ms"] <= exchange["ms"] + 1 for stage in stages)
    return [(stage["name"], stage["outcome"]) for stage in stages]


async def test_each_viewer_sees_its_own(console: StartConsole) -> None:
    """An operator sees everybody's, those of strangers among them, in the list and live."""
    core = {"auth": AUTH, **OFF}
    async with (
        console(Shop(tool("weigh")), core=core) as (_, front, agent),
        front.client() as viewer,
        front.client() as operator,
    ):
        await watch(viewer, VIEWER)
        await watch(operator, OPERATOR)
        await agent.initialize(**bearer(AGENT))
        await agent.call()  # without the token, as a stranger would
        assert await front.get("/exchanges", VIEWER) == []
        assert len(await front.get("/exchanges", AGENT)) == 1
        every = await front.get("/exchanges", OPERATOR)
        assert [each["outcome"] for each in every] == ["unauthorized", "ok"]
        live = pieces(operator)
        assert [await anext(live), await anext(live)] == [("exchange", each) for each in reversed(every)]
        async with front.client() as own:
            await own.initialize(**bearer(VIEWER))
        kind, told = await anext(pieces(viewer))
        assert (kind, told["method"]) == ("exchange", "initialize")


@contextlib.asynccontextmanager
async def watching(recent: Recent, viewer: Viewer) -> AsyncIterator[RawClient]:
    """A client that watches as ``viewer``, and is often told that the stream is still there."""

    async def serve(request: Request, _: Names) -> None:
        await stream(request, recent, viewer, heartbeat=0.01)

    branch = Branch(DATA, 1, ("GET",), (), serve)
    async with listening([branch], guard_of(), Relaying(hosted([]))) as port, RawClient(port) as client:
        await watch(client)
        yield client


async def test_a_stream_says_that_it_is_still_there() -> None:
    """So that nobody on the way takes it for dead."""
    async with watching(Recent(), Viewer(ANONYMOUS, operator=True)) as client:
        live = pieces(client)
        assert await anext(live) == ("comment", b": still here")
        assert await anext(live) == ("comment", b": still here")


async def test_the_stream_ends_with_the_viewers_token() -> None:
    """At the heartbeat after its time, in good order, and the watcher is forgotten."""
    recent = Recent()
    async with watching(recent, Viewer("ann@issuer:1", operator=True, expires=time.time())) as client:
        assert [event async for event in pieces(client)] == []
        assert not recent.watchers


async def test_who_leaves_is_told_no_more(console: StartConsole) -> None:
    """Nothing is left behind, and the others are not disturbed."""
    async with console(Shop()) as (_, front, staying):
        async with front.client() as leaving:
            await watch(leaving)
            assert front.recent.watchers == 1
        await no_watchers(front)
        await watch(staying)
        async with front.client() as agent:
            await agent.initialize()
        kind, told = await anext(pieces(staying))
        assert (kind, told["method"]) == ("exchange", "initialize")


async def test_the_stream_ends_when_the_adapter_stops(tmp_path: Path, upstream: StartUpstream) -> None:
    """It ends in good order and holds nothing up, however long exchanges may take to finish."""
    async with upstream(Shop()) as up, contextlib.AsyncExitStack() as clients:
        async with opened_console(tmp_path, up, core={"shutdown_grace_seconds": 60}) as front:
            viewer = await clients.enter_async_context(front.client())
            await watch(viewer)
            ended = asyncio.ensure_future(all_of(viewer))
        assert await ended == []


async def all_of(client: RawClient) -> list[tuple[str, Any]]:
    return [each async for each in pieces(client)]
