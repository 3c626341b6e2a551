"""Batches of many messages: what they cost, and what is said of each member."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
import pytest

from adapter.errors import UpstreamBroken
from adapter.relay.call.answer_stream import LOOK_LIMIT
from adapter.relay.call.passthrough import HELD_JSON
from adapter.relay.call.planned import Plans
from adapter.relay.exchange import ClientResponse as Left
from adapter.relay.notifications import Notifications
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.stages import StageTable
from adapter.rules.text.unicode import LONGEST_NAME
from adapter.rules.tools.visibility import Disabled, Policies
from adapter.upstream.port import UpstreamReply, UpstreamRequest
from tests.relay.guarding import SSE, Shop, guarded, tool
from tests.relay.relaying import Relaying, whole
from tests.relay.tooling import Acting
from tests.scripted import ScriptedAnswer, ScriptedReply

HIDDEN = Policies(disabled=Disabled.of(["hidden"]))
FEW = 100

TOOL_CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "seen"}}

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


@pytest.mark.timed
async def test_a_judged_batch_costs_what_its_members_do() -> None:
    """Half of them are refused, the others are sent and answered."""
    shop = Shop(tool("hidden"), tool("seen"))
    async with guarded(shop, "off", policies=HIDDEN) as front:
        session = await front.open("2025-03-26")

        async def take(count: int) -> None:
            answer = orjson.loads(await front.relaying.post(members(count, "hidden", "seen"), session))
            assert len(answer) == count and sum("error" in each for each in answer) == count // 2

        assert await times_as_long(take) < 8


@pytest.mark.timed
async def test_a_streamed_batch_costs_what_its_answers_do() -> None:
    """Each of many answers is an event, and each is looked up among many that are waited for."""

    def answered(request: UpstreamRequest) -> ScriptedAnswer:
        numbers = [message["id"] for message in orjson.loads(request.body)]
        events = [b'data: {"jsonrpc":"2.0","id":%d,"result":{}}\n\n' % number for number in reversed(numbers)]
        return ScriptedAnswer(headers=SSE, chunks=[*events, b": end\n\n"])

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
    relaying = Relaying(Acting(lambda _: ScriptedAnswer(headers=SSE, chunks=[b"data: " + batch + b"\n\n"])))
    answer = await relaying.post(members(3, "seen"), await relaying.open("2025-03-26"))
    told = orjson.loads(answer.split(b"\n\n")[1].removeprefix(b"data: "))
    assert (told["id"], told["error"]["code"]) == (1, -32011)
    assert answer.count(b"data: ") == 2


async def test_an_error_of_no_request_answers_all() -> None:
    """Nobody can tell whose it is, so nothing more is waited for."""
    error = b'data: {"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}\n\n'
    relaying = Relaying(Acting(lambda _: ScriptedAnswer(headers=SSE, chunks=[error])))
    assert await relaying.post(members(3, "seen"), await relaying.open("2025-03-26")) == error


@pytest.mark.parametrize("odd", [b"[1]", b'{"id":1}', b"true"], ids=["list", "object", "true"])
async def test_an_id_that_no_request_has_answers_none(odd: bytes) -> None:
    """The stream passes as it came, and the client hears of the request that got no answer."""
    event = b'data: {"jsonrpc":"2.0","id":%s,"result":{}}\n\n' % odd
    relaying = Relaying(Acting(lambda _: ScriptedAnswer(headers=SSE, chunks=[event])))
    answer = await relaying.post(orjson.dumps(TOOL_CALL), await relaying.open())
    passed, error = answer.removeprefix(event), orjson.loads(answer.split(b"data: ")[2])
    assert passed != answer and (error["id"], error["error"]["code"]) == (7, -32011)


async def test_a_refusal_shows_a_name_in_characters_that_there_are() -> None:
    """And not at any length."""
    shop = Shop(tool("hidden"), tool("seen"))
    async with guarded(shop, "off", policies=HIDDEN) as front:
        body = members(2, "hidden\u200b", "hidden" + " " * 5000)
        answer = await front.relaying.post(body, await front.open("2025-03-26"))
        assert b"hidden\\\\u200b on its own" in answer and len(answer) < 1000


# --- with members that are refused ----------------------------------------------------------------------------

LONG = "x" * (HELD_JSON + 1)


def said(number: int, text: str = "done") -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "result": {"text": text}})


def in_pieces(body: bytes) -> list[bytes | Exception | asyncio.Event]:
    return [body[start : start + 50_000] for start in range(0, len(body), 50_000)]


@dataclass
class Batching(Shop):
    """Answers the batch that is left of another as told; ``hidden`` is refused."""

    answer: ScriptedAnswer

    def __post_init__(self) -> None:
        super().__init__(tool("hidden"), tool("seen"))

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        if request.body.startswith(b"["):
            self.requests.append(request)
            return ScriptedReply(self.answer)
        return await super().send(request, read_timeout)


async def told(answer: ScriptedAnswer, *names: str) -> Left:
    """What leaves for a batch of such calls, with its body whole."""
    async with guarded(Batching(answer), "off", policies=HIDDEN) as front:
        session = await front.open("2025-03-26")
        left = await front.relaying.relay.handle(front.relaying.ask(members(len(names), *names), session))
        left.body = await whole(left)
        return left


def ids_of(left: Left) -> list[object]:
    """The ids that were answered, those of errors in brackets."""
    assert isinstance(left.body, bytes)
    return [[each["id"]] if "error" in each else each["id"] for each in orjson.loads(left.body)]


@pytest.mark.parametrize(
    "body",
    [
        b"[" + said(1) + b", " + said(2) + b"]",
        b"\n[ " + said(1, LONG) + b", " + said(2, LONG) + b" ]",
        b"[" + said(2, LONG) + b"]",
    ],
    ids=["small", "large", "large, one of two"],
)
async def test_refusals_join_an_array_of_any_size(body: bytes) -> None:
    """What is too long to be held passes as it comes, behind them."""
    left = await told(ScriptedAnswer(chunks=in_pieces(body)), "hidden", "seen", "seen")
    assert ids_of(left) == [[0], *(each["id"] for each in orjson.loads(body))]
    assert (left.status, left.length) == (200, None)


@pytest.mark.parametrize("text", ["done", LONG], ids=["small", "large"])
async def test_a_response_without_an_array_is_put_into_one(text: str) -> None:
    """Some servers answer a batch of one so."""
    assert ids_of(await told(ScriptedAnswer(chunks=in_pieces(said(1, text))), "hidden", "seen")) == [[0], 1]


@pytest.mark.parametrize(
    ("answer", "ids"),
    [
        (ScriptedAnswer(500, chunks=[b"no"]), [[0], [1], [2]]),
        (ScriptedAnswer(500, chunks=in_pieces(LONG.encode())), [[0], [1], [2]]),
        (ScriptedAnswer(202), [[0], [1], [2]]),
        (ScriptedAnswer(chunks=[b"{}"]), [[0], [1], [2]]),
        (ScriptedAnswer(chunks=[b"[1,"]), [[0], [1], [2]]),
        (ScriptedAnswer(chunks=in_pieces(b'"' + LONG.encode() + b'"')), [[0], [1], [2]]),
        (ScriptedAnswer(headers=(("Content-Encoding", "gzip"),), chunks=[b"x"]), [[0], [1], [2]]),
        (ScriptedAnswer(headers=(*SSE, ("Content-Encoding", "br")), chunks=[b"x", b"y"]), [[0], [1], [2]]),
        (ScriptedAnswer(chunks=[said(2)]), [[0], 2, [1]]),
        (ScriptedAnswer(chunks=[b"[" + said(2) + b"]"]), [[0], 2, [1]]),
        (ScriptedAnswer(chunks=[b'{"jsonrpc":"2.0","error":{}}']), None),
    ],
    ids=str,
)
async def test_each_member_is_answered(answer: ScriptedAnswer, ids: list[object] | None) -> None:
    """With an error where the upstream does not; one of its own that names no request is all that is said."""
    left = await told(answer, "hidden", "seen", "seen")
    assert left.status == 200 and ("Content-Type", "application/json") in left.headers
    assert isinstance(left.body, bytes)
    if ids is None:
        assert [each.get("id") for each in orjson.loads(left.body)] == [0, None]
    else:
        assert ids_of(left) == ids


async def test_a_status_that_clients_act_on_is_theirs() -> None:
    """They authorize themselves, or wait, and send the whole batch again."""
    fields = (("WWW-Authenticate", "Bearer"),)
    left = await told(ScriptedAnswer(401, fields, [b"who?"]), "hidden", "seen")
    assert (left.status, left.body, left.headers) == (401, b"who?", [*fields])


async def test_a_large_answer_that_breaks_off_is_broken_off() -> None:
    """As any answer of which a part has left."""
    body = [*in_pieces(b"[" + said(1, LONG))[:2], UpstreamBroken("gone")]
    with pytest.raises(UpstreamBroken, match="gone"):
        await told(ScriptedAnswer(chunks=body), "hidden", "seen")


async def test_a_member_that_no_stage_can_be_found_for_is_refused_alone() -> None:
    """Such as a call of a name that is too long: the others are answered as ever."""
    plans = Plans(lambda _: None, ParamHeaders(), Notifications(), None)
    upstream = Acting(lambda _: ScriptedAnswer(chunks=[b"[" + said(1) + b"]"]))
    relaying = Relaying(upstream, StageTable(plans=plans))
    body = members(2, "x" * (LONGEST_NAME + 1), "seen")
    assert [
        [each["id"], "error" in each]
        for each in orjson.loads(await relaying.post(body, await relaying.open("2025-03-26")))
    ] == [[0, True], [1, False]]


BIG = b'data: {"jsonrpc":"2.0","id":0,"result":"' + b"x" * LOOK_LIMIT + b'"}\n\n'


@pytest.mark.parametrize(
    ("events", "failed"),
    [
        ([BIG], [0, 1, 2]),
        ([b"data: " + said(1) + b"\n\n", BIG], [0, 2]),
        ([BIG, b"data: " + said(1) + b"\n\n", b"data: " + said(2) + b"\n\n"], []),
        ([BIG, BIG, b"data: " + said(1) + b"\n\n"], []),
        ([BIG, BIG, BIG], []),
    ],
    ids=["one", "the second", "the first", "two", "three"],
)
async def test_an_event_that_is_too_large_to_look_into_answers_one_member(
    events: list[bytes], failed: list[int]
) -> None:
    """Nobody knows which, so that a stream which breaks off ends with an error for each that may still wait."""
    relaying = Relaying(
        Acting(lambda _: ScriptedAnswer(headers=SSE, chunks=[*events, UpstreamBroken("gone")]))
    )
    answer = await relaying.post(members(3, "seen"), await relaying.open("2025-03-26"))
    last = [each.removeprefix(b"data: ") for each in answer.split(b"\n\n") if b"-32011" in each]
    assert [orjson.loads(each)["id"] for each in last] == failed
