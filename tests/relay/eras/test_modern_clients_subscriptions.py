"""Subscriptions of modern clients at a legacy server, and what it says outside of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from adapter.relay.files.rounds import RoundLimits
from adapter.relay.replies import events_of
from adapter.upstream.port import UpstreamReply, UpstreamRequest, WholeReply
from adapter.wire.sse import SseReader
from tests.relay.eras.bridging import (
    ANONYMOUS,
    PATIENCE,
    PREFIX,
    AskingServer,
    Bridging,
    Processes,
    answer_to,
    bridging,
    calling,
    messages,
    modern,
    question,
)
from tests.relay.sharing import Message
from tests.waiting import until

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
ALL = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
}


@pytest.fixture
def upstream() -> AskingServer:
    server = AskingServer()
    server.result["capabilities"] = ALL
    return server


@pytest.fixture
def process(upstream: AskingServer) -> Bridging:
    return bridging(upstream)


class Listening:
    """The stream of a subscription."""

    def __init__(self, reply: UpstreamReply) -> None:
        self.reply = reply
        self._events = events_of(reply, SseReader(1 << 20), PATIENCE)

    async def next(self) -> Message:
        message: Message = orjson.loads((await anext(self._events)).data or b"")
        return message


@asynccontextmanager
async def listening(
    process: Bridging, asked: Message, principal: str = "ada", number: int | str = "s"
) -> AsyncIterator[Listening]:
    request = modern("subscriptions/listen", {"notifications": asked}, number=number, principal=principal)
    reply = await process.clients.send(request, None)
    try:
        yield Listening(reply)
    finally:
        reply.abort()


@pytest.mark.parametrize("principal", ["ada", ANONYMOUS])
async def test_subscription_is_acknowledged_and_filtered(upstream: AskingServer, principal: str) -> None:
    """It begins with what the server can tell, and tells only what was asked for, with the subscription's id."""
    process = bridging(upstream)
    asked = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": False}
    async with listening(process, asked, principal) as client:
        first = await client.next()
        assert first == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {
                "notifications": {"toolsListChanged": True},
                "_meta": {PREFIX + "subscriptionId": "s"},
            },
        }
        stream = upstream.streams[0]
        stream.say({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
        stream.say(CHANGED)
        assert await client.next() == CHANGED | {"params": {"_meta": {PREFIX + "subscriptionId": "s"}}}
        stream.end()
        last = await client.next()
        assert last["id"] == "s" and last["result"]["resultType"] == "complete"


async def test_resource_is_subscribed_once_for_all(process: Bridging, upstream: AskingServer) -> None:
    """Two clients of a person want the same resource: the server is asked once, and told when the last has gone."""
    asked = {"resourceSubscriptions": ["file:///a", "file:///a"]}
    async with listening(process, asked) as one:
        await one.next()
        async with listening(process, asked, number="t") as two:
            await two.next()
            update = {"method": "notifications/resources/updated", "params": {"uri": "file:///a/b"}}
            other = {"method": "notifications/resources/updated", "params": {"uri": "file:///b"}}
            upstream.streams[0].say({"jsonrpc": "2.0", **other})
            upstream.streams[0].say({"jsonrpc": "2.0", **update})
            for client in (one, two):
                assert (await client.next())["params"]["uri"] == "file:///a/b"
    await until(lambda: len(upstream.told) >= 2, PATIENCE)
    about = {"uri": "file:///a"}
    assert upstream.told == [("resources/subscribe", about), ("resources/unsubscribe", about)]


async def declines(upstream: AskingServer, number: str) -> None:
    """The server asks outside of calls, and nobody is asked."""
    before = len(upstream.responses)
    upstream.streams[0].say(question(number, message="Who?"))
    said = (await upstream.until_said(before + 1))[before]
    assert (said["id"], said["result"]) == (number, {"action": "decline"})


async def test_question_outside_of_calls_belongs_to_the_only_one(
    process: Bridging, upstream: AskingServer
) -> None:
    """With one call under way it is asked there; with two, or none, it is declined."""
    async with calling(process) as one:
        message, stream = await upstream.next_call()
        async with calling(process):
            await upstream.next_call(2)
            await declines(upstream, "f")
        # The other one has gone: its client did not wait.
        upstream.streams[0].say(question("g", message="Who?"))
        asked = await one
        [key] = asked["result"]["inputRequests"]
        resumed = asyncio.create_task(process.resume(asked, {key: {"action": "cancel"}}))
        said = await upstream.until_said(2)
        assert (said[1]["id"], said[1]["result"]) == ("g", {"action": "cancel"})
        stream.say(answer_to(message))
        await resumed
    await declines(upstream, "i")


@pytest.mark.parametrize("one_channel", [False, True])
async def test_parked_call_is_not_the_one_under_way(upstream: AskingServer, one_channel: bool) -> None:
    """What the server asks while others wait for their clients is about the call that it works on."""
    process = bridging(upstream, one_channel=one_channel)
    async with calling(process) as first:
        message, stream = await upstream.next_call()
        stream.say(answer_to(message))
        await first
    async with calling(process) as second:
        await upstream.next_call(2)
        upstream.streams[0].say(question("b", message="Who?"))
        left = await second
        async with calling(process) as third:
            message, stream = await upstream.next_call(3)
            upstream.streams[0].say(question("c", message="Who?"))
            upstream.streams[0].say(question("d", message="And?"))
            asked = await third
        assert len(left["result"]["inputRequests"]) == 1 and len(asked["result"]["inputRequests"]) == 2
        # Two wait and none is worked on.
        await declines(upstream, "e")
        given = {key: {"action": "accept", "content": {}} for key in asked["result"]["inputRequests"]}
        resumed = asyncio.create_task(process.resume(asked, given))
        await upstream.until_said(3)
        # It is worked on again.
        upstream.streams[0].say(question("f", message="Sure?"))
        again = await resumed
        assert len(again["result"]["inputRequests"]) == 1
        stream.say(answer_to(message))


async def test_abandoned_call_is_ended_and_counts_no_more(upstream: AskingServer) -> None:
    """Above the limit the server is told that nobody waits for the oldest, and a later question finds the other."""
    process = bridging(upstream, one_channel=True, limits=RoundLimits(per_scope=1))
    async with calling(process) as first:
        await upstream.next_call()
        upstream.streams[0].say(question("a", message="Who?"))
        await first
    async with calling(process) as second:
        _, stream = await upstream.next_call(2)
        upstream.streams[0].say(question("b", message="Who?"))
        asked = await second
    await until(lambda: "notifications/cancelled" in upstream.methods(), PATIENCE)
    # One waits, so what is asked now is its server's next question.
    upstream.streams[0].say(question("c", message="Where?"))
    resumed = await process.resume(asked, {key: {} for key in asked["result"]["inputRequests"]})
    assert len(resumed["result"]["inputRequests"]) == 1
    assert not stream.aborted.is_set()


async def test_call_that_nobody_came_back_to_is_ended(upstream: AskingServer) -> None:
    """When its time is over the server is told so, and no question is taken for one of it."""
    process = bridging(upstream, one_channel=True, limits=RoundLimits(ttl=0.1))
    async with calling(process) as task:
        _, stream = await upstream.next_call()
        upstream.streams[0].say(question("a", message="Who?"))
        await task
    await asyncio.wait_for(stream.aborted.wait(), PATIENCE)
    await declines(upstream, "b")
    assert "notifications/cancelled" in upstream.methods() and len(process.parked) == 0


async def test_log_is_told_where_it_was_asked_for(process: Bridging, upstream: AskingServer) -> None:
    """The session has the most detailed level that anybody wanted; each call gets its own, wherever it was said."""
    request = modern("tools/call", {"name": "x"}, meta={PREFIX + "logLevel": "warning", "progressToken": 5})
    replying = asyncio.create_task(process.send(request))
    message, stream = await upstream.next_call()
    assert upstream.told == [("logging/setLevel", {"level": "warning"})]
    for severity in ("info", "error"):
        said = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": severity, "data": 1}}
        stream.say(said)
        upstream.streams[0].say(said)
    token = message["params"]["_meta"]["progressToken"]
    stream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token}})
    reply = await replying
    client = Listening(reply)
    found = [await client.next() for _ in range(3)]
    assert [each["params"].get("level") for each in found].count("error") == 2
    assert found[-1]["params"] == {"progressToken": 5} or found[1]["params"] == {"progressToken": 5}
    stream.say(answer_to(message))
    assert (await client.next())["id"] == 1


