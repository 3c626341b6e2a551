"""The lists of several servers at one address, over sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from adapter.app import App
from adapter.relay.mounts.lists import NO_SUCH_CURSOR, SNAPSHOT_SECONDS
from adapter.rules.mounts.lists import PAGE, TOOLS
from adapter.state.sqlite import MemoryStore
from tests.edge.company import ALICE, AUTH, BOB, RULES, office
from tests.edge.conftest import StartAdapter, StartUpstream
from tests.edge.granting import TOKENS, scene_of
from tests.edge.mounting import ALL, MountClient, answered, entered, mount, mounted, no_such_method, tooled
from tests.edge.raw import (
    MODERN_META,
    MODERN_VERSION,
    Exchange,
    RawUpstream,
    Script,
    initialize_result,
    read_body,
    read_chunk,
)
from tests.ports import free_port
from tests.state.shared import SharedMemory

NOBODY = "http://127.0.0.1:9/mcp"
"""An address at which nothing listens."""

UI = {"_meta": {"ui": {"resourceUri": "ui://w"}}}
PING = {"enabled": True, "interval_seconds": 0.02, "open_cooldown_seconds": 0.02}
QUICK = {"mounts": [{"id": "all", "servers": ["*"], "list_timeout_seconds": 0.01}]}
BARE = {"mounts": [{"id": "all", "servers": ["*"], "list_timeout_seconds": 20, "prefix": "none"}]}


def serving(results: Mapping[str, Any]) -> Script:
    """Answers each method with its result, and says to all others that there is no such method."""

    async def script(exchange: Exchange) -> None:
        method = str(exchange.message.get("method"))
        if exchange.head.method == "GET":
            await exchange.answer(405, b"")
        elif method in results:
            await answered(exchange, results[method])
        else:
            await no_such_method(exchange)

    return script


def library(*uris: str, templates: tuple[str, ...] = ()) -> Script:
    """Lists these resources and templates, and tells what was read."""
    lists = serving(
        {
            "tools/list": {"tools": [{"name": "show", **UI}]},
            "resources/list": {"resources": [{"uri": uri, "name": "n"} for uri in uris]},
            "resources/templates/list": {"resourceTemplates": [{"uriTemplate": each} for each in templates]},
            "tools/call": {"content": [{"type": "resource_link", "uri": uris[0], "name": "n"}]},
        }
    )

    async def script(exchange: Exchange) -> None:
        if exchange.message.get("method") == "resources/read":
            params: Any = exchange.message["params"]
            await answered(exchange, {"contents": [{"uri": params["uri"], "text": exchange.head["host"]}]})
        else:
            await lists(exchange)

    return script


async def with_news(exchange: Exchange) -> None:
    """Answer a call, and say before that the list of tools has changed."""
    news = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
    number = orjson.dumps(exchange.message["id"])
    await exchange.stream(news, b'data: {"jsonrpc":"2.0","id":%b,"result":{"content":[]}}\n\n' % number)


def growing() -> Script:
    """Lists one tool, ``run``; a call adds ``stop``, and the answer says that the list has changed."""
    tools = [{"name": "run"}]

    async def script(exchange: Exchange) -> None:
        if exchange.message.get("method") == "tools/call":
            tools.append({"name": "stop"})
            await with_news(exchange)
        else:
            await serving({"tools/list": {"tools": tools}})(exchange)

    return script


async def uris(client: MountClient) -> list[str]:
    listed = (await client.rpc("resources/list"))["result"]
    return [each["uri"] for each in listed["resources"]]


async def test_a_uri_of_two_servers_is_told_apart(tmp_path: Path) -> None:
    """The first server owns it; the other one's is read, linked and shown as a widget under the mount's scheme."""
    scripts = {"a": library("x:1", "ui://w"), "b": library("x:1", "x:2", "ui://w")}
    async with mount(tmp_path, scripts) as (ups, client):
        assert await uris(client) == ["x:1", "ui://w", "mount://b/x:1", "x:2", "ui://mount/b/w"]
        for shown, server, uri in (("x:1", "a", "x:1"), ("mount://b/x:1", "b", "x:1"), ("x:2", "b", "x:2")):
            read = (await client.rpc("resources/read", {"uri": shown}))["result"]["contents"][0]
            assert read == {"uri": shown, "text": f"127.0.0.1:{ups[server].port}"}
            asked: Any = ups[server].calls("resources/read")[-1].message["params"]
            assert asked == {"uri": uri}
        tools = (await client.rpc("tools/list"))["result"]["tools"]
        links = [tool["_meta"]["ui"]["resourceUri"] for tool in tools]
        assert links == ["ui://w", "ui://mount/b/w"]
        called = await client.rpc("tools/call", {"name": "b_show", "arguments": {}})
        assert called["result"]["content"][0]["uri"] == "mount://b/x:1"


async def test_what_fits_a_template_goes_to_its_server(tmp_path: Path) -> None:
    """A URI that nobody lists and no template fits is not found."""
    scripts = {"a": library("x:1"), "b": library("x:2", templates=("y:{id}",))}
    async with mount(tmp_path, scripts) as (ups, client):
        read = await client.rpc("resources/read", {"uri": "y:7"})
        assert read["result"]["contents"][0]["text"] == f"127.0.0.1:{ups['b'].port}"
        assert (await client.rpc("resources/read", {"uri": "z:7"}))["error"]["code"] == -32002


async def test_what_a_first_request_needs_is_asked_for_by_its_own_name(tmp_path: Path) -> None:
    """A stateless client that has listed nothing reads a resource: each list is asked for with its own fields and what
    the client says of itself, so that no server refuses it."""
    async with mount(tmp_path, {"a": library("x:1"), "b": library("x:2")}) as (ups, client):
        client.session = None
        fields = {"mcp_protocol_version": MODERN_VERSION, "mcp_method": "resources/read", "mcp_name": "x:2"}
        read = await client.rpc(
            "resources/read",
            {"uri": "x:2", "_meta": MODERN_META},
            fields=fields | {"mcp_param_region": "north"},
        )
        assert read["result"]["contents"][0]["text"] == f"127.0.0.1:{ups['b'].port}"
        for method in ("resources/list", "resources/templates/list"):
            for asked in ups["b"].calls(method):
                assert asked.head["mcp-method"] == method
                assert asked.message["params"] == {"_meta": MODERN_META}
                assert asked.head.get("mcp-name") is asked.head.get("mcp-param-region") is None
        assert ups["b"].calls("resources/read")[0].head["mcp-name"] == "x:2"


async def test_ten_clients_that_only_list_share_one_session(tmp_path: Path) -> None:
    """A warm list asks no server, and opens no session of a client."""
    async with mount(tmp_path, {"a": tooled("a", "run"), "b": tooled("b", "run")}) as (ups, client):
        for _ in range(10):
            async with MountClient(client.port) as other:
                await other.open()
                assert await other.names() == ["a_run", "b_run"]
        for up in ups.values():
            assert [len(up.calls(method)) for method in ("initialize", "tools/list")] == [1, 1]


async def test_a_server_that_is_down_is_listed_as_it_was(tmp_path: Path) -> None:
    """Also after a restart; the list names it, with the reason."""
    store = MemoryStore()
    async with RawUpstream(tooled("a", "run")) as up, RawUpstream(tooled("b", "run")) as other:
        async with entered(tmp_path, {"a": up.url, "b": other.url}, store) as client:
            assert await client.names() == ["a_run", "b_run"]
        async with entered(tmp_path, {"a": NOBODY, "b": other.url}, store) as client:
            listed = (await client.rpc("tools/list"))["result"]
            assert [tool["name"] for tool in listed["tools"]] == ["a_run", "b_run"]
            assert list(listed["_meta"]["mcp-file-adapter/missing"]) == ["a"]


async def missing(client: MountClient) -> dict[str, str]:
    """The servers that the list of tools says are missing, each with the reason."""
    listed = (await client.rpc("tools/list"))["result"]
    told: dict[str, str] = listed.get("_meta", {}).get("mcp-file-adapter/missing", {})
    return told


@pytest.mark.parametrize("pinged", [True, False])
async def test_a_call_that_is_refused_makes_its_server_missing_at_once(tmp_path: Path, pinged: bool) -> None:
    """No list is kept for its half minute then, and no ping is waited for."""
    core = {"upstream_ping": {"enabled": pinged, "interval_seconds": 60}}
    async with mount(tmp_path, {"a": tooled("a", "run"), "b": tooled("b", "run")}, core=core) as (
        ups,
        client,
    ):
        assert await client.text("a_run") == "a ran run" and await missing(client) == {}
        await ups["a"].stop()
        refused = await client.rpc("tools/call", {"name": "a_run", "arguments": {}})
        assert "refused the connection" in refused["error"]["message"]
        told = await missing(client)
        assert list(told) == ["a"] and "refused the connection" in told["a"]
        await ups["a"].start()
        async with asyncio.timeout(20):
            while await missing(client):
                await asyncio.sleep(0.05)


async def test_a_server_whose_breaker_is_open_is_missing_for_its_own_reason(tmp_path: Path) -> None:
    """With the time of the next look; where nothing accepts connections that is long before the cool-down's end."""
    ping = {"enabled": True, "interval_seconds": 0.02, "open_cooldown_seconds": 600}
    apps: list[App] = []
    async with mount(tmp_path, {"a": tooled("a", "run")}, core={"upstream_ping": ping}, apps=apps) as (
        ups,
        client,
    ):
        assert await missing(client) == {}
        breaker = apps[0].server_parts.by_id["a"].breaker
        assert breaker is not None and breaker.unreachable_cooldown == 5.0
        breaker.unreachable_cooldown = 0.05
        await ups["a"].stop()
        async with asyncio.timeout(20):
            while breaker.allows_calls() or "again in" not in (await missing(client))["a"]:
                await asyncio.sleep(0.01)
        assert (await missing(client))["a"].endswith(
            "it refused the connection. Try again when it is back. The adapter asks it again in 1 s."
        )
        await ups["a"].start()
        async with asyncio.timeout(20):
            while await missing(client):
                await asyncio.sleep(0.01)


