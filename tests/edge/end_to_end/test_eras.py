"""Clients of the legacy era at a server that speaks the modern one only."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from typing import Any

import orjson

from adapter.wire.eras import Era
from tests.edge.conftest import Adapter, StartAdapter, StartRoad, StartUpstream, done
from tests.edge.modern_upstream import (
    COMPLETE,
    ModernScript,
    answer,
    asking,
    form,
    notification,
    params,
    refuse,
)
from tests.edge.raw import INITIALIZE, Exchange, RawClient, answering, call_body, error_of, event, read_chunk

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
LEVEL_KEY = "io.modelcontextprotocol/logLevel"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"


def initialize(version: str = "2025-11-25", **capabilities: Any) -> bytes:
    info = {"name": "old", "version": "1"}
    opening = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info}
    return request("initialize", opening, 0)


def request(method: str, content: Any = None, number: object = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method}
    return orjson.dumps(message if content is None else {**message, "params": content})


async def opened(client: RawClient, body: bytes) -> dict[str, Any]:
    head, text = await client.request("POST", body)
    assert head.status == 200, text
    client.session = head["mcp-session-id"]
    result: dict[str, Any] = orjson.loads(text)["result"]
    return result


class Bridged:
    """A client with an open session at a modern server, and ways to talk with it."""

    def __init__(self, script: ModernScript, up: Any, front: Adapter, client: RawClient) -> None:
        self.script = script
        self.up = up
        self.front = front
        self.client = client
        self._messages: list[dict[str, Any]] = []

    async def ask(self, method: str, content: Any = None, number: object = 1) -> dict[str, Any]:
        """The response to a request."""
        head, body = await self.client.request("POST", request(method, content, number))
        assert head.status == 200, body
        found: dict[str, Any] = orjson.loads(body)
        return found

    async def begin(self, number: object = 1) -> None:
        """Call the tool, and read the head of a stream."""
        await self.client.send(
            "POST", request("tools/call", {"name": "tool", "arguments": {"a": 1.0}}, number)
        )
        head = await self.client.head()
        assert head["content-type"] == "text/event-stream"

    async def question(self) -> dict[str, Any]:
        """The next message on the stream of the call."""
        if not self._messages:
            self._messages += messages_in(await read_chunk(self.client.reader))
        return self._messages.pop(0)

    async def answer(self, number: object, **content: Any) -> int:
        """Answer a question on a connection of its own, as clients do. Returns the status."""
        async with self.front.client() as other:
            other.session = self.client.session
            body = orjson.dumps({"jsonrpc": "2.0", "id": number, **content})
            head, _ = await other.request("POST", body)
            return head.status


def messages_in(chunk: bytes) -> list[dict[str, Any]]:
    """The messages of the events in a chunk."""
    return [orjson.loads(line[6:]) for line in chunk.splitlines() if line.startswith(b"data: ")]


def message_in(chunk: bytes) -> dict[str, Any]:
    """The first of them."""
    return messages_in(chunk)[0]


@contextlib.asynccontextmanager
async def bridged(
    road: StartRoad, script: ModernScript, body: bytes | None = None, **more: Any
) -> AsyncIterator[Bridged]:
    async with road(script, opening=refuse, **more) as (up, front, client):
        await opened(client, body or initialize(elicitation={}, sampling={}, roots={"listChanged": True}))
        yield Bridged(script, up, front, client)


def rounds(*results: dict[str, Any]) -> ModernScript:
    """A server that answers the calls by these results, and then by a complete one."""
    left = [*results]

    async def call(exchange: Exchange) -> None:
        result = left.pop(0) if left else COMPLETE
        await exchange.json(orjson.dumps(answer(exchange, result=result)))

    return ModernScript(call)


async def test_a_session_goes_on_in_a_process_that_does_not_know_the_eras(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """What the process before had found is found again by the refusal of the first request."""
    async with upstream(ModernScript(), opening=refuse) as up:
        async with adapter(up) as front, front.client() as client:
            head, _ = await client.request("POST", INITIALIZE)
        async with adapter(up) as front, front.client() as client:
            client.session = head["mcp-session-id"]
            found, body = await client.request("POST", call_body())
            assert found.status == 200 and b"done" in body, body


async def test_a_refusal_under_the_status_200_shows_the_era(road: StartRoad) -> None:
    """As servers over stdio refuse ``initialize``: the first client gets its session as all later ones do."""

    async def refusing(exchange: Exchange) -> None:
        error = {"code": -32022, "message": "Unsupported protocol version"}
        await exchange.json(orjson.dumps(answer(exchange, error=error)))

    async with road(ModernScript(), opening=refusing) as (_, front, client):
        assert front.app.servers["raw"].eras == frozenset()
        assert (await opened(client, initialize()))["serverInfo"] == {"name": "modern", "version": "7"}


# --- sessions and calls ---------------------------------------------------------------------------------------------


async def test_a_session_is_opened_by_what_the_server_says_of_itself(road: StartRoad) -> None:
    """Capabilities, instructions and name come from ``server/discover``, the version from the client."""
    async with road(ModernScript(), opening=refuse) as (up, front, client):
        result = await opened(client, initialize("2025-06-18"))
        assert result["protocolVersion"] == "2025-06-18" and result["instructions"] == "Be kind."
        assert result["serverInfo"] == {"name": "modern", "version": "7"}
        assert result["capabilities"] == {"tools": {"listChanged": True}, "extensions": {}}
        assert front.app.servers["raw"].eras == {Era.MODERN}
        assert (await client.request("POST", request("ping")))[1] == b'{"jsonrpc":"2.0","id":1,"result":{}}'
        assert (await client.request("DELETE"))[0].status == 200
        assert (await client.request("POST", request("ping")))[0].status == 404
        assert up.calls("ping") == [] == up.calls("DELETE")


async def test_a_call_says_in_itself_what_the_session_knows(road: StartRoad) -> None:
    """``_meta`` has version, client and level of log messages; headers mirror; arguments keep their bytes."""
    async with bridged(road, ModernScript()) as session:
        await session.ask("prompts/list")
        assert params(session.up.calls("prompts/list")[0])["_meta"][LEVEL_KEY] == "info"
        assert (await session.ask("logging/setLevel", {"level": "notice"}))["result"] == {}
        body = (
            b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":'
            b'{"name":"t\xc3\xa4","arguments":{"n":1.50},"_meta":{"progressToken":7}}}'
        )
        _, text = await session.client.request("POST", body)
        assert text == b'{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"done"}]}}'
        came = session.up.calls("tools/call")[0]
        assert b'"arguments":{"n":1.50}' in came.body
        meta = params(came)["_meta"]
        assert meta["progressToken"] == 7 and meta[VERSION_KEY] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientInfo"] == {"name": "old", "version": "1"}
        assert meta[LEVEL_KEY] == "notice"
        assert meta[CAPABILITIES_KEY] == {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}
        fields = {name: came.head.get(name) for name in ("mcp-protocol-version", "mcp-method", "mcp-name")}
        assert fields["mcp-protocol-version"] == "2026-07-28" and fields["mcp-method"] == "tools/call"
        assert fields["mcp-name"] == "=?base64?dMOk?=" and came.head.get("mcp-session-id") is None


async def test_arguments_are_mirrored_as_the_tools_definition_says(road: StartRoad) -> None:
    """The list is read for that, once, and again where the server says that the headers are wrong."""
    schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}
    async with bridged(road, ModernScript(tools=[{"name": "tool", "inputSchema": schema}])) as session:
        for number in (1, 2):
            await session.ask("tools/call", {"name": "tool", "arguments": {"city": "Köln"}}, number)
        came = session.up.calls("tools/call")
        assert [each.head.get("mcp-param-city") for each in came] == ["=?base64?S8O2bG4=?="] * 2
        assert len(session.up.calls("tools/list")) == 1


async def test_a_list_without_mirrored_arguments_is_not_read_again(road: StartRoad) -> None:
    """A client has read it just before; its members of the modern era are left out."""
    async with bridged(
        road, ModernScript(tools=[{"name": "tool", "inputSchema": {"type": "object"}}])
    ) as session:
        listed = await session.ask("tools/list")
        assert listed["result"] == {"tools": [{"name": "tool", "inputSchema": {"type": "object"}}]}
        await session.ask("tools/call", {"name": "tool"})
        assert len(session.up.calls("tools/list")) == 1


async def test_what_comes_before_a_result_reaches_the_stream_of_the_call(road: StartRoad) -> None:
    """Progress as it is, a request of the server not at all."""
    progress = (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}'
    )

    async def call(exchange: Exchange) -> None:
        stray = b'{"jsonrpc":"2.0","id":9,"method":"roots/list"}'
        final = orjson.dumps(answer(exchange, result=COMPLETE))
        await exchange.stream(event(progress), event(stray), event(final))

    async with bridged(road, ModernScript(call)) as session:
        _, text = await session.client.request("POST", call_body())
        assert text.count(b"data: ") == 2 and progress in text and b"roots/list" not in text


async def test_what_comes_before_a_result_may_be_more_than_an_answer(road: StartRoad) -> None:
    """It is passed on and not held, so that no limit counts it."""
    progress = (
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}'
    )

    async def call(exchange: Exchange) -> None:
        final = orjson.dumps(answer(exchange, result=COMPLETE))
        await exchange.stream(*[event(progress)] * 50, event(final))

    async with bridged(road, ModernScript(call), core={"upstream": {"max_answer_bytes": 4096}}) as session:
        _, text = await session.client.request("POST", call_body())
        assert text.count(progress) == 50 and b'"done"' in text


async def test_a_compressed_stream_is_refused(road: StartRoad) -> None:
    """What comes before its result would reach nobody, and a few bytes may stand for millions of events."""

    async def call(exchange: Exchange) -> None:
        final = orjson.dumps(answer(exchange, result=COMPLETE))
        await exchange.answer(
            200, gzip.compress(event(final)), "Content-Type: text/event-stream", "Content-Encoding: gzip"
        )

    async with bridged(road, ModernScript(call)) as session:
        _, text = await session.client.request("POST", call_body())
        assert b"compressed" in text and b'"done"' not in text


async def test_a_missing_resource_has_the_code_of_its_era(road: StartRoad) -> None:
    """-32002 through 2025-11-25; any other error stays."""
    error = {"code": -32602, "message": "Resource not found", "data": {"uri": "x:y"}}

    async def call(exchange: Exchange) -> None:
        await exchange.answer(
            400, orjson.dumps(answer(exchange, error=error)), "Content-Type: application/json"
        )

    async with bridged(road, ModernScript(call)) as session:
        assert (await session.ask("resources/read", {"uri": "x:y"}))["error"] == {**error, "code": -32002}
        assert (await session.ask("tools/call", {"name": "tool"}))["error"] == error


async def test_a_server_that_refuses_a_client_is_heard(road: StartRoad) -> None:
    """The statuses that are about credentials reach the client as they are."""
    async with bridged(road, ModernScript(answering(401, b"who?", "WWW-Authenticate: Bearer"))) as session:
        head, body = await session.client.request("POST", call_body())
        assert (head.status, body, head.get("www-authenticate")) == (401, b"who?", "Bearer")


async def test_a_refused_initialize_has_the_status_200(road: StartRoad) -> None:
    """Some clients lose the body of any other."""
    count = 0

    async def discover(exchange: Exchange) -> None:
        nonlocal count
        count += 1
        if count == 1:
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
            await exchange.json(orjson.dumps(answer(exchange, result=found)))
        else:
            await exchange.answer(
                400,
                orjson.dumps(answer(exchange, error={"code": -32021, "message": "No"})),
                "Content-Type: application/json",
            )

    async with road(ModernScript(others={"server/discover": discover}), opening=refuse) as (_, _, client):
        head, body = await client.request("POST", INITIALIZE)
        assert head.status == 200 and error_of(body) == {"code": -32021, "message": "No", "id": 0}
        assert head.get("mcp-session-id") is None


async def test_nothing_is_bridged_where_the_settings_say_so(road: StartRoad) -> None:
    """The client gets the server's own answer."""
    more = {"server": {"upstream": {"bridge": "never"}}}
    async with road(ModernScript(), opening=refuse, **more) as (up, _, client):
        head, body = await client.request("POST", INITIALIZE)
        assert head.status == 400 and error_of(body)["code"] == -32022
        assert up.calls("server/discover") == []


