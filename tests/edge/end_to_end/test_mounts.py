"""Several servers at one address, over sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.app import App
from adapter.state.sqlite import MemoryStore
from tests.edge.mounting import ALL, MountClient, answered, entered, mount, mounted, tooled
from tests.edge.raw import (
    INITIALIZE,
    MODERN_META,
    Exchange,
    RawUpstream,
    Script,
    error_of,
    event,
    initialize_result,
    modern_fields,
    read_chunk,
)

NOBODY = "http://127.0.0.1:9/mcp"
"""An address at which nothing listens."""

TWO = {"a": tooled("a", "run", "stop"), "b": tooled("b", "run")}


def requests(upstream: RawUpstream) -> list[object]:
    """The methods that an upstream was asked, without those of sessions."""
    return [
        each.message["method"] for each in upstream.seen if "id" in each.message and "method" in each.message
    ]


async def test_tools_of_all_servers_are_listed_and_called_under_prefixed_names(tmp_path: Path) -> None:
    """One address lists the tools of all servers, and a call reaches the one that its name says."""
    async with mount(tmp_path, TWO) as (ups, client):
        assert await client.names() == ["a_run", "a_stop", "b_run"]
        assert await client.text("b_run") == "b ran run"
        assert await client.text("a_stop") == "a ran stop"
        assert [each.message["params"] for each in ups["b"].calls("tools/call")] == [
            {"name": "run", "arguments": {}}
        ]


async def test_definitions_keep_their_bytes_but_for_the_name(tmp_path: Path) -> None:
    """Spelling, order and numbers of a definition are those of its server."""
    definition = rb'{"x":1.0, "name":"run","inputSchema":{"b":1e3,"a":"\u00e9"}}'

    async def script(exchange: Exchange) -> None:
        number = orjson.dumps(exchange.message["id"])
        await exchange.json(b'{"jsonrpc":"2.0","id":%b,"result":{"tools":[%b]}}' % (number, definition))

    async with mount(tmp_path, {"a": script}) as (_, client):
        _, body = await client.request(
            "POST", b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}', ALL
        )
        assert definition.replace(b'"run"', b'"a_run"') in body


async def test_initialize_asks_no_server(tmp_path: Path) -> None:
    """A session at the mount is open at once; one at a server is opened when it is first called."""
    async with mount(tmp_path, TWO) as (ups, client):
        said = await client.open()
        assert said["protocolVersion"] == "2025-11-25"
        assert [requests(up) for up in ups.values()] == [[], []]
        await client.text("a_run")
        assert requests(ups["a"]) == ["initialize", "tools/call"]
        assert requests(ups["b"]) == []


async def test_a_dead_server_is_one_dead_server(tmp_path: Path) -> None:
    """Lists say what is missing, others are called, and a call of the dead one gets that server's error."""
    async with (
        RawUpstream(tooled("a", "run")) as up,
        entered(tmp_path, {"a": up.url, "dead": NOBODY}) as client,
    ):
        listed = (await client.rpc("tools/list"))["result"]
        assert [tool["name"] for tool in listed["tools"]] == ["a_run"]
        assert "dead" in listed["_meta"]["mcp-file-adapter/missing"]
        assert await client.text("a_run") == "a ran run"
        refused = await client.rpc("tools/call", {"name": "dead_run", "arguments": {}})
        assert refused["error"]["code"] == -32011


async def test_a_bare_name_belongs_to_the_first_server(tmp_path: Path) -> None:
    """Without prefixes two tools of one name are one tool: that of the server that stands first."""
    bare = {"mounts": [{"id": "all", "servers": ["*"], "prefix": "none", "list_timeout_seconds": 20}]}
    async with mount(tmp_path, TWO, **bare) as (_, client):
        assert await client.names() == ["run", "stop"]
        assert await client.text("run") == "a ran run"


async def test_an_unknown_tool_is_refused(tmp_path: Path) -> None:
    """A name that belongs to no server gets the error that servers give."""
    async with mount(tmp_path, TWO) as (ups, client):
        refused = await client.rpc("tools/call", {"name": "c_run", "arguments": {}})
        assert refused["error"] == {"code": -32602, "message": "Unknown tool: c_run"}
        assert [up.calls("tools/call") for up in ups.values()] == [[], []]