async def test_no_server_gets_the_name_of_one_that_is_down(tmp_path: Path) -> None:
    """A tool would be shadowed as soon as its server fails."""
    store = MemoryStore()
    async with RawUpstream(tooled("a", "run")) as up, RawUpstream(tooled("b", "run", "stop")) as other:
        async with entered(tmp_path, {"a": up.url, "b": other.url}, store, **BARE) as client:
            assert await client.names() == ["run", "stop"]
        async with entered(tmp_path, {"a": NOBODY, "b": other.url}, store, **BARE) as client:
            assert await client.names() == ["run", "stop"]
            refused = await client.rpc("tools/call", {"name": "run", "arguments": {}})
            assert refused["error"]["code"] == -32011
            assert await client.text("stop") == "b ran stop"


async def test_a_hung_server_is_missing_until_it_answers(tmp_path: Path) -> None:
    """A list is answered in the mount's time; what comes later is there in the next one."""
    go = asyncio.Event()
    ready = tooled("a", "run")

    async def hung(exchange: Exchange) -> None:
        if exchange.message.get("method") == "tools/list":
            await go.wait()
        await ready(exchange)

    async with mount(tmp_path, {"a": hung, "b": tooled("b", "run")}, **QUICK) as (ups, client):
        first = (await client.rpc("tools/list"))["result"]
        assert "a" in first["_meta"]["mcp-file-adapter/missing"]
        await ups["a"].arrived("tools/list")
        go.set()
        async with asyncio.timeout(20):
            while await client.names() != ["a_run", "b_run"]:
                await asyncio.sleep(0.01)
        assert len(ups["a"].calls("tools/list")) == 1


