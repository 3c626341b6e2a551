"""Modern clients at a legacy server: plain requests, sessions, errors, and what is left of clients that go."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from adapter.errors import CallTooLong, UpstreamUnreachable
from adapter.upstream.port import UpstreamReply, header
from tests.relay.eras.bridging import (
    ANONYMOUS,
    PATIENCE,
    PREFIX,
    AskingServer,
    bridging,
    calling,
    messages,
    modern,
)
from tests.relay.sharing import JSON, LiveUpstream, Message, answered
from tests.scripted import ScriptedAnswer, ScriptedReply
from tests.waiting import until


async def test_call_is_translated_both_ways() -> None:
    """The server reads a legacy request, the client a modern result."""
    upstream = LiveUpstream()
    process = bridging(upstream)
    answer = await process.call("x", {"a": 1}, meta={"progressToken": 7, "mine": True})
    assert answer["result"] == {
        "a": 1,
        "resultType": "complete",
        "_meta": {PREFIX + "serverInfo": {"name": "live"}},
    }
    request = upstream.requests[-1]
    params: Message = orjson.loads(request.body)["params"]
    assert params["arguments"] == {"a": 1} and params["_meta"]["mine"] is True
    assert not any(PREFIX in key for key in params["_meta"])
    assert header(request.headers, "mcp-protocol-version") == "2025-11-25"
    assert header(request.headers, "mcp-method") is header(request.headers, "mcp-name") is None
    assert header(request.headers, "mcp-session-id") == "real-1"


async def test_server_hears_what_the_adapter_can_ask_for_others() -> None:
    """The session declares all that any client may be asked, and discovery tells what its server said."""
    upstream = LiveUpstream()
    upstream.result |= {"capabilities": {"tools": {}, "tasks": {}}, "instructions": "Be kind."}
    found = (await bridging(upstream).ask("server/discover"))["result"]
    declared = orjson.loads(upstream.requests[0].body)["params"]["capabilities"]
    assert set(declared) == {"elicitation", "roots", "sampling"} and set(declared["elicitation"]) == {
        "form",
        "url",
    }
    assert found == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "instructions": "Be kind.",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {PREFIX + "serverInfo": {"name": "live"}},
    }


async def test_principal_has_one_session_nobody_one_for_each_call() -> None:
    """Sessions of single calls are closed behind them; where the settings say so, also nobody has a lasting one."""
    upstream = LiveUpstream()
    process = bridging(upstream)
    for _ in range(3):
        await process.call()
    await process.call(principal="bea")
    assert upstream.opened == 2
    for _ in range(2):
        await process.call(principal=ANONYMOUS)
    await until(lambda: upstream.alive == {"real-1", "real-2"})
    assert upstream.opened == 4
    shared = bridging(upstream, shares=True)
    for _ in range(2):
        await shared.call(principal=ANONYMOUS)
    assert upstream.opened == 5


async def test_server_without_sessions_is_initialized_once() -> None:
    """Nobody's calls share what is no session."""
    upstream = LiveUpstream(issues_ids=False)
    process = bridging(upstream)
    for _ in range(3):
        await process.call(principal=ANONYMOUS)
    assert upstream.opened == 1


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/get"]
)
async def test_requests_of_the_legacy_era_are_unknown(method: str) -> None:
    """A modern client that sends one learns that it does not exist."""
    upstream = LiveUpstream()
    reply = await bridging(upstream).send(modern(method))
    assert reply.status == 404 and (await messages(reply))[0]["error"]["code"] == -32601
    assert upstream.requests == []


async def test_session_that_the_server_lost_is_opened_again() -> None:
    """The call that finds that out is sent in a new one."""
    upstream = LiveUpstream()
    process = bridging(upstream)
    await process.call()
    upstream.alive.clear()
    assert (await process.call("x", {"a": 2}))["result"]["a"] == 2
    assert upstream.opened == 2


async def test_errors_get_the_codes_and_statuses_of_the_era() -> None:
    """A resource that is not there is bad params now; an unknown method is 404."""

    async def refuse(message: Message) -> UpstreamReply:
        code = -32002 if message["method"] == "resources/read" else -32601
        body = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "no", "data": 1}}
        return ScriptedReply(ScriptedAnswer(headers=(JSON,), chunks=[orjson.dumps(body)]))

    process = bridging(LiveUpstream(refuse))
    reply = await process.send(modern("resources/read", {"uri": "file:///a"}))
    [error] = await messages(reply)
    assert (reply.status, error["error"]) == (400, {"code": -32602, "message": "no", "data": 1})
    assert (await process.send(modern("prompts/list"))).status == 404