async def test_a_call_of_no_tool_asks_no_server(tmp_path: Path) -> None:
    """No list could tell whose it is."""
    async with mount(tmp_path, TWO) as (ups, client):
        refused = await client.rpc("tools/call", {"arguments": {}})
        assert refused["error"] == {"code": -32602, "message": "Unknown tool: "}
        assert [up.calls("tools/list") for up in ups.values()] == [[], []]


async def test_a_completion_names_what_its_server_knows(tmp_path: Path) -> None:
    """A name beside the reference changes nothing."""
    async with mount(tmp_path, TWO) as (ups, client):
        ref = {"type": "ref/prompt", "name": "a_greet"}
        await client.rpc("completion/complete", {"name": "greet", "ref": ref})
        (sent,) = ups["a"].calls("completion/complete")
        assert sent.message["params"] == {"name": "greet", "ref": {**ref, "name": "greet"}}


def asking(name: str) -> Script:
    """Asks its client under the id 1 and the token 1, and says in its result what was answered."""
    told: asyncio.Queue[bytes] = asyncio.Queue()

    async def script(exchange: Exchange) -> None:
        message = exchange.message
        if exchange.head.method == "GET":
            await exchange.answer(405, b"")
        elif "method" not in message:
            told.put_nowait(exchange.body)
            await exchange.answer(202, b"")
        else:
            question = {
                "method": "elicitation/create",
                "params": {"message": name, "_meta": {"progressToken": 1}},
            }
            await exchange.begin_stream()
            await exchange.chunk(event(orjson.dumps({"jsonrpc": "2.0", "id": 1, **question}), "1"))
            text = (await told.get()).decode()
            found = {"content": [{"type": "text", "text": text}]}
            await exchange.chunk(
                event(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}), "2")
            )
            await exchange.end_stream()

    return script


async def test_questions_of_three_servers_with_equal_ids_never_meet(tmp_path: Path) -> None:
    """Each answer reaches the server that asked, under the id that this one chose."""
    scripts = {name: asking(name) for name in "abc"}
    async with mount(tmp_path, scripts) as (_, client), contextlib.AsyncExitStack() as stack:
        calls = {name: await stack.enter_async_context(client.beside()) for name in scripts}
        asks: dict[str, Any] = {}
        for number, (name, call) in enumerate(calls.items()):
            await call.begin(f"{name}_run", number)
            await call.head()
            data = (await read_chunk(call.reader)).partition(b"data: ")[2]
            asks[name] = orjson.loads(data)
        assert len({each["id"] for each in asks.values()}) == 3
        assert len({each["params"]["_meta"]["progressToken"] for each in asks.values()}) == 3
        for name in ("c", "a", "b"):
            assert (await client.tell(id=asks[name]["id"], result={"said": name})).status == 202
        for name, call in calls.items():
            data = (await read_chunk(call.reader)).partition(b"data: ")[2]
            text = orjson.loads(data)["result"]["content"][0]["text"]
            assert orjson.loads(text) == {"jsonrpc": "2.0", "id": 1, "result": {"said": name}}


