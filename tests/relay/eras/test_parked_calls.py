"""Questions of a legacy server in the middle of a call of a modern client: asked, answered once, declined, lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import orjson
import pytest

from adapter.errors import CallLost, RequestStateRefused, UpstreamBroken
from adapter.relay.eras.parked_calls import CALL_BYTES, ParkedCalls
from adapter.relay.files.rounds import RoundLimits
from adapter.state.sqlite import MemoryStore
from adapter.wire.sse import encode
from tests.relay.eras.bridging import (
    ANONYMOUS,
    PATIENCE,
    AskingServer,
    Bridging,
    answer_to,
    bridging,
    calling,
    question,
)
from tests.relay.relaying import Clock
from tests.relay.sharing import Message, Stream
from tests.waiting import until

YES: Message = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture
def upstream() -> AskingServer:
    return AskingServer()


@pytest.fixture
def process(upstream: AskingServer) -> Bridging:
    return bridging(upstream)


async def parked(process: Bridging, server: AskingServer, **more: object) -> tuple[Message, Message, Stream]:
    """The answer that asks, and the call at the server with its stream."""
    before = len(server.calls)
    async with calling(process, **more) as task:
        message, stream = await server.next_call(before + 1)
        stream.say(question("q1", message="Who?"))
        return await task, message, stream


async def test_question_is_asked_and_answered(process: Bridging, upstream: AskingServer) -> None:
    """The call goes on where it was, and its result comes under the id of the second request."""
    asked, message, stream = await parked(process, upstream)
    assert asked["result"]["resultType"] == "input_required"
    [(key, request)] = asked["result"]["inputRequests"].items()
    assert request == {"method": "elicitation/create", "params": {"message": "Who?"}}
    assert len(process.parked) == 1
    resumed = asyncio.create_task(process.resume(asked, {key: YES}))
    [response] = await upstream.until_said()
    assert (response["id"], response["result"]) == ("q1", YES)
    stream.say(answer_to(message, "Ada"))
    found = await resumed
    assert found["id"] == 2 and found["result"]["content"][0]["text"] == "Ada"
    assert found["result"]["resultType"] == "complete" and len(process.parked) == 0
    assert len(upstream.calls) == 1


@pytest.mark.parametrize("principal", ["ada", ANONYMOUS])
async def test_several_questions_at_once_and_in_a_row(upstream: AskingServer, principal: str) -> None:
    """Those that are there go together; those that the client left out, and later ones, are asked in another round."""
    process = bridging(upstream)
    async with calling(process, principal=principal) as task:
        message, stream = await upstream.next_call()
        both = question(1, "roots/list"), question(2, "sampling/createMessage", messages=[], maxTokens=1)
        stream.write(b"".join(encode(orjson.dumps(each)) for each in both))
        asked = await task
        first = asked["result"]["inputRequests"]
        assert [each["method"] for each in first.values()] == ["roots/list", "sampling/createMessage"]
        one, two = first
        later = await process.resume(asked, {two: {"role": "assistant"}}, principal=principal)
        assert list(later["result"]["inputRequests"]) == [one]
        rest = asyncio.create_task(process.resume(later, {one: {"roots": []}}, principal=principal))
        await upstream.until_said(2)
        stream.say(question(3, message="More?"))
        third = await rest
        [key] = third["result"]["inputRequests"]
        last = asyncio.create_task(process.resume(third, {key: YES}, principal=principal))
        await upstream.until_said(3)
        stream.say(answer_to(message))
        assert (await last)["result"]["resultType"] == "complete"
    assert [each["id"] for each in upstream.responses] == [2, 1, 3]


async def test_what_was_not_declared_is_declined(process: Bridging, upstream: AskingServer) -> None:
    """The server is answered at once in the client's name, and a ping as one."""
    async with calling(process, capabilities={"elicitation": {}}) as task:
        message, stream = await upstream.next_call()
        stream.say(question(1, mode="url", url="https://a.example", message="Open"))
        stream.say(question(2, "sampling/createMessage", messages=[]))
        stream.say(question(3, "roots/list"))
        stream.say(question(4, "ping"))
        stream.say(question(5, "tasks/get"))
        said = await upstream.until_said(5)
        stream.say(answer_to(message))
        await task
    assert said[0]["result"] == {"action": "decline"} and said[3]["result"] == {}
    assert [each["error"]["code"] for each in said if "error" in each] == [-1, -32601, -32601]


async def test_foreign_and_changed_states_are_refused(process: Bridging, upstream: AskingServer) -> None:
    """Neither another person nor other arguments, another tool or a changed text go on with a call."""
    asked, message, stream = await parked(process, upstream)
    [key] = asked["result"]["inputRequests"]
    state = asked["result"]["requestState"]
    given = {key: YES}
    changed = {"result": {"requestState": state[:-1] + ("0" if state[-1] != "0" else "1")}}
    for attempt in (
        process.resume(asked, given, principal="bea"),
        process.resume(asked, given, arguments={"a": 1}),
        process.resume(asked, given, name="y"),
        process.resume(changed, given),
        process.resume({"result": {"requestState": "made up"}}, given),
    ):
        with pytest.raises(RequestStateRefused):
            await attempt
    assert (await process.resume(asked, {key: 3}))["error"]["code"] == -32602
    assert upstream.responses == []
    resumed = asyncio.create_task(process.resume(asked, given))
    await upstream.until_said()
    stream.say(answer_to(message))
    assert "result" in await resumed