async def test_each_round_of_a_call_has_a_level_of_its_own(process: Bridging, upstream: AskingServer) -> None:
    """A client that comes back wanting more gets it from then on."""
    async with calling(process) as task:
        message, stream = await upstream.next_call()
        stream.say(question("q", message="Who?"))
        asked = await task
    assert upstream.told == []
    [key] = asked["result"]["inputRequests"]
    params = {"name": "x", "requestState": asked["result"]["requestState"]}
    params |= {"arguments": {}, "inputResponses": {key: {"action": "accept"}}}
    request = modern("tools/call", params, number=2, meta={PREFIX + "logLevel": "info"})
    replying = asyncio.create_task(process.send(request))
    await upstream.until_said()
    assert upstream.told == [("logging/setLevel", {"level": "info"})]
    for severity in ("debug", "info"):
        said = {"level": severity, "data": 1}
        stream.say({"jsonrpc": "2.0", "method": "notifications/message", "params": said})
    stream.say(answer_to(message))
    told = await messages(await replying)
    assert [each["params"]["level"] for each in told[:-1]] == ["info"] and told[-1]["id"] == 2


async def test_log_of_one_channel_comes_before_the_answer(upstream: AskingServer) -> None:
    """What the server wrote before its answer, on the session's stream, is told before the call ends."""
    process = bridging(upstream, one_channel=True)
    request = modern("tools/call", {"name": "x"}, meta={PREFIX + "logLevel": "info"})
    replying = asyncio.create_task(process.send(request))
    message, stream = await upstream.next_call()
    for number in range(3):
        params = {"level": "info", "data": number}
        upstream.streams[0].say({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    stream.say(answer_to(message))
    said = await messages(await replying)
    assert [each["params"]["data"] for each in said[:-1]] == [0, 1, 2] and said[-1]["id"] == 1


class OneStream(AskingServer):
    """Has one stream of its own in a session, and is busy for another."""

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        if request.method == "GET" and any(not each.aborted.is_set() for each in self.streams):
            return WholeReply(409, [], b"")
        return await super().send(request, read_timeout)


async def test_processes_subscribe_where_the_server_is_heard() -> None:
    """Each has its clients' subscriptions there, and hears the server itself when that process has gone."""
    processes = Processes(OneStream())
    processes.upstream.result["capabilities"] = ALL
    one, two = processes.by_name.values()
    asked = {"toolsListChanged": True}
    async with listening(one, asked) as first, listening(two, asked) as second:
        for each in (first, second):
            assert (await each.next())["params"]["notifications"] == asked
        processes.upstream.streams[0].say(CHANGED)
        for each in (first, second):
            assert (await each.next())["method"] == CHANGED["method"]
    assert processes.forwarded == ["one"] and processes.upstream.opened == 1
    await one.clients.close()
    del processes.by_name["one"]
    async with listening(two, asked) as alone:
        assert (await alone.next())["params"]["notifications"] == asked
        processes.upstream.streams[-1].say(CHANGED)
        assert (await alone.next())["method"] == CHANGED["method"]