def speaking(name: str) -> Script:
    """Says one thing on its GET stream, and answers calls."""
    calls = tooled(name, "run")

    async def script(exchange: Exchange) -> None:
        if exchange.head.method != "GET":
            await calls(exchange)
            return
        await exchange.begin_stream()
        note = {"level": "info", "data": name}
        await exchange.chunk(
            event(orjson.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": note}), "7")
        )
        await exchange.gone()

    return script


async def test_one_stream_carries_those_of_all_servers(tmp_path: Path) -> None:
    """The GET stream has what each open session says, also of one that is opened later, with ids told apart."""
    async with mount(tmp_path, {"a": speaking("a"), "b": speaking("b")}) as (ups, client):
        await client.text("a_run")
        async with client.beside() as listener:
            await listener.listen()
            first = await read_chunk(listener.reader)
            assert first.startswith(b"id: a.7\n") and b'"data":"a"' in first
            await client.text("b_run")
            second = await read_chunk(listener.reader)
            assert second.startswith(b"id: b.7\n") and b'"data":"b"' in second
        async with client.beside() as listener:
            await listener.listen(last_event_id="b.7")
            await read_chunk(listener.reader)
            resumed = [each.head.get("last-event-id") for each in ups["b"].calls("GET")]
            assert resumed[0] is None and "7" in resumed


@pytest.mark.parametrize("status", [409, 503])
async def test_a_server_that_is_busy_for_a_moment_is_heard_again(status: int, tmp_path: Path) -> None:
    """One that refuses its stream, because the last one has not ended there yet, is asked for it again."""
    speaks, refusals = speaking("a"), [b'{"detail":"busy"}']

    async def busy(exchange: Exchange) -> None:
        if exchange.head.method == "GET" and refusals:
            await exchange.answer(status, refusals.pop())
        else:
            await speaks(exchange)

    async with mount(tmp_path, {"a": busy}) as (_, client):
        await client.text("a_run")
        async with client.beside() as listener, asyncio.timeout(20):
            await listener.listen()
            assert b'"data":"a"' in await read_chunk(listener.reader)


async def test_a_stream_carries_sessions_that_other_processes_open(tmp_path: Path) -> None:
    """A stream on one worker has what a server says in a session that a call on another worker has opened."""
    apps: list[App] = []
    workers: dict[str, Any] = {"core": {"workers": 2}, "apps": apps}
    async with RawUpstream(speaking("a")) as up, contextlib.AsyncExitStack() as stack:
        ports = [
            await stack.enter_async_context(mounted(tmp_path, {"a": up.url}, **workers)) for _ in range(2)
        ]
        here, there = [await stack.enter_async_context(MountClient(port)) for port in ports]
        await here.open()
        there.session = here.session
        await here.listen()
        assert await there.text("a_run") == "a ran run"
        async with asyncio.timeout(20):
            assert b'"data":"a"' in await read_chunk(here.reader)


async def test_the_end_of_a_session_ends_those_at_all_servers(tmp_path: Path) -> None:
    """DELETE closes what was opened, and a request after it gets 404."""
    async with mount(tmp_path, TWO) as (ups, client):
        await client.text("a_run")
        await client.text("b_run")
        head, _ = await client.request("DELETE", b"", ALL)
        assert head.status == 200
        assert [len(up.calls("DELETE")) for up in ups.values()] == [1, 1]
        head, _ = await client.request("POST", b'{"jsonrpc":"2.0","id":1,"method":"ping"}', ALL)
        assert head.status == 404


async def test_a_session_survives_a_restart_and_another_process(tmp_path: Path) -> None:
    """Whoever shares the state finds the sessions at servers by the client's own id."""
    store = MemoryStore()
    async with RawUpstream(tooled("a", "run")) as up:
        async with entered(tmp_path, {"a": up.url}, store) as client:
            await client.text("a_run")
            session = client.session
        async with mounted(tmp_path / "other", {"a": up.url}, store) as port, MountClient(port) as client:
            client.session = session
            assert await client.text("a_run") == "a ran run"
        assert up.opened == 1


async def test_a_lost_session_is_opened_anew(tmp_path: Path) -> None:
    """A server that forgot its session gets ``initialize`` again, and the call."""
    async with mount(tmp_path, TWO) as (ups, client):
        await client.text("a_run")
        ups["a"].sessions.clear()
        assert await client.text("a_run") == "a ran run"
        assert ups["a"].opened == 2


async def test_a_session_at_a_server_that_is_gone_is_opened_again(tmp_path: Path) -> None:
    """A client that goes on at the mount after a server's session ended for want of use is served, also when it has
    made the same call before.
    """
    apps: list[App] = []
    async with (
        RawUpstream(tooled("a", "run")) as up,
        entered(tmp_path, {"a": up.url}, apps=apps) as client,
    ):
        await client.names()
        for number in range(3):
            assert await client.text("a_run", number) == "a ran run"
        opened, sessions = up.opened, apps[0].sessions
        for session in sessions.opened():
            if session.server == "a":
                # As the cleanup does with one that rested for too long.
                await sessions.store.delete("sessions", session.key)
                sessions.cache.miss(session.key)
        assert await client.text("a_run", 4) == "a ran run"
        assert up.opened == opened + 1


async def test_a_cancellation_reaches_the_server_that_has_the_request(tmp_path: Path) -> None:
    """Only that server hears of it, under the client's own id."""
    begun = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        begun.set()
        await exchange.gone()

    async with mount(tmp_path, {"a": slow, "b": tooled("b", "run")}) as (ups, client):
        await client.text("b_run")
        async with client.beside() as call:
            await call.begin("a_run", 9)
            await asyncio.wait_for(begun.wait(), 20)
            await client.cancel(9)
            heard = await ups["a"].arrived("notifications/cancelled")
            assert heard.message["params"] == {"requestId": 9}
            assert ups["b"].calls("notifications/cancelled") == []


def slow_opening(up: RawUpstream, opening: asyncio.Event, go: asyncio.Event) -> Script:
    """Opens the session ``slow`` when it may ``go`` on; ``opening`` is set when it has been asked to."""

    async def slowly(exchange: Exchange) -> None:
        opening.set()
        await go.wait()
        up.sessions.add("slow")
        await exchange.json(initialize_result(exchange.message["id"]), "Mcp-Session-Id: slow")

    return slowly


async def test_a_request_that_is_cancelled_early_is_not_sent(tmp_path: Path) -> None:
    """Its client withdraws it while the session in which it would run is being opened."""
    opening, go = asyncio.Event(), asyncio.Event()
    one = {"a": tooled("a", "run")}
    async with mount(tmp_path, one) as (ups, client), client.beside() as call:
        await client.names()
        ups["a"].opening = slow_opening(ups["a"], opening, go)
        await call.begin("a_run", 9)
        await asyncio.wait_for(opening.wait(), 20)
        await client.cancel(9)
        go.set()
        assert (await call.head()).status == 202
        assert await client.text("a_run", 10) == "a ran run"
        assert len(ups["a"].calls("tools/call")) == 1


async def test_a_request_that_is_cancelled_while_lists_are_read_is_not_sent(tmp_path: Path) -> None:
    """Its name tells nothing of its server until then."""
    speaks, listing, go = tooled("a", "run"), asyncio.Event(), asyncio.Event()

    async def slowly(exchange: Exchange) -> None:
        if exchange.message.get("method") == "tools/list":
            listing.set()
            await go.wait()
        await speaks(exchange)

    bare = [{"id": "all", "servers": ["*"], "list_timeout_seconds": 20, "prefix": "none"}]
    scripts = {"a": slowly, "b": tooled("b", "stop")}
    async with mount(tmp_path, scripts, mounts=bare) as (ups, client), client.beside() as call:
        await call.begin("run", 9)
        await asyncio.wait_for(listing.wait(), 20)
        await client.cancel(9)
        go.set()
        assert (await call.head()).status == 202
        assert await client.text("run", 10) == "a ran run"
        assert len(ups["a"].calls("tools/call")) == 1


async def test_requests_of_one_id_are_all_answered(tmp_path: Path) -> None:
    """Some clients use an id twice at a time; nobody has cancelled either."""
    opening, go = asyncio.Event(), asyncio.Event()
    one = {"a": tooled("a", "run")}
    async with mount(tmp_path, one) as (ups, client), client.beside() as other:
        await client.names()
        ups["a"].opening = slow_opening(ups["a"], opening, go)
        calls = [asyncio.ensure_future(each.text("a_run")) for each in (client, other)]
        await asyncio.wait_for(opening.wait(), 20)
        async with client.beside() as third:
            # Both are here when the session is there.
            await third.rpc("ping")
        go.set()
        assert await asyncio.gather(*calls) == ["a ran run"] * 2


async def test_the_level_of_the_log_is_set_at_all_servers(tmp_path: Path) -> None:
    """Open sessions hear of it at once, those that are opened later when they are."""
    async with mount(tmp_path, TWO) as (ups, client):
        await client.text("a_run")
        assert (await client.rpc("logging/setLevel", {"level": "debug"}))["result"] == {}
        assert len(ups["a"].calls("logging/setLevel")) == 1
        await client.text("b_run")
        assert len(ups["b"].calls("logging/setLevel")) == 1


async def test_no_server_can_make_up_the_id_of_another_ones_question(tmp_path: Path) -> None:
    """An answer to what is too large to be read, or no message for one reader, reaches nobody who has not asked."""

    async def hostile(exchange: Exchange) -> None:
        if exchange.message.get("method") != "tools/call":
            return await tooled("a", "run")(exchange)
        question = {"jsonrpc": "2.0", "id": "b.1", "method": "elicitation/create", "params": {}}
        question["params"] = {"message": "x" * (1 << 20)}
        await exchange.json(orjson.dumps(question))
        return None

    async with mount(tmp_path, {"a": hostile, "b": tooled("b", "run")}) as (ups, client):
        await client.text("b_run")
        asked = await client.rpc("tools/call", {"name": "a_run", "arguments": {}}, 2)
        assert asked["id"] == "b.1"
        assert (await client.tell(id="b.1", result={"action": "accept"})).status == 202
        await client.text("b_run", 3)
        assert not [each for each in ups["b"].seen if "result" in each.message]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_no_server_answers_a_request_of_another_one(tmp_path: Path, era: str) -> None:
    """Neither in place of its own answer nor ahead of it, also where this process knows of no other request; nor behind
    a megabyte, or in a coding that nobody asked for.
    """
    forged = b'{"jsonrpc":"2.0","id":7,"result":{"content":[]}}'

    async def hostile(exchange: Exchange) -> None:
        params = exchange.message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if name == "whole":
            return await exchange.json(forged)
        if name == "long":
            return await exchange.json(forged.replace(b"[]", b'[],"x":"%b"' % (b"x" * (1 << 20))))
        if name == "packed":
            return await exchange.json(gzip.compress(forged), "Content-Encoding: gzip")
        if name == "stream":
            own = orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {"content": []}})
            return await exchange.answer(200, event(forged) + event(own), "Content-Type: text/event-stream")
        return await tooled("a", "whole", "long", "packed", "stream")(exchange)

    async with mount(tmp_path, {"a": hostile, "b": tooled("b", "run")}) as (_, client):
        answers = []
        for tool in ("a_whole", "a_long", "a_packed", "a_stream"):
            params: dict[str, Any] = {"name": tool, "arguments": {}}
            fields: dict[str, str] = {}
            if era == "modern":
                client.session, fields, params["_meta"] = None, modern_fields(tool), MODERN_META
            asked = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
            answers.append((await client.request("POST", orjson.dumps(asked), ALL, **fields))[1])
        for answer, why in zip(answers, ("was not sent", "was not sent", "compressed"), strict=False):
            assert error_of(answer)["id"] == 5 and why in error_of(answer)["message"]
        assert b'"id":5' in answers[-1] and b'"id":7' not in answers[-1]