async def test_a_client_hears_when_a_server_is_there_again(tmp_path: Path) -> None:
    """On its stream, without asking: the adapter looks for what is missing as long as somebody listens."""
    port = free_port()
    servers = {"a": f"http://127.0.0.1:{port}/mcp"}
    async with entered(tmp_path, servers) as client, client.beside() as listener:
        await listener.listen()
        assert await client.names() == []
        async with RawUpstream(tooled("a", "run"), port=port), asyncio.timeout(20):
            assert b"notifications/tools/list_changed" in await read_chunk(listener.reader)
            assert await client.names() == ["a_run"]


@pytest.mark.parametrize("processes", [1, 2])
async def test_what_a_server_says_to_one_client_is_heard_by_all(processes: int, tmp_path: Path) -> None:
    """Clients of the same process, and of another one over the same store, hear of a change and read the new list."""
    memory = SharedMemory()
    async with RawUpstream(growing()) as up, contextlib.AsyncExitStack() as stack:
        ports = [
            await stack.enter_async_context(mounted(tmp_path / str(each), {"a": up.url}, memory.replica()))
            for each in range(processes)
        ]
        caller = await stack.enter_async_context(MountClient(ports[0]))
        client, listener = [await stack.enter_async_context(MountClient(ports[-1])) for _ in range(2)]
        await caller.open()
        await client.open()
        listener.session = client.session
        await listener.listen()
        assert await client.names() == ["a_run"]
        await caller.begin("a_run")
        async with asyncio.timeout(20):
            assert b"notifications/tools/list_changed" in await read_chunk(listener.reader)
        assert await client.names() == ["a_run", "a_stop"]


