"""The relay of ``connect`` in front of scripted servers: both eras, streams, lost sessions, servers that are away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from tests.commands.connect.hosting import META, host_of, request, result
from tests.edge.raw import Exchange, RawUpstream, answering, beginning, event, in_events, in_json, silent
from tests.waiting import until

Handle = Callable[[Exchange], Awaitable[None]]


def by_method(**scripts: Handle) -> Handle:
    """Answers by the HTTP method or the last word of the JSON-RPC method; GET has no stream unless it is named."""

    async def script(exchange: Exchange) -> None:
        method = str(exchange.message.get("method", exchange.head.method)).rpartition("/")[2]
        await scripts.get(method, answering(405, b""))(exchange)

    return script


async def test_a_session_is_opened_used_and_ended() -> None:
    """Each request has the session, the version and the fields of the command; bytes pass as they are."""
    odd = b'{"jsonrpc":"2.0", "id":"a\\u0062",  "result":{"n":12345678901234567890.0}}'
    async with RawUpstream(by_method(call=in_json(odd))) as server:
        async with host_of(server.url) as host:
            await host.initialize()
            line = (
                b'{"jsonrpc": "2.0", "id": "ab", "method": "tools/call", "params": {"name": "x", "n": 1.50}}'
            )
            await host.say(line)
            assert await host.line() == odd
            (call,) = server.calls("tools/call")
            assert call.body == line
            fields = ("mcp-session-id", "mcp-protocol-version", "x-team", "accept-encoding")
            assert [call.head.get(name) for name in fields] == ["upstream-1", "2025-11-25", "a", "identity"]
            assert server.sessions == {"upstream-1"}
        assert server.sessions == set()


async def test_modern_requests_have_their_mirrors_and_no_session() -> None:
    """Also arguments that the listed definition mirrors in headers."""
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    tools = result(1, tools=[{"name": "grüße", "inputSchema": schema}])
    script = by_method(list=in_json(tools), call=in_json(result(2)))
    async with RawUpstream(script) as server, host_of(server.url) as host:
        await host.ask(1, "tools/list", _meta=META)
        await host.ask(2, "tools/call", name="grüße", arguments={"region": "süd"}, _meta=META)
        (call,) = server.calls("tools/call")
        names = ("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region", "mcp-session-id")
        assert [call.head.get(name) for name in names] == [
            "2026-07-28",
            "tools/call",
            "=?base64?Z3LDvMOfZQ==?=",
            "=?base64?c8O8ZA==?=",
            None,
        ]


async def test_the_server_asks_within_a_call() -> None:
    """Its request and its progress come before the answer, and the host's response goes back to the session."""
    heard: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def call(exchange: Exchange) -> None:
        await exchange.begin_stream()
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}}
        await exchange.chunk(b": hello\n\n" + event(orjson.dumps(progress)))
        await exchange.chunk(event(orjson.dumps(request("q", "elicitation/create", message="Sure?"))))
        answer = await heard
        await exchange.chunk(event(result(7, answer=answer)))
        await exchange.end_stream()

    async def respond(exchange: Exchange) -> None:
        heard.set_result(exchange.message["result"])
        await exchange.answer(202, b"")

    async with RawUpstream(by_method(call=call, POST=respond)) as server, host_of(server.url) as host:
        await host.initialize()
        assert (await host.ask(7, "tools/call", name="x"))["method"] == "notifications/progress"
        assert (await host.hear())["params"] == {"message": "Sure?"}
        await host.say({"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}})
        assert await host.hear() == {"jsonrpc": "2.0", "id": 7, "result": {"answer": {"action": "accept"}}}


async def test_the_stream_of_a_session_is_followed_and_resumed() -> None:
    """What the server says by itself arrives, and behind a broken stream the rest."""
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}

    async def listen(exchange: Exchange) -> None:
        last = exchange.head.get("last-event-id")
        await exchange.begin_stream()
        told = orjson.dumps(note | {"params": {"after": last}})
        await exchange.chunk(b"retry: 1\nid: " + (b"e2" if last else b"e1") + b"\n" + event(told))
        if last is None:
            exchange.break_off()
        await exchange.gone()

    async with RawUpstream(by_method(GET=listen)) as server, host_of(server.url) as host:
        await host.initialize()
        assert [(await host.hear())["params"]["after"] for _ in range(2)] == [None, "e1"]


async def test_an_answer_is_resumed() -> None:
    """Its stream broke off behind an event with an id, and the request is not sent again."""

    async def call(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(b"retry: 1\nid: 5\ndata: \n\n")
        exchange.break_off()

    async def resume(exchange: Exchange) -> None:
        if exchange.head.get("last-event-id") != "5":
            await exchange.answer(405, b"")
        else:
            await exchange.stream(event(result(1, ok=True)))

    async with RawUpstream(by_method(call=call, GET=resume)) as server, host_of(server.url) as host:
        await host.initialize()
        assert (await host.ask(1, "tools/call", name="x"))["result"] == {"ok": True}
        assert len(server.calls("tools/call")) == 1


async def test_a_call_that_may_have_run_is_not_sent_again() -> None:
    """The host is told so, and a list is asked for once more."""

    async def call(exchange: Exchange) -> None:
        exchange.hang_up()

    async def listing(exchange: Exchange) -> None:
        if len(server.calls("tools/list")) == 1:
            exchange.hang_up()
        else:
            await exchange.json(result(2, tools=[]))

    async with RawUpstream(by_method(call=call, list=listing)) as server, host_of(server.url) as host:
        await host.initialize()
        assert "may have run" in (await host.ask(1, "tools/call", name="x"))["error"]["message"]
        assert (await host.ask(2, "tools/list"))["result"] == {"tools": []}
        assert len(server.calls("tools/call")) == 1


async def test_a_forgotten_session_is_opened_again() -> None:
    """Once for all requests; the host sees no 404, and is told that lists may have changed."""

    async def opening(exchange: Exchange) -> None:
        server.opened += 1
        server.sessions.add(f"s{server.opened}")
        members = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}}
        await exchange.json(result(exchange.message["id"], **members), f"Mcp-Session-Id: s{server.opened}")

    async def call(exchange: Exchange) -> None:
        await exchange.json(result(exchange.message["id"], session=exchange.head.get("mcp-session-id")))

    async with RawUpstream(by_method(call=call), opening=opening) as server, host_of(server.url) as host:
        await host.initialize()
        server.sessions.clear()
        for number in range(5):
            await host.say(request(number, "tools/call", name="x"))
        heard = [await host.hear() for _ in range(6)]
        results = [each["result"] for each in heard if "result" in each]
        assert results == [{"session": "s2"}] * 5
        assert {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"} in heard
        first, second = server.calls("initialize")
        assert first.body == second.body.replace(b'"mcp-adapter connect"', b"0", 1)
        assert len(server.calls("notifications/initialized")) == 2


async def test_a_server_that_restarts_is_waited_for() -> None:
    """A request that could not be sent is sent when it is back, in a new session."""
    async with RawUpstream(by_method(call=in_json(result(1)))) as server, host_of(server.url) as host:
        await host.initialize()
        await server.stop()
        await host.say(request(1, "tools/call", name="x"))
        await until(lambda: host.told)
        await server.start()
        assert (await host.hear())["result"] == {}
        assert host.told[0].startswith(f"{server.url} is away: ") and f"{server.url} is back." in host.told


async def test_a_server_that_stays_away_fails_the_request() -> None:
    """When the patience of hosts would end, and not the process."""
    async with RawUpstream(by_method(call=in_json(result(2)))) as server, host_of(server.url, 0.0) as host:
        await host.initialize()
        await server.stop()
        assert "cannot be reached" in (await host.ask(1, "tools/call", name="x"))["error"]["message"]
        await server.start()
        assert (await host.ask(2, "tools/call", name="x"))["result"] == {}


async def test_a_modern_request_is_cancelled_by_its_connection() -> None:
    """The host's notification does not travel, and nothing is answered."""
    ended = asyncio.Event()

    async def call(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.gone()
        ended.set()

    script = by_method(call=call, list=in_json(result(2)))
    async with RawUpstream(script) as server, host_of(server.url) as host:
        await host.say(request(1, "tools/call", name="x", _meta=META))
        await server.arrived("tools/call")
        await host.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        async with asyncio.timeout(30):
            await ended.wait()
        assert (await host.ask(2, "tools/list", _meta=META))["id"] == 2
        assert not server.calls("notifications/cancelled") and host.lines.empty()


async def test_a_legacy_cancellation_is_passed_on() -> None:
    """Over HTTP a legacy request is cancelled by a message, so its connection stays."""
    async with RawUpstream(by_method(call=silent)) as server, host_of(server.url) as host:
        await host.initialize()
        await host.say(request(1, "tools/call", name="x"))
        await server.arrived("tools/call")
        await host.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        assert (await server.arrived("notifications/cancelled")).head.get("mcp-session-id") == "upstream-1"


async def test_a_subscription_outlives_its_connection() -> None:
    """It is asked for again, and the host hears of one beginning only."""
    acknowledged = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {}}
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}}

    async def listen(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(b"retry: 1\n" + event(orjson.dumps(acknowledged)) + event(orjson.dumps(changed)))
        exchange.break_off()

    async with RawUpstream(by_method(listen=listen)) as server, host_of(server.url) as host:
        await host.say(request(1, "subscriptions/listen", _meta=META))
        methods = [(await host.hear())["method"].rpartition("/")[2] for _ in range(3)]
        assert methods == ["acknowledged", "list_changed", "list_changed"]


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (400, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no"}}', -32022),
        (400, b'{"jsonrpc":"2.0","error":{"code":-32022,"message":"no"}}', -32022),
        (404, b"<html>", -32000),
        (202, b"", -32000),
        (200, b"[]", -32000),
    ],
)
async def test_each_request_is_answered(status: int, body: bytes, says: int) -> None:
    """By the error of the server under the request's own id, or by the status."""
    script = answering(status, body, "Content-Type: application/json")
    async with RawUpstream(script) as server, host_of(server.url) as host:
        answer = await host.ask("x", "server/discover", _meta=META)
        assert (answer["id"], answer["error"]["code"]) == ("x", says)
        if says == -32000:
            assert str(status) in answer["error"]["message"]
            assert ("Check the path" in answer["error"]["message"]) == (status == 404)