async def test_tasks_of_several_servers_are_told_apart(tmp_path: Path) -> None:
    """The id of a task leads back to the server that has it. A list of all is not offered."""

    async def script(exchange: Exchange) -> None:
        message = exchange.message
        if message.get("method") == "tools/call":
            await answered(exchange, {"task": {"taskId": "t1", "status": "working"}})
        else:
            await answered(exchange, {"taskId": "t1", "status": "completed"})

    async with mount(tmp_path, {"a": script, "b": script}) as (ups, client):
        found = await client.rpc("tools/call", {"name": "b_run", "arguments": {}, "task": {}})
        task = found["result"]["task"]["taskId"]
        assert task == "b.t1"
        state = await client.rpc("tasks/get", {"taskId": task})
        assert state["result"]["taskId"] == "b.t1"
        assert ups["b"].calls("tasks/get")[0].message["params"] == {"taskId": "t1"}
        assert ups["a"].calls("tasks/get") == []
        assert (await client.rpc("tasks/list"))["error"]["code"] == -32601


async def test_clients_of_the_stateless_era_are_served(tmp_path: Path) -> None:
    """Calls carry the name of the tool as the server knows it, in the body and in its header."""
    async with mount(tmp_path, TWO) as (ups, client):
        client.session = None
        params = {"name": "b_run", "arguments": {}, "_meta": MODERN_META}
        found = await client.rpc("tools/call", params, fields=modern_fields("b_run"))
        assert found["result"]["content"][0]["text"] == "b ran run"
        assert ups["b"].calls("tools/call")[0].head["mcp-name"] == "run"
        fields = modern_fields() | {"mcp_name": ""}
        listed = await client.rpc(
            "tools/list", {"_meta": MODERN_META}, fields=fields | {"mcp_method": "tools/list"}
        )
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["a_run", "a_stop", "b_run"]
        said = await client.rpc(
            "server/discover", {"_meta": MODERN_META}, fields=fields | {"mcp_method": "server/discover"}
        )
        assert said["result"]["supportedVersions"] == ["2026-07-28"]