async def test_state_counts_once(process: Bridging, upstream: AskingServer) -> None:
    """The second request with a state is refused, while the call goes on, when it asks again, and when it is over."""
    asked, message, stream = await parked(process, upstream)
    [key] = asked["result"]["inputRequests"]
    resumed = asyncio.create_task(process.resume(asked, {key: YES}))
    await upstream.until_said()
    with pytest.raises(RequestStateRefused):
        await process.resume(asked, {key: YES})
    stream.say(question("q2", message="And?"))
    again = await resumed
    with pytest.raises(RequestStateRefused):
        await process.resume(asked, {key: YES})
    [key] = again["result"]["inputRequests"]
    last = asyncio.create_task(process.resume(again, {key: YES}))
    await upstream.until_said(2)
    stream.say(answer_to(message))
    assert "result" in await last
    with pytest.raises(RequestStateRefused):
        await process.resume(again, {key: YES})
    assert len(upstream.responses) == 2


async def test_lost_call_may_have_run(upstream: AskingServer) -> None:
    """A call that waited too long, made room for others, or whose process died is -32011 and names its place."""
    clock, store = Clock(), MemoryStore()
    process = bridging(upstream, store, owner="one", limits=RoundLimits(ttl=60, per_scope=1), clock=clock)
    first, _, _ = await parked(process, upstream)
    second, _, stream = await parked(process, upstream)
    with pytest.raises(CallLost) as made_room:
        await process.resume(first, {})
    assert made_room.value.data is not None and made_room.value.data["replica"] == "one"
    other = bridging(upstream, store, owner="two", clock=clock)
    with pytest.raises(CallLost):
        await other.resume(second, {})
    clock.now += 61
    with pytest.raises(CallLost, match="waited too long"):
        await process.resume(second, {})
    assert not stream.aborted.is_set() or len(process.parked) == 0


async def test_call_that_made_room_is_cancelled_at_the_server(upstream: AskingServer) -> None:
    """The server is told, its stream is dropped, and nothing of it is left."""
    process = bridging(upstream, limits=RoundLimits(per_scope=1))
    _, _, stream = await parked(process, upstream)
    await parked(process, upstream)
    await asyncio.wait_for(stream.aborted.wait(), PATIENCE)
    await until(lambda: "notifications/cancelled" in upstream.methods())
    assert len(process.parked) == 1


async def test_server_that_gives_up_ends_the_call(process: Bridging, upstream: AskingServer) -> None:
    """What it says meanwhile is what the client gets when it comes back; its answer reaches nobody."""
    asked, message, stream = await parked(process, upstream, meta={"progressToken": "p"})
    stream.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "p"}})
    stream.say({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "too late"}})
    await asyncio.wait_for(stream.aborted.wait(), PATIENCE)
    found = await process.resume(asked, {}, meta={"progressToken": "p"})
    assert found["error"]["message"] == "too late" and found["id"] == 2
    assert upstream.responses == []


async def test_stream_that_breaks_while_the_call_waits(process: Bridging, upstream: AskingServer) -> None:
    """The client learns of it when it comes back, and the call is not sent again."""
    asked, _, stream = await parked(process, upstream)
    stream.end()
    await asyncio.wait_for(stream.aborted.wait(), PATIENCE)
    with pytest.raises(UpstreamBroken):
        await process.resume(asked, {})
    assert len(upstream.calls) == 1 and len(process.parked) == 0


@dataclass(eq=False)
class Waiting:
    """A call that waits, and counts how often it was given up."""

    id: str
    principal: str
    size: int = 0
    bound_to: str = ""
    round: int = 1
    given_up: int = 0

    def give_up(self) -> None:
        self.given_up += 1


def test_ten_thousand_calls_wait_and_no_more() -> None:
    """The one that waited longest makes room, whosever it is, and nothing is counted for it any more."""
    parked = ParkedCalls(MemoryStore(), RoundLimits(), Clock())
    calls = [Waiting(f"{number:032x}", f"p{number % 500}") for number in range(10_003)]
    for call in calls:
        parked.park(call)
    assert len(parked) == 10_000 and [call.given_up for call in calls[:4]] == [1, 1, 1, 0]
    assert parked.size == 10_000 * CALL_BYTES
    for call in calls:
        parked.drop(call)
    assert len(parked) == parked.size == 0


def test_waiting_calls_hold_so_many_bytes() -> None:
    """Of one person, and of all together; a call that grows beyond that is given up itself."""
    limits = RoundLimits()
    parked = ParkedCalls(MemoryStore(), limits, Clock())
    most = limits.total_bytes // limits.scope_bytes
    calls = [
        Waiting(f"{number:032x}", f"p{number}", limits.scope_bytes - CALL_BYTES) for number in range(most + 1)
    ]
    for call in calls:
        parked.park(call)
    assert [call.given_up for call in calls] == [1] + most * [0] and parked.size <= limits.total_bytes
    mine = Waiting("f" * 32, "p1", CALL_BYTES)
    parked.park(mine)
    assert calls[1].given_up == 1 and mine.given_up == 0
    parked.grow(mine, limits.scope_bytes)
    assert mine.given_up == 1 and parked.size <= limits.total_bytes


async def test_server_that_asks_without_end_holds_one_call(process: Bridging, upstream: AskingServer) -> None:
    """Each question takes an answer of the client, and nothing is left of those before."""
    asked, message, stream = await parked(process, upstream)
    size = process.parked.size
    for count in range(1, 40):
        [key] = asked["result"]["inputRequests"]
        resumed = asyncio.create_task(process.resume(asked, {key: YES}))
        await upstream.until_said(count)
        stream.say(question("q1", message="Who?"))
        asked = await resumed
    assert len(process.parked) == 1 and process.parked.size == size
    with pytest.raises(RequestStateRefused):
        await process.resume({"result": {"requestState": asked["result"]["requestState"]}}, {}, name="y")
    stream.say(answer_to(message))