async def test_what_is_no_message_is_not_written() -> None:
    """A server can write nothing but messages to the host, each on one line."""
    good = b'{"jsonrpc":"2.0",\r\n"id":1,\n"result":{}}'
    chunks = (
        event(b"nonsense"),
        event(b"[1]"),
        b"data: 7\n\n",
        event(good.replace(b"\r\n", b"\ndata: ").replace(b"1,\n", b"1,\ndata: ")),
    )
    async with RawUpstream(by_method(call=in_events(*chunks))) as server, host_of(server.url) as host:
        await host.say(request(1, "tools/call", name="x", _meta=META))
        assert await host.line() == b'{"jsonrpc":"2.0","id":1,"result":{}}'
        assert host.lines.empty()


@pytest.mark.parametrize(
    ("line", "number", "code"), [(b"nonsense", None, -32700), (b"5", None, -32600), (b'{"id":3}', 3, -32600)]
)
async def test_what_the_host_writes_wrong_is_answered(line: bytes, number: object, code: int) -> None:
    """Here, without the server."""
    async with RawUpstream(silent) as server, host_of(server.url) as host:
        await host.say(line)
        answer = await host.hear()
        assert (answer["id"], answer["error"]["code"], server.seen) == (number, code, [])


async def test_a_redirect_within_the_server_is_followed() -> None:
    """Once for all requests; one to another server is not."""

    async def script(exchange: Exchange) -> None:
        if exchange.head.first.split()[1] == "/mcp":
            await exchange.answer(307, b"", "Location: /mcp/")
        elif exchange.message["id"] == 3:
            await exchange.answer(307, b"", "Location: http://127.0.0.2:9/mcp")
        else:
            await exchange.json(result(exchange.message["id"]))

    async with RawUpstream(script) as server, host_of(server.url) as host:
        for number in (1, 2):
            assert (await host.ask(number, "tools/list", _meta=META))["result"] == {}
        assert [each.head.first.split()[1] for each in server.seen] == ["/mcp", "/mcp/", "/mcp/"]
        assert "307" in (await host.ask(3, "tools/list", _meta=META))["error"]["message"]