async def test_what_a_stateless_client_leaves_out_is_named(tmp_path: Path) -> None:
    """The mount judges the requests that it answers itself as a server of that era does."""
    async with mount(tmp_path, TWO) as (_, client):
        client.session = None
        fields = modern_fields() | {"mcp_name": "", "mcp_method": "server/discover"}
        asked = b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}'
        head, body = await client.request("POST", asked, ALL, **fields)
        assert (head.status, error_of(body)["code"]) == (400, -32602)
        asked = b'{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"_meta":%b}}'
        fields["mcp_method"] = "resources/subscribe"
        head, body = await client.request("POST", asked % orjson.dumps(MODERN_META), ALL, **fields)
        assert (head.status, error_of(body)["code"]) == (404, -32601)


async def test_a_call_needs_the_token_of_the_adapter(tmp_path: Path) -> None:
    """The mount asks for the adapter's credential, which no server behind it gets; a session is one caller's."""
    tokens = [{"name": name, "token": name * 20} for name in ("one", "two")]
    auth = {"enabled": True, "tokens": tokens, "signing_secret": "s" * 32}
    async with (
        RawUpstream(tooled("a", "run")) as up,
        mounted(tmp_path, {"a": up.url}, core={"auth": auth}) as port,
        MountClient(port) as client,
    ):
        head, _ = await client.request("POST", INITIALIZE, ALL)
        assert head.status == 401
        one, two = ({"authorization": f"Bearer {each['token']}"} for each in tokens)
        await client.open(INITIALIZE, one)
        asked = {"name": "a_run", "arguments": {}}
        found = await client.rpc("tools/call", asked, fields=one)
        assert found["result"]["content"][0]["text"] == "a ran run"
        assert all(each.head.get("authorization") is None for each in up.seen)
        head, _ = await client.request("POST", b'{"jsonrpc":"2.0","id":1,"method":"ping"}', ALL, **two)
        assert head.status == 404


