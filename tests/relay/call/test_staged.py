"""Exchanges that stages take part in: what they change, what they leave alone, and how each of them ends."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import dataclass

import orjson
import pytest

from adapter.errors import (
    AdapterError,
    AnswerTooLarge,
    BadRequest,
    UpstreamBroken,
    UpstreamSilent,
    UpstreamUnreachable,
)
from adapter.relay.stages import Call
from adapter.state.port import Store
from adapter.state.sqlite import MemoryStore
from adapter.wire.long_messages import MOST_VALUES
from adapter.wire.spans import Replace, edit
from tests.relay.relaying import PARKED_TTL, Relaying, of_tools, pieces, whole
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream
from tests.waiting import until

ASKED = (
    b'{ "id":1 , "jsonrpc":"2.0","method":"tools/call",\n'
    b'"params":{"arguments":{"x":1.0,"path":"old"},"name":"save"}}'
)
SENT = ASKED.replace(b'"old"', b'"new"')
CAME = b'{"jsonrpc":"2.0", "result":{"big":12345678901234567890, "said":"raw"},"id":1 }'
LEFT = CAME.replace(b'"raw"', b'"made"')
POST = Expect("POST", SENT)
BACK = Expect("GET", headers={"last-event-id": "7", "accept-encoding": "identity"})
SSE = (("Content-Type", "text/event-stream"),)
POLL = b"id: 7\nretry: 0\ndata:\n\n"


@dataclass
class Making:
    """A stage that turns the argument ``old`` into ``new`` and what was said, ``raw``, into ``made``."""

    own: bytes | None = None
    fails_on: str = ""
    asked: int = 0
    finished: int = 0

    async def ask(self, call: Call) -> bytes | None:
        self.asked += 1
        call.defer(self.count_end)
        if self.fails_on == "request":
            raise BadRequest("The stage will not have it.")
        if self.own is None:
            call.change(Replace(("params", "arguments", "path"), b'"new"'))
            call.notes["made"] = "made"
        return self.own

    async def answer(self, call: Call, response: bytes) -> bytes:
        if self.fails_on == "response":
            raise BadRequest("The stage will not have it.")
        made = orjson.dumps(call.notes["made"])
        return edit(response, [Replace(("result", "said"), made)])

    def count_end(self) -> None:
        self.finished += 1


class Reading(Making):
    """The same, which reads the values of an answer."""

    async def answer(self, call: Call, response: bytes) -> bytes:
        call.parsed(response)
        return await super().answer(call, response)


def with_stage(upstream: ScriptedUpstream, stage: Making, store: Store | None = None) -> Relaying:
    return Relaying(upstream, of_tools(save=stage), store or MemoryStore())


def data(message: bytes) -> bytes:
    return b"data: " + message + b"\n\n"


# --- what is changed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [(CAME,), (CAME[:20], CAME[20:])], ids=["whole", "chunked"])
async def test_bytes_outside_an_edit_stay(chunks: tuple[bytes, ...]) -> None:
    """Order, white space and long numbers survive on both ways, and no compression is asked for."""
    upstream = ScriptedUpstream([(POST, ScriptedAnswer(chunks=chunks))])
    relaying = with_stage(upstream, Making())
    assert await relaying.post(ASKED, await relaying.open()) == LEFT
    (request,) = upstream.requests
    assert ("Accept-Encoding", "identity") in list(request.headers)


async def test_an_answer_of_many_values_is_refused_only_where_a_stage_reads_them() -> None:
    """A table of many megabytes passes by a stage that only edits its bytes."""
    table = CAME[:-2] + b', "rows":[%b]}' % b",".join([b"10"] * (MOST_VALUES + 1))
    upstream = ScriptedUpstream([(POST, ScriptedAnswer(chunks=[table]))] * 2)
    relaying = with_stage(upstream, Making())
    assert await relaying.post(ASKED, await relaying.open()) == table.replace(b'"raw"', b'"made"')
    relaying = with_stage(upstream, Reading())
    with pytest.raises(AnswerTooLarge, match="values that stages read"):
        await relaying.post(ASKED, await relaying.open())


async def test_what_precedes_the_answer_leaves_at_once() -> None:
    """Progress and a request of the server, which may carry the same id, pass as received; then the answer."""
    before = data(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}')
    before += b": comment\r\n\r\nevent: message\n" + data(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    finish = asyncio.Event()
    answer = ScriptedAnswer(headers=SSE, chunks=[before, finish, data(CAME)[:30], data(CAME)[30:]])
    stage = Making()
    relaying = with_stage(ScriptedUpstream([(POST, answer)]), stage)
    reply = await relaying.relay.handle(relaying.ask(ASKED, await relaying.open()))
    stream = pieces(reply)
    assert await anext(stream) == before and stage.finished == 0
    finish.set()
    assert b"".join([piece async for piece in stream]) == data(LEFT)
    await reply.close()
    assert stage.finished == 1


async def test_compressed_answer_is_read_and_leaves_plain() -> None:
    """An upstream that compresses although it was asked not to is understood."""
    fields = (("Content-Type", "application/json"), ("Content-Encoding", "gzip"))
    answer = ScriptedAnswer(headers=fields, chunks=[gzip.compress(CAME)])
    relaying = with_stage(ScriptedUpstream([(POST, answer)]), Making())
    reply = await relaying.relay.handle(relaying.ask(ASKED, await relaying.open()))
    assert "content-encoding" not in {name.lower() for name, _ in reply.headers}
    assert await whole(reply) == LEFT


async def test_compressed_stream_never_passes_the_stages_by() -> None:
    """An event stream is due as it comes, which a compressed one cannot be, so it is refused, not let through."""
    fields = (*SSE, ("Content-Encoding", "gzip"))
    stage = Making()
    upstream = ScriptedUpstream([(POST, ScriptedAnswer(headers=fields, chunks=[gzip.compress(data(CAME))]))])
    relaying = with_stage(upstream, stage)
    with pytest.raises(UpstreamBroken):
        await relaying.post(ASKED, await relaying.open())
    assert stage.finished == 1


async def test_stage_may_answer_by_itself() -> None:
    """Then nothing goes upstream, and the exchange is over."""
    stage = Making(own=b'{"jsonrpc":"2.0","id":1,"result":{}}')
    upstream = ScriptedUpstream()
    relaying = with_stage(upstream, stage)
    assert await relaying.post(ASKED, await relaying.open()) == stage.own
    assert upstream.requests == [] and stage.finished == 1


OTHER = b'{"jsonrpc": "2.0", "id": 2.0,  "method": "ping"}'
PONG = b'{"jsonrpc":"2.0","id":2.0,"result":{}}'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ScriptedAnswer(chunks=[b"[ " + PONG + b" ]"]), PONG),
        (ScriptedAnswer(headers=SSE, chunks=[data(PONG)]), b"data: " + PONG),
    ],
)
async def test_batch_with_a_call_of_a_stage_is_parted(answer: ScriptedAnswer, expected: bytes) -> None:
    """The member of a stage gets an error that names it; the others reach the upstream in their own bytes."""
    stage = Making()
    upstream = ScriptedUpstream([(Expect("POST", b"[" + OTHER + b"]"), answer)])
    relaying = with_stage(upstream, stage)
    session = await relaying.open("2025-03-26")
    came = await relaying.post(b"[" + ASKED + b", " + OTHER + b"]", session)
    assert not upstream.unplayed
    assert expected in came and b"Call save on its own" in came and b'"id":1,"error"' in came
    assert stage.asked == stage.finished == 0


async def test_stage_that_fails_on_a_stream_is_answered_on_it() -> None:
    """The head has left, so the failure takes the place of the response, under the request's id."""
    upstream = ScriptedUpstream([(POST, ScriptedAnswer(headers=SSE, chunks=[data(CAME)]))])
    relaying = with_stage(upstream, Making(fails_on="response"))
    came = await relaying.post(ASKED, await relaying.open())
    assert b'"error":{"code":-32600' in came and b'"id":1' in came