async def test_a_client_hears_of_a_list_that_another_process_gave_it(tmp_path: Path) -> None:
    """It listens at a process that has never read that list."""
    memory = SharedMemory()
    async with RawUpstream(growing()) as up, contextlib.AsyncExitStack() as stack:
        ports = [
            await stack.enter_async_context(mounted(tmp_path / str(each), {"a": up.url}, memory.replica()))
            for each in range(2)
        ]
        client, listener = [await stack.enter_async_context(MountClient(port)) for port in ports]
        await client.open()
        listener.session = client.session
        await listener.listen()
        assert await client.names() == ["a_run"]
        await client.begin("a_run")
        async with asyncio.timeout(20):
            assert b"notifications/tools/list_changed" in await read_chunk(listener.reader)


async def test_a_client_hears_of_a_server_that_began_anew(tmp_path: Path) -> None:
    """Nobody called it and it said nothing: the next ping finds that its sessions are gone."""
    port = free_port()
    servers = {"a": f"http://127.0.0.1:{port}/mcp"}
    core = {"upstream_ping": PING}
    async with entered(tmp_path, servers, core=core) as client, client.beside() as listener:
        async with RawUpstream(tooled("a", "run"), port=port):
            await listener.listen()
            assert await client.names() == ["a_run"]
        async with RawUpstream(tooled("a", "walk"), port=port), asyncio.timeout(20):
            while await client.names() != ["a_walk"]:
                assert b"notifications/tools/list_changed" in await read_chunk(listener.reader)


async def test_a_list_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    """What a server lists when it says that its list has changed may be the list as it was."""
    tools = [{"name": "run"}]
    reads: list[asyncio.Event] = []

    async def script(exchange: Exchange) -> None:
        if exchange.message.get("method") == "tools/call":
            tools.append({"name": "stop"})
            await with_news(exchange)
        elif exchange.message.get("method") == "tools/list" and not reads:
            before = [*tools]
            reads.append(asyncio.Event())
            await reads[0].wait()
            await serving({"tools/list": {"tools": before}})(exchange)
        else:
            await serving({"tools/list": {"tools": tools}})(exchange)

    async with mount(tmp_path, {"a": script}) as (ups, client), client.beside() as other:
        listing = asyncio.create_task(other.names())
        await ups["a"].arrived("tools/list")
        await client.begin("a_run")
        await read_body(client.reader, await client.head())
        reads[0].set()
        assert await listing == ["a_run", "a_stop"]
        assert await client.names() == ["a_run", "a_stop"]


async def test_the_pages_of_servers_are_joined(tmp_path: Path) -> None:
    """A cursor of a server is none of the mount, and asks no server."""
    listed: list[Any] = []

    async def script(exchange: Exchange) -> None:
        params: Any = exchange.message.get("params") or {}
        if exchange.message["method"] == "tools/list":
            listed.append(params)
        first: dict[str, Any] = {"tools": [{"name": "one"}], "nextCursor": "2"}
        page = {"tools": [{"name": "two"}]} if params.get("cursor") else first
        await serving({"tools/list": page})(exchange)

    async with mount(tmp_path, {"a": script}) as (_, client):
        assert (await client.rpc("tools/list", {"cursor": "2"}))["error"]["code"] == -32602
        assert listed == []
        assert await client.names() == ["a_one", "a_two"]