async def test_a_compressed_answer_is_refused() -> None:
    """Nobody asked for it, and it may be larger than it looks."""
    script = answering(200, b"x", "Content-Type: text/event-stream", "Content-Encoding: gzip")
    async with RawUpstream(script) as server, host_of(server.url) as host:
        answer = await host.ask(1, "tools/call", name="x", _meta=META)
        assert "compressed" in answer["error"]["message"]


async def test_a_stream_that_goes_on_behind_its_answer_keeps_nothing() -> None:
    """The host has its answer at once, and settling does not wait for more than a moment."""
    script = by_method(call=beginning(event(result(1, ok=True))))
    async with RawUpstream(script) as server, host_of(server.url) as host:
        assert (await host.ask(1, "tools/call", name="x", _meta=META))["result"] == {"ok": True}
        async with asyncio.timeout(30):
            await host.relay.settle()


async def test_a_batch_passes() -> None:
    """Of MCP 2025-03-26, in both directions."""
    answers = b"[" + result(1) + b"," + result(2) + b"]"
    async with RawUpstream(in_json(answers), version="2025-03-26") as server, host_of(server.url) as host:
        await host.say(
            b"[" + orjson.dumps(request(1, "tools/list")) + b"," + orjson.dumps(request(2, "x/y")) + b"]"
        )
        assert await host.line() == answers
        async with asyncio.timeout(30):
            await host.relay.settle()