async def test_a_subscription_carries_what_all_servers_say(tmp_path: Path) -> None:
    """The mount acknowledges it once, and passes on the news of each server."""
    meta = {"io.modelcontextprotocol/subscriptionId": 1}

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for method in ("notifications/subscriptions/acknowledged", "notifications/tools/list_changed"):
            said = {"jsonrpc": "2.0", "method": method, "params": {"_meta": meta}}
            await exchange.chunk(event(orjson.dumps(said)))
        await exchange.gone()

    async with mount(tmp_path, {"a": script, "b": script}) as (_, client):
        client.session = None
        params = {"notifications": {"toolsListChanged": True}, "_meta": MODERN_META}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        fields = modern_fields() | {"mcp_name": "", "mcp_method": "subscriptions/listen"}
        await client.send("POST", orjson.dumps(asked), ALL, **fields)
        assert (await client.head()).status == 200
        came = b""
        while came.count(b"list_changed") < 2:
            came += await read_chunk(client.reader)
        assert came.count(b"acknowledged") == 1


async def test_a_request_without_a_session_is_refused(tmp_path: Path) -> None:
    """A client that names no session is told so, as at a server's own address."""
    async with mount(tmp_path, TWO) as (_, client):
        client.session = None
        head, _ = await client.request("POST", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', ALL)
        assert head.status == 400


async def test_hosts_without_sessions_are_served_where_that_is_wanted(tmp_path: Path) -> None:
    """With ``missing_id: principal`` calls run in the session that is kept for whoever asks."""
    async with mount(tmp_path, TWO, sessions={"missing_id": "principal"}) as (_, client):
        client.session = None
        assert await client.names() == ["a_run", "a_stop", "b_run"]
        assert await client.text("b_run") == "b ran run"