@pytest.mark.parametrize("principal", ["ada", ANONYMOUS])
async def test_refusal_to_open_a_session_is_the_answer(principal: str) -> None:
    """A challenge reaches the client with its fields."""
    fields = (JSON, ("WWW-Authenticate", "Bearer"))
    upstream = LiveUpstream(refuses=ScriptedAnswer(401, headers=fields, chunks=[b"{}"]))
    reply = await bridging(upstream).send(modern("tools/list", principal=principal))
    assert reply.status == 401 and header(reply.headers, "www-authenticate") == "Bearer"


async def test_server_that_is_away_is_unreachable() -> None:
    """The failure is the upstream's own."""
    upstream = LiveUpstream(away=True)
    with pytest.raises(UpstreamUnreachable):
        await bridging(upstream).call()


async def test_headers_of_parameters_are_checked() -> None:
    """A call whose header says something else than its argument is refused, once the tool was listed."""
    schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}

    async def serve(message: Message) -> UpstreamReply:
        return answered(message, {"tools": [{"name": "x", "inputSchema": schema}]})

    upstream = LiveUpstream(serve)
    process = bridging(upstream)
    await process.ask("tools/list")
    wrong = (("Mcp-Param-City", "Rome"),)
    assert (await process.call("x", {"city": "Oslo"}, fields=wrong))["error"]["code"] == -32020
    right = (("Mcp-Param-City", "Oslo"),)
    assert "result" in await process.call("x", {"city": "Oslo"}, fields=right)


async def test_link_that_is_required_is_a_question() -> None:
    """An error that asks for a link becomes a question without a state: the call is sent again as a new one."""
    link = {"mode": "url", "url": "https://a.example", "message": "Sign in", "elicitationId": "1"}

    async def refuse(message: Message) -> UpstreamReply:
        error = {"code": -32042, "message": "sign in", "data": {"elicitations": [link]}}
        body = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        return ScriptedReply(ScriptedAnswer(headers=(JSON,), chunks=[orjson.dumps(body)]))

    process = bridging(LiveUpstream(refuse))
    found = (await process.call())["result"]
    assert found["inputRequests"] == {"link-0": {"method": "elicitation/create", "params": link}}
    assert "requestState" not in found
    assert (await process.call(capabilities={}))["error"]["code"] == -32042


async def test_time_of_a_call_is_limited() -> None:
    """A call that takes longer in all than it may is ended, and the server told."""
    upstream = AskingServer()
    process = bridging(upstream, total=0.05)
    with pytest.raises(CallTooLong):
        await process.call()
    await until(lambda: "notifications/cancelled" in upstream.methods())


@pytest.mark.parametrize("principal", ["ada", ANONYMOUS])
@pytest.mark.parametrize("phase", ["opening", "called", "streaming"])
async def test_nothing_is_left_of_a_client_that_goes(principal: str, phase: str) -> None:
    """Whenever it goes: the stream is dropped, the server told, a session of its own closed, and no task left."""
    upstream = AskingServer()
    process = bridging(upstream)
    before = asyncio.all_tasks()
    if phase == "opening":
        upstream.opens.clear()
    sending = asyncio.create_task(process.send(modern("tools/call", {"name": "x"}, principal=principal)))
    if phase == "opening":
        await until(lambda: upstream.opened > 0)
        sending.cancel()
        upstream.opens.set()
    else:
        _, stream = await upstream.next_call()
        if phase == "streaming":
            stream.say({"jsonrpc": "2.0", "method": "notifications/other"})
            (await sending).abort()
        sending.cancel()
        await asyncio.wait_for(stream.aborted.wait(), PATIENCE)
        await until(lambda: upstream.methods() == ["notifications/cancelled"])
    if principal == ANONYMOUS:
        await until(lambda: not upstream.alive)
    await process.clients.close()
    await asyncio.wait([sending])
    await until(lambda: asyncio.all_tasks() == before)


async def test_stop_ends_what_is_under_way() -> None:
    """Calls are cancelled at the server, and none of their tasks is left."""
    upstream = AskingServer()
    process = bridging(upstream)
    before = asyncio.all_tasks()
    async with calling(process) as task:
        _, stream = await upstream.next_call()
        await process.clients.close()
        await asyncio.wait_for(stream.aborted.wait(), PATIENCE)
        await asyncio.wait([task])
        assert task.exception() is not None
    await until(lambda: asyncio.all_tasks() == before)
