"""Batches of many messages: what they cost, and what is said of each member."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable

import orjson

from adapter.rules.policies import Disabled, Policies
from adapter.upstream.port import UpstreamRequest
from adapter.upstream.scripted import Answer
from tests.relay.guarding import SSE, Shop, guarded, tool
from tests.relay.relaying import Relaying
from tests.relay.tooling import Acting

HIDDEN = Policies(disabled=Disabled.of(["hidden"]))
FEW = 100

Take = Callable[[int], Awaitable[object]]


def members(count: int, *names: str) -> bytes:
    """Calls of these tools in turn."""
    calls = (
        {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": {"name": names[number % len(names)]},
        }
        for number in range(count)
    )
    return orjson.dumps(list(calls))


async def times_as_long(take: Take) -> float:
    """How much longer four times as many take."""
    taken = []
    for count in (FEW, 4 * FEW):
        times = []
        gc.disable()
        for _ in range(3):
            began = time.thread_time()
            await take(count)
            times.append(time.thread_time() - began)
        gc.enable()
        taken.append(min(times))
    return taken[1] / taken[0]


async def test_a_judged_batch_costs_what_its_members_do() -> None:
    """Half of them are refused, the others are sent and answered."""
    shop = Shop(tool("hidden"), tool("seen"))
    async with guarded(shop, "off", policies=HIDDEN) as front:
        session = await front.open("2025-03-26")

        async def take(count: int) -> None:
            answer = orjson.loads(await front.relaying.post(members(count, "hidden", "seen"), session))
            assert len(answer) == count and sum("error" in each for each in answer) == count // 2

        assert await times_as_long(take) < 8


async def test_a_streamed_batch_costs_what_its_answers_do() -> None:
    """Each of many answers is an event, and each is looked up among many that are waited for."""

    def answered(request: UpstreamRequest) -> Answer:
        numbers = [message["id"] for message in orjson.loads(request.body)]
        events = [b'data: {"jsonrpc":"2.0","id":%d,"result":{}}\n\n' % number for number in reversed(numbers)]
        return Answer(headers=SSE, chunks=[*events, b": end\n\n"])

    relaying = Relaying(Acting(answered))
    session = await relaying.open("2025-03-26")

    async def take(count: int) -> None:
        answer = await relaying.post(members(count, "seen"), session)
        assert answer.count(b'"result"') == count and b'"error"' not in answer

    assert await times_as_long(take) < 8


async def test_an_event_of_many_answers_is_read_once() -> None:
    """A batch of responses in one event answers each request it names, in any order; others are waited for."""
    batch = (
        b'[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":0.0,"error":{}},'
        b'{"jsonrpc":"2.0","method":"x"}]'
    )
    relaying = Relaying(Acting(lambda _: Answer(headers=SSE, chunks=[b"data: " + batch + b"\n\n"])))
    answer = await relaying.post(members(3, "seen"), await relaying.open("2025-03-26"))
    told = orjson.loads(answer.split(b"\n\n")[1].removeprefix(b"data: "))
    assert (told["id"], told["error"]["code"]) == (1, -32011)
    assert answer.count(b"data: ") == 2


async def test_an_error_of_no_request_answers_all() -> None:
    """Nobody can tell whose it is, so nothing more is waited for."""
    error = b'data: {"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}\n\n'
    relaying = Relaying(Acting(lambda _: Answer(headers=SSE, chunks=[error])))
    assert await relaying.post(members(3, "seen"), await relaying.open("2025-03-26")) == error


async def test_a_refusal_shows_a_name_in_characters_that_there_are() -> None:
    """And not at any length."""
    shop = Shop(tool("hidden"), tool("seen"))
    async with guarded(shop, "off", policies=HIDDEN) as front:
        body = members(2, "hidden\u200b", "hidden" + " " * 5000)
        answer = await front.relaying.post(body, await front.open("2025-03-26"))
        assert b"hidden\\\\u200b on its own" in answer and len(answer) < 1000