async def test_nothing_stands_before_a_server_of_both_eras(road: StartRoad) -> None:
    """A refusal is looked into, and the road stays as it was."""

    async def both(exchange: Exchange) -> None:
        if exchange.message.get("method") == "server/discover":
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
            await exchange.json(orjson.dumps(answer(exchange, result=found)))
        elif exchange.head.get("mcp-protocol-version") == "2026-07-28":
            await exchange.answer(
                400, orjson.dumps(answer(exchange, error={"code": -32602, "message": "No"}))
            )
        else:
            await done(exchange)

    async with road(both) as (_, front, client):
        before = front.app.servers["raw"].upstream
        assert (await client.modern_call())[0].status == 400
        assert front.app.servers["raw"].eras == {Era.LEGACY, Era.MODERN}
        assert front.app.servers["raw"].upstream is before


# --- questions --------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_by_the_next_round(road: StartRoad) -> None:
    """It stands on the call's stream; the answer and the state go back in a request with another id."""
    script = rounds(asking(form(), {"method": "roots/list"}, state="s\u00e9"))
    async with bridged(road, script) as session:
        await session.begin("call")
        first, second = await session.question(), await session.question()
        assert first["method"] == "elicitation/create" and first["params"]["message"] == "Name?"
        assert second["method"] == "roots/list" and first["id"] != second["id"]
        roots = {"roots": [{"uri": "file:///x"}]}
        assert await session.answer(second["id"], result=roots) == 202
        given = {"action": "accept", "content": {"name": "Eva"}}
        assert await session.answer(first["id"], result=given) == 202
        assert (await session.question())["result"] == {"content": COMPLETE["content"]}
        one, two = session.up.calls("tools/call")
        assert params(two)["inputResponses"] == {"q0": given, "q1": roots}
        assert params(two)["requestState"] == "s\u00e9" and params(two)["arguments"] == {"a": 1.0}
        assert one.message["id"] == "call" and two.message["id"] != "call"
        assert two.head.get("mcp-name") == "tool"