@pytest.mark.parametrize("mode", ["legacy", MODERN_VERSION])
async def test_an_official_client_pages_through_a_merged_list(mode: str, tmp_path: Path) -> None:
    """It gets each tool of each server once."""
    names = [f"t{number}" for number in range(PAGE)]
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in [*names, "last"]]
    async with (
        RawUpstream(serving({"tools/list": {"tools": tools[:-1]}})) as one,
        RawUpstream(serving({"tools/list": {"tools": tools}})) as two,
        mounted(tmp_path, {"a": one.url, "b": two.url}) as port,
        httpx2.AsyncClient(timeout=20) as http,
        Client(
            streamable_http_client(f"http://127.0.0.1:{port}{ALL}", http_client=http), mode=mode, cache=None
        ) as client,
    ):
        pages = [await client.list_tools()]
        while (cursor := pages[-1].next_cursor) is not None:
            pages.append(await client.list_tools(cursor=cursor))
    assert [len(page.tools) for page in pages] == [PAGE, PAGE, 1]
    found = [tool.name for page in pages for tool in page.tools]
    assert found == [f"a_{name}" for name in names] + [f"b_{name}" for name in [*names, "last"]]


async def test_a_list_that_changes_stays_what_it_was_for_its_cursors(tmp_path: Path) -> None:
    """Its pages are those of one moment; after 60 seconds a cursor of it is refused with a sentence."""
    now, apps, more = [0.0], list[App](), [5]

    async def changing(exchange: Exchange) -> None:
        await tooled("a", *(f"t{number}" for number in range(PAGE + more[0])))(exchange)

    async with mount(tmp_path, {"a": changing}, apps=apps) as (_, client):
        lists = apps[0].merged[0].lists
        lists.clock = lambda: now[0]
        cursor = {"cursor": (await client.rpc("tools/list"))["result"]["nextCursor"]}
        more[0] = 9
        lists.changed("a", TOOLS)
        assert len((await client.rpc("tools/list", cursor))["result"]["tools"]) == 5
        await client.rpc("tools/list")
        assert len((await client.rpc("tools/list", cursor))["result"]["tools"]) == 5
        now[0] = SNAPSHOT_SECONDS
        error = (await client.rpc("tools/list", cursor))["error"]
        assert (error["code"], error["message"]) == (-32602, NO_SUCH_CURSOR)


async def test_a_cursor_is_of_one_caller_and_good_in_other_processes(tmp_path: Path) -> None:
    """Another process answers it by the same list; a stranger's is refused, as is a page that is none."""
    names = [f"t{number}" for number in range(PAGE + 1)]
    store = MemoryStore()
    async with (
        RawUpstream(tooled("a", *names)) as up,
        mounted(tmp_path / "one", {"a": up.url}, store) as port,
        mounted(tmp_path / "two", {"a": up.url}, store) as other_port,
        MountClient(port) as client,
        MountClient(other_port) as elsewhere,
        MountClient(port) as stranger,
    ):
        await client.open()
        await stranger.open()
        elsewhere.session = client.session
        cursor = (await client.rpc("tools/list"))["result"]["nextCursor"]
        second = await client.rpc("tools/list", {"cursor": cursor})
        assert [tool["name"] for tool in second["result"]["tools"]] == [f"a_{names[-1]}"]
        assert await elsewhere.rpc("tools/list", {"cursor": cursor}) == second
        assert (await stranger.rpc("tools/list", {"cursor": cursor}))["error"]["code"] == -32602
        behind = {"cursor": cursor.removesuffix("1") + "2"}
        assert (await client.rpc("tools/list", behind))["error"]["code"] == -32602