async def test_a_long_call_holds_up_nothing() -> None:
    """Another request is answered meanwhile."""
    script = by_method(call=silent, list=in_json(result(2)))
    async with RawUpstream(script) as server, host_of(server.url) as host:
        await host.say(request(1, "tools/call", name="x", _meta=META))
        assert (await host.ask(2, "tools/list", _meta=META))["id"] == 2


async def test_a_new_session_has_the_log_level_and_the_subscriptions() -> None:
    """Those that the host asked for and has not ended; it hears no answer to them a second time."""

    async def answered(exchange: Exchange) -> None:
        await exchange.json(result(exchange.message["id"]))

    script = by_method(setLevel=answered, subscribe=answered, unsubscribe=answered, call=answered)
    async with RawUpstream(script) as server, host_of(server.url) as host:
        await host.initialize()
        await host.ask(1, "logging/setLevel", level="debug")
        await host.ask(2, "logging/setLevel", level="error")
        for number, uri in enumerate(("a://1", "a://2"), 3):
            await host.ask(number, "resources/subscribe", uri=uri)
        await host.ask(5, "resources/unsubscribe", uri="a://1")
        before = len(server.seen)
        server.sessions.clear()
        assert (await host.ask(6, "tools/call", name="x"))["id"] == 6
        again = [each for each in server.seen[before:] if each.head.get("mcp-session-id") == "upstream-2"]
        methods = [each.message.get("method") for each in again if each.head.method == "POST"]
        assert methods[:3] == ["notifications/initialized", "logging/setLevel", "resources/subscribe"]
        assert b'"error"' in again[1].body and b"a://2" in again[2].body
        assert host.lines.empty()