async def test_a_state_without_a_question_goes_back_at_once(road: StartRoad) -> None:
    """The client hears nothing of it; a state that the server does not send again is not sent again."""
    async with bridged(road, rounds(asking(state="1"), asking(state="2"))) as session:
        assert (await session.ask("tools/call", {"name": "tool"}))["result"]["content"] == COMPLETE["content"]
        states = [params(each).get("requestState") for each in session.up.calls("tools/call")]
        assert states == [None, "1", "2"]


async def test_a_client_of_an_earlier_version_knows_no_modes(road: StartRoad) -> None:
    """The member that says so is left out for it."""
    body = initialize("2025-06-18", elicitation={})
    async with bridged(road, rounds(asking(form())), body) as session:
        await session.begin()
        assert "mode" not in (await session.question())["params"]


async def test_a_client_that_cannot_answer_declines_a_form_and_fails_the_rest(road: StartRoad) -> None:
    """An error stands for a user who does not answer; there is none for a model that is not there."""
    sample = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
    error = {"code": -1, "message": "no model"}
    async with bridged(road, rounds(asking(form()), asking(sample))) as session:
        await session.begin()
        await session.answer((await session.question())["id"], error=error)
        await session.answer((await session.question())["id"], error=error)
        assert (await session.question())["error"] == error
        assert params(session.up.calls("tools/call")[1])["inputResponses"] == {"q0": {"action": "decline"}}