# --- how it ends ----------------------------------------------------------------------------------------------

BROKEN = UpstreamBroken("gone")


@pytest.mark.parametrize(
    ("stage", "answer", "error"),
    [
        (Making, ScriptedAnswer(chunks=[CAME]), None),
        (Making, ScriptedAnswer(headers=SSE, chunks=[data(CAME)]), None),
        (Making, ScriptedAnswer(status=500, chunks=[b"oops"]), None),
        (Making, ScriptedAnswer(headers=SSE, chunks=[b": hello\n\n", BROKEN]), None),
        (Making, ScriptedAnswer(headers=SSE, chunks=[b": hello\n\n", asyncio.Event()]), None),
        (Making, ScriptedAnswer(headers=SSE, chunks=[b": hello\n\n", data(b"{}")]), None),
        (Making, ScriptedAnswer(chunks=[b"{", BROKEN]), UpstreamBroken),
        (Making, ScriptedAnswer(chunks=[b"{", asyncio.Event()]), UpstreamSilent),
        (Making, UpstreamUnreachable(), UpstreamUnreachable),
        (lambda: Making(fails_on="request"), UpstreamUnreachable(), BadRequest),
        (lambda: Making(fails_on="response"), ScriptedAnswer(chunks=[CAME]), BadRequest),
        (lambda: Making(fails_on="response"), ScriptedAnswer(headers=SSE, chunks=[data(CAME)]), None),
    ],
)
async def test_stage_is_finished_once(
    stage: Callable[[], Making], answer: ScriptedAnswer | Exception, error: type[AdapterError] | None
) -> None:
    """However the exchange ends, whoever began something in ``ask`` learns of it exactly once."""
    made = stage()
    upstream = ScriptedUpstream([(POST, answer)])
    upstream.then(Expect("POST", lambda body: b"notifications/cancelled" in body), ScriptedAnswer(202))
    relaying = with_stage(upstream, made)
    session = await relaying.open()
    if error is None:
        assert await relaying.post(ASKED, session)
    else:
        with pytest.raises(error):
            await relaying.post(ASKED, session)
    assert made.finished == 1
    await relaying.background.close()


