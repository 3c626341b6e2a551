"""Plans around the tools of an upstream: what their stages see, what leaves as it came, and how a walk ends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import orjson
import pytest

from adapter.errors import ToolUnknown, UpstreamBroken
from adapter.pipeline.call import Context, Forward, PlannedCall
from adapter.pipeline.failures import ErrorStyle, Outcome
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import Step, ToolPlan
from adapter.relay.call.planned import NO_TASK, RESTARTED, Plans
from adapter.relay.notifications import Notifications
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.stages import StageTable
from adapter.rules.results.outcomes import text_block
from adapter.state.sqlite import MemoryStore
from tests.relay.relaying import Relaying, pieces
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream

ASKED = b'{ "id":1 , "jsonrpc":"2.0","method":"tools/call",\n"params":{"arguments":{"x":1.0},"name":"save"}}'
CAME = b'{"jsonrpc":"2.0", "result":{"content":[{"type":"text","text":"raw"}], "big":12345678901234567890},"id":1 }'
SSE = (("Content-Type", "text/event-stream"),)
POST = Expect("POST", ASKED)


@dataclass
class Watching:
    """A stage that notes what it sees and passes it on, or does what it is told."""

    before: Callable[[PlannedCall], None] = lambda _: None
    after: Callable[[Outcome], Outcome] = lambda outcome: outcome
    seen: list[object] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        self.seen.append(dict(call.arguments))
        self.before(call)
        try:
            outcome = await forward(call)
        finally:
            self.ended.set()
        self.seen.append(outcome.payload)
        return self.after(outcome)


def planned(
    upstream: ScriptedUpstream, stage: Watching, *, reshapes: bool = False, errors: ErrorStyle | None = None
) -> Relaying:
    plan = ToolPlan(
        "save",
        "proxied",
        [Step(Slot.MIDDLEWARE, "", stage, "after" if reshapes else "before")],
        errors or ErrorStyle(),
    )
    plans = Plans(lambda tool: plan if tool == "save" else None, ParamHeaders(), Notifications(), 60)
    return Relaying(upstream, StageTable(plans=plans), MemoryStore())


def answering(came: bytes = CAME, asked: bytes = ASKED) -> ScriptedUpstream:
    return ScriptedUpstream([(Expect("POST", asked), ScriptedAnswer(chunks=[came]))])


async def test_untouched_calls_keep_their_bytes() -> None:
    """A stage that changes nothing sees arguments and data, and request and answer pass byte for byte."""
    stage = Watching()
    relaying = planned(answering(), stage)
    assert await relaying.post(ASKED, await relaying.open()) == CAME
    assert stage.seen == [{"x": 1.0}, [{"type": "text", "text": "raw"}]]


@pytest.mark.parametrize("answer", [CAME, b"no JSON", b""])
async def test_a_tool_with_an_empty_plan_is_piped(answer: bytes) -> None:
    """Where no stage has anything to do, request and answer pass whatever they are."""
    plan = ToolPlan("save", "proxied", [], ErrorStyle("jsonrpc"))
    plans = Plans(lambda _: plan, ParamHeaders(), Notifications(), 60)
    asked = ASKED.replace(b'{"x":1.0}', b'{"x":1.0,"x":3}')
    relaying = Relaying(answering(answer, asked), StageTable(plans=plans), MemoryStore())
    assert await relaying.post(asked, await relaying.open()) == answer


async def test_a_call_leaves_no_cycle_behind() -> None:
    """What a call held, its message among it, is free when it ends, and not when the collector comes by."""
    contexts: list[weakref.ref[Context]] = []
    stage = Watching(before=lambda call: contexts.append(weakref.ref(call.context)))
    relaying = planned(answering(), stage)
    session = await relaying.open()
    gc.disable()
    try:
        assert await relaying.post(ASKED, session) == CAME
        await asyncio.sleep(0)
        assert [context() for context in contexts] == [None]
    finally:
        gc.enable()


async def test_other_arguments_go_upstream() -> None:
    """What a stage puts into the place of the arguments is what the tool gets; the rest keeps its bytes."""

    def change(call: PlannedCall) -> None:
        call.arguments = {"x": 2, "y": "é"}

    params = '"params":{"name":"save","arguments":{"x":2,"y":"é"}}}'.encode()
    sent = ASKED.partition(b'"params"')[0] + params
    relaying = planned(answering(asked=sent), Watching(before=change))
    assert await relaying.post(ASKED, await relaying.open()) == CAME


async def test_a_repeated_key_goes_upstream_once() -> None:
    """Of two values of one argument the upstream gets the one that the stages have seen."""
    asked = ASKED.replace(b'{"x":1.0}', b'{"x":1.0,"x":3}')
    sent = b'{ "id":1 , "jsonrpc":"2.0","method":"tools/call",\n"params":{"arguments":{"x":3},"name":"save"}}'
    stage = Watching()
    relaying = planned(answering(asked=sent), stage)
    assert await relaying.post(asked, await relaying.open()) == CAME
    assert stage.seen[0] == {"x": 3}


async def test_what_a_stage_makes_of_the_result_leaves() -> None:
    """Content written anew leaves with the members of the result that the stage kept, big numbers too."""

    def made(outcome: Outcome) -> Outcome:
        return outcome.with_content([text_block("made")])

    relaying = planned(answering(), Watching(after=made), reshapes=True)
    answer = await relaying.post(ASKED, await relaying.open())
    assert orjson.loads(answer.replace(b"12345678901234567890", b"1"))["result"] == {
        "content": [{"type": "text", "text": "made"}],
        "big": 1,
    }
    assert answer.startswith(b'{"jsonrpc":"2.0","id":1,"result":')


@pytest.mark.parametrize("headers", [(), SSE])
async def test_a_result_too_deep_to_be_written_again_is_the_upstreams_fault(
    headers: tuple[tuple[str, str], ...],
) -> None:
    """And no bad JSON of the client, who sent none."""
    deep = b"[" * 1000 + b"]" * 1000
    came = CAME.replace(b'"big":12345678901234567890', b'"big":%b,"isError":false,"isError":false' % deep)
    chunk = b"data: " + came + b"\n\n" if headers else came
    upstream = ScriptedUpstream([(POST, ScriptedAnswer(headers=headers, chunks=[chunk]))])
    relaying = planned(upstream, Watching(), reshapes=True)
    session = await relaying.open()
    if headers:
        answer = orjson.loads((await relaying.post(ASKED, session)).removeprefix(b"data: "))
        assert (answer["id"], answer["error"]["code"]) == (1, UpstreamBroken.rpc)
    else:
        with pytest.raises(UpstreamBroken, match="nested too deep"):
            await relaying.post(ASKED, session)


async def test_an_error_of_the_upstream_leaves_as_it_came() -> None:
    """A JSON-RPC error passes the stages as an exception and leaves byte for byte."""
    came = b'{"jsonrpc":"2.0","id":1, "error":{"code":-32602,"message":"no such tool","data":{"n":1.0}}}'
    stage = Watching()
    relaying = planned(answering(came), stage, reshapes=True)
    assert await relaying.post(ASKED, await relaying.open()) == came
    assert stage.ended.is_set()


async def test_progress_passes_at_once() -> None:
    """While the walk sleeps, what precedes the answer on its stream is passed on as received."""
    progress = b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}\n\n'
    finish = asyncio.Event()
    answer = ScriptedAnswer(headers=SSE, chunks=[progress, finish, b"data: " + CAME + b"\n\n"])
    relaying = planned(ScriptedUpstream([(POST, answer)]), Watching())
    reply = await relaying.relay.handle(relaying.ask(ASKED, await relaying.open()))
    stream = pieces(reply)
    assert await anext(stream) == progress
    finish.set()
    assert b"".join([piece async for piece in stream]) == b"data: " + CAME + b"\n\n"
    await reply.close()


async def test_a_walk_ends_with_its_exchange() -> None:
    """When the client goes away while the upstream works, the stages are cancelled and clean up."""
    stage = Watching()
    never = asyncio.Event()
    answer = ScriptedAnswer(headers=SSE, chunks=[b": working\n\n", never])
    relaying = planned(ScriptedUpstream([(POST, answer)]), stage)
    reply = await relaying.relay.handle(relaying.ask(ASKED, await relaying.open()))
    stream = pieces(reply)
    assert await anext(stream) == b": working\n\n"
    await reply.close()
    await asyncio.wait_for(stage.ended.wait(), 20)
    assert stage.seen == [{"x": 1.0}]


@pytest.mark.parametrize("reshapes", [False, True])
@pytest.mark.parametrize("mode", ["result", "jsonrpc"])
async def test_an_answer_after_a_restart_is_shown_only_if_no_stage_is_missed(
    reshapes: bool, mode: Literal["result", "jsonrpc"]
) -> None:
    """An answer that comes when its walk is gone passes, unless a stage was to make something of it."""
    poll = ScriptedAnswer(headers=SSE, chunks=[b"id: 7\nretry: 0\ndata:\n\n"])
    late = ScriptedAnswer(headers=SSE, chunks=[b"data: " + CAME + b"\n\n"])
    upstream = ScriptedUpstream([(POST, poll), (Expect("GET", headers={"last-event-id": "7"}), late)])
    first = planned(upstream, Watching(), reshapes=reshapes, errors=ErrorStyle(mode))
    session = await first.open()
    await first.post(ASKED, session)
    second = Relaying(upstream, first.stages, first.store)
    answer = orjson.loads((await second.get(session, "7")).partition(b"data: ")[2])
    if not reshapes:
        assert answer["result"]["content"][0]["text"] == "raw"
    elif mode == "result":
        assert answer["result"]["content"][0]["text"] == RESTARTED and answer["result"]["isError"]
    else:
        assert (answer["id"], answer["error"]["code"], answer["error"]["message"]) == (1, -32000, RESTARTED)


@pytest.mark.parametrize("result", ['"resultType":"task","taskId":"7"', '"task":{"taskId":"7"}'])
async def test_a_task_that_nobody_asked_for_is_refused_too(result: str) -> None:
    """A modern server makes one of any call; where nothing is made of its result the client may have it."""
    came = f'{{"jsonrpc":"2.0","id":1,"result":{{{result},"status":"working"}}}}'.encode()
    relaying = planned(answering(came), Watching(), reshapes=True)
    answer = orjson.loads(await relaying.post(ASKED, await relaying.open()))
    assert answer["result"]["content"][0]["text"] == NO_TASK
    relaying = planned(answering(came), Watching())
    assert await relaying.post(ASKED, await relaying.open()) == came


async def test_a_name_that_no_tool_has_is_not_remembered() -> None:
    """Plans are kept by names that come from clients, so these have an end."""
    relaying = planned(ScriptedUpstream([]), Watching())
    with pytest.raises(ToolUnknown, match="at most 1024"):
        await relaying.post(ASKED.replace(b"save", b"x" * 1025), await relaying.open())