async def test_a_server_that_asks_without_end_is_stopped(road: StartRoad) -> None:
    """The error names the limit; the server was asked no more often than that."""

    async def call(exchange: Exchange) -> None:
        await exchange.json(orjson.dumps(answer(exchange, result=asking(state="more"))))

    async with bridged(road, ModernScript(call), sessions={"max_rounds": 7}) as session:
        error = (await session.ask("tools/call", {"name": "tool"}))["error"]
        assert error["code"] == -32011 and "sessions.max_rounds" in error["message"]
        assert len(session.up.calls("tools/call")) == 8


async def test_garbage_in_the_place_of_questions_ends_the_call(road: StartRoad) -> None:
    """An error says that the server's answer is none, and nothing reaches the client."""
    garbage = {"resultType": "input_required", "inputRequests": {"a": 1}}
    async with bridged(road, rounds(garbage)) as session:
        assert (await session.ask("tools/call", {"name": "tool"}))["error"]["code"] == -32011


async def test_no_answer_meets_the_question_of_another_session(road: StartRoad) -> None:
    """Not even where both sessions have calls with the same id; a foreign id is dropped."""
    async with bridged(road, rounds(asking(form()), asking(form()))) as one, one.front.client() as client:
        await opened(client, initialize(elicitation={}))
        other = Bridged(one.script, one.up, one.front, client)
        await one.begin(1)
        await other.begin(1)
        mine, theirs = await one.question(), await other.question()
        assert mine["id"] != theirs["id"]
        await other.answer(mine["id"], result={"action": "cancel"})
        await one.answer("nobody's", result={"action": "cancel"})
        await one.answer(mine["id"], result={"action": "accept", "content": {"name": "one"}})
        assert "result" in await one.question()
        await other.answer(theirs["id"], result={"action": "accept", "content": {"name": "other"}})
        assert "result" in await other.question()
        given = [params(each)["inputResponses"]["q0"]["content"] for each in one.up.calls("tools/call")[2:]]
        assert given == [{"name": "one"}, {"name": "other"}]