@pytest.mark.parametrize("read_first", [True, False])
async def test_stage_is_finished_when_the_client_goes(read_first: bool) -> None:
    """The client leaves in the middle of the stream, or before it took a byte; the upstream is let go of too."""
    stage = Making()
    answer = ScriptedAnswer(headers=SSE, chunks=[b": hello\n\n", asyncio.Event()])
    upstream = ScriptedUpstream([(POST, answer)])
    relaying = with_stage(upstream, stage)
    reply = await relaying.relay.handle(relaying.ask(ASKED, await relaying.open()))
    if read_first:
        await anext(pieces(reply))
    await reply.close()
    assert stage.finished == 1 and upstream.replies[0].aborted


async def test_stage_is_finished_when_the_client_goes_before_the_head() -> None:
    """The exchange is cancelled while the upstream has not answered yet."""
    stage = Making()
    upstream = ScriptedUpstream([(POST, ScriptedAnswer(after=asyncio.Event()))])
    relaying = with_stage(upstream, stage)
    exchange = asyncio.create_task(relaying.post(ASKED, await relaying.open()))
    await until(lambda: upstream.requests)
    exchange.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange
    assert stage.finished == 1


async def test_compressed_get_stream_never_passes_the_stages_by() -> None:
    """It may carry an answer that stages wait for, so it is refused where stages are in force."""
    fields = (*SSE, ("Content-Encoding", "gzip"))
    upstream = ScriptedUpstream([(BACK, ScriptedAnswer(headers=fields, chunks=[gzip.compress(data(CAME))]))])
    relaying = with_stage(upstream, Making())
    with pytest.raises(UpstreamBroken):
        await relaying.get(await relaying.open(), "7")


# --- an answer on another stream ------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [(data(CAME),), (b": hi\n\n", data(CAME))], ids=["whole", "chunked"])
async def test_answer_on_a_later_get_is_read_and_changed(chunks: tuple[bytes, ...]) -> None:
    """The upstream has the client come back; the stages wait for that, and are finished then."""
    stage = Making()
    steps = [
        (POST, ScriptedAnswer(headers=SSE, chunks=[POLL])),
        (BACK, ScriptedAnswer(headers=SSE, chunks=chunks)),
    ]
    relaying = with_stage(ScriptedUpstream(steps), stage)
    session = await relaying.open()
    assert await relaying.post(ASKED, session) == POLL and stage.finished == 0
    left = await relaying.get(session, "7")
    assert left == b"".join(chunks).replace(CAME, LEFT) and stage.finished == 1
    assert await relaying.store.count("parked") == 0


async def test_parked_exchange_expires() -> None:
    """Nobody came back in time: the stages are finished and nothing is kept."""
    stage = Making()
    relaying = with_stage(ScriptedUpstream([(POST, ScriptedAnswer(headers=SSE, chunks=[POLL]))]), stage)
    await relaying.post(ASKED, await relaying.open())
    await relaying.cleanup.run_once()
    assert stage.finished == 0 and await relaying.store.count("parked") == 1
    relaying.clock.now += PARKED_TTL
    await relaying.cleanup.run_once()
    assert stage.finished == 1 and await relaying.store.count("parked") == 0


async def test_broken_stream_is_resumed_and_its_answer_changed() -> None:
    """The adapter's own resumption goes through the stages like the stream it continues; the torn event is dropped."""
    stage = Making()
    steps = [
        (POST, ScriptedAnswer(headers=SSE, chunks=[b"id: 7\n: hi\n\n", b"id: 8\ndata: {", BROKEN])),
        (Expect("GET"), ScriptedAnswer(headers=SSE, chunks=[b"id: 8\n" + data(CAME)])),
    ]
    relaying = with_stage(ScriptedUpstream(steps), stage)
    assert await relaying.post(ASKED, await relaying.open()) == b"id: 7\n: hi\n\nid: 8\n" + data(LEFT)
    assert stage.finished == 1