async def test_instructions_stand_under_the_names_of_their_servers(tmp_path: Path) -> None:
    """As far as they are known: a client that comes later sees them."""

    async def opening(exchange: Exchange) -> None:
        body = orjson.loads(initialize_result(exchange.message["id"]))
        body["result"]["instructions"] = "Be kind."
        up.sessions.add("s1")
        await exchange.json(orjson.dumps(body), "Mcp-Session-Id: s1")

    async with (
        RawUpstream(tooled("a", "run"), opening=opening) as up,
        mounted(tmp_path, {"a": up.url}) as port,
        MountClient(port) as client,
    ):
        assert "instructions" not in await client.open()
        await client.names()
        assert (await client.open())["instructions"] == "# a\n\nBe kind."


async def test_operators_see_what_is_missing_and_hidden(tmp_path: Path) -> None:
    """In the health of the adapter, with the reasons."""
    servers = {"a": tooled("a", "run"), "b": tooled("b", "run")}
    async with mount(tmp_path, servers, **BARE) as (_, client):
        await client.names()
        _, body = await client.request("GET", b"", "/healthz")
        (shown,) = orjson.loads(body)["mounts"]
        assert shown["mount_id"] == "all"
        assert not shown["missing"]
        assert shown["hidden_names"] == ["run of b is hidden: run belongs to a"]
    async with entered(tmp_path, {"a": NOBODY}) as client:
        await client.names()
        _, body = await client.request("GET", b"", "/healthz")
        assert list(orjson.loads(body)["mounts"][0]["missing"]) == ["a"]


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_everybody_sees_their_own_tools(tmp_path: Path, modern: bool) -> None:
    """Access rules of a server hold at the mount: what a caller does not see there can be called under no name."""
    async with RawUpstream(office) as up:
        server = {"id": "a", "upstream": {"url": up.url}, "access": RULES}
        async with mounted(tmp_path, {}, core=AUTH, servers=[server]) as port:

            async def asked(token: str, method: str, **params: Any) -> Any:
                fields = {"authorization": f"Bearer {token}"}
                async with MountClient(port) as client:
                    if modern:
                        fields |= {"mcp_protocol_version": MODERN_VERSION, "mcp_method": method}
                        fields |= {"mcp_name": params["name"]} if "name" in params else {}
                        params["_meta"] = MODERN_META
                    else:
                        await client.open(fields=fields)
                    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                    _, answer = await client.request("POST", orjson.dumps(body), ALL, **fields)
                    return orjson.loads(answer)

            for _ in range(2):
                for token, names in (
                    (ALICE, ["read_file", "write_file"]),
                    (BOB, ["read_file", "payroll_show"]),
                ):
                    listed = (await asked(token, "tools/list"))["result"]["tools"]
                    assert [tool["name"] for tool in listed] == [f"a_{name}" for name in names]
            called = up.calls("tools/call")
            refused = await asked(ALICE, "tools/call", name="a_payroll_show", arguments={})
            assert refused["error"]["code"] == -32602
            assert up.calls("tools/call") == called
            assert "result" in await asked(BOB, "tools/call", name="a_payroll_show", arguments={})


@pytest.mark.parametrize("prefix", ["{server}_", "none"])
async def test_a_server_that_needs_a_grant_has_one_tool(
    upstream: StartUpstream, adapter: StartAdapter, prefix: str
) -> None:
    """It signs in: the answer to its call has the link, which a person opens; the tools are there afterwards."""
    mounts = [{"id": "all", "servers": "*", "prefix": prefix, "list_timeout_seconds": 20}]
    alice = {"authorization": f"Bearer {TOKENS['alice']}"}
    async with scene_of(upstream, adapter)(mounts=mounts) as it, MountClient(it.front.port) as client:
        await client.open(fields=alice)
        listed = (await client.rpc("tools/list", fields=alice))["result"]
        assert [tool["name"] for tool in listed["tools"]] == ["raw_sign_in"]
        assert list(listed["_meta"]["mcp-file-adapter/missing"]) == ["raw"]
        called = await client.rpc("tools/call", {"name": "raw_sign_in", "arguments": {}}, fields=alice)
        assert "/authorize/" in called["result"]["content"][0]["text"]
        await it.grant("alice")
        async with asyncio.timeout(20):
            while (await client.rpc("tools/list", fields=alice))["result"]["tools"]:
                await asyncio.sleep(0.05)