async def test_a_client_that_comes_back_in_the_middle_of_a_round_gets_the_result(road: StartRoad) -> None:
    """A lost connection cancels nothing in its era: the question was answered, and the result waits for it."""
    async with bridged(road, rounds(asking(form()))) as session:
        await session.begin()
        chunk = await read_chunk(session.client.reader)
        last = next(line[4:] for line in chunk.splitlines() if line.startswith(b"id: "))
        session.client.close()
        await session.answer(message_in(chunk)["id"], result={"action": "accept", "content": {}})
        async with session.front.client() as back:
            back.session = session.client.session
            await back.send("GET", last_event_id=last.decode())
            assert (await back.head()).status == 200
            assert message_in(await read_chunk(back.reader))["result"]["content"] == COMPLETE["content"]


async def test_a_cancelled_call_is_dropped_at_the_server(road: StartRoad) -> None:
    """The end of its stream is what cancels it there."""
    begun, gone = asyncio.Event(), asyncio.Event()

    async def call(exchange: Exchange) -> None:
        begun.set()
        await exchange.gone()
        gone.set()

    async with bridged(road, ModernScript(call)) as session, asyncio.timeout(20):
        await session.client.send("POST", call_body())
        await begun.wait()
        async with session.front.client() as other:
            other.session = session.client.session
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            assert (await other.request("POST", orjson.dumps(cancelled)))[0].status == 202
        await gone.wait()


# --- subscriptions ------------------------------------------------------------------------------------------------


async def test_a_get_stream_is_one_subscription(road: StartRoad) -> None:
    """It is open while the client listens, has what the client is subscribed to, and its marks are left out."""
    async with (
        bridged(road, ModernScript()) as session,
        session.front.client() as hearing,
        asyncio.timeout(20),
    ):
        hearing.session = session.client.session
        await hearing.send("GET", accept="text/event-stream")
        assert (await hearing.head()).status == 200
        await session.script.heard.wait()
        assert (await session.ask("resources/subscribe", {"uri": "x:y"}))["result"] == {}
        stream = session.script.listening[-1]
        assert params(stream)["notifications"]["resourceSubscriptions"] == ["x:y"]
        updated = notification("notifications/resources/updated", {"uri": "x:y"}, stream)
        await stream.chunk(event(updated))
        heard = message_in(await read_chunk(hearing.reader))
        assert heard["params"] == {"uri": "x:y", "_meta": {}}
        # That of the first subscription may be over already.
        session.script.left.clear()
        hearing.close()
        await session.script.left.wait()
        assert len(session.up.calls("subscriptions/listen")) == 2
