"""Answers and events without an end: each road that reads them stops at ``core.upstream.max_answer_bytes``."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator

import orjson
import pytest

from adapter.errors import AnswerTooLarge, UpstreamBroken
from adapter.relay.background import SLICE
from adapter.relay.exchange import Flow
from adapter.relay.replies import RESUMPTIONS, read_answer
from adapter.relay.stages import Call
from adapter.upstream.port import UpstreamReply
from tests.relay.relaying import INITIALIZE, Relaying, of_tools, pieces, whole
from tests.scripted import Expect, ScriptedAnswer, ScriptedReply, ScriptedUpstream

LIMIT = 1000
SSE = (("Content-Type", "text/event-stream"),)
SESSION = ("Mcp-Session-Id", "up-9")
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"save","arguments":{}}}'

LARGE = b'{"jsonrpc":"2.0","id":0,"result":{"x":"' + b"x" * LIMIT + b'"}}'
PIECE = b"x" * 300
ENDLESS: dict[str, ScriptedAnswer] = {
    "a body": ScriptedAnswer(chunks=[PIECE] * 5),
    "a body that came whole": ScriptedAnswer(chunks=[LARGE]),
    "one line": ScriptedAnswer(headers=SSE, chunks=[b"data: ", *[PIECE] * 5]),
    "one event": ScriptedAnswer(headers=SSE, chunks=[b"data: " + PIECE + b"\n"] * 5),
    "one line that is no field": ScriptedAnswer(headers=SSE, chunks=[PIECE] * 5),
    "comments": ScriptedAnswer(headers=SSE, chunks=[b": still here\n\n"] * 200),
    "empty lines": ScriptedAnswer(headers=SSE, chunks=[b"\n" * 300] * 5),
    "other messages": ScriptedAnswer(headers=SSE, chunks=[b'data: {"jsonrpc":"2.0","method":"x"}\n\n'] * 100),
    "a bomb": ScriptedAnswer(
        headers=(("Content-Type", "application/json"), ("Content-Encoding", "gzip")),
        chunks=[gzip.compress(LARGE)],
    ),
}


class Waiting:
    """A stage that changes nothing, so that what comes has to be read."""

    async def ask(self, call: Call) -> bytes | None:
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        return response


def relaying_to(upstream: ScriptedUpstream) -> Relaying:
    relaying = Relaying(upstream, of_tools(save=Waiting()))
    relaying.server.rules.answer_limit = LIMIT
    return relaying


@pytest.mark.parametrize("kind", ENDLESS)
async def test_answer_to_initialize(kind: str) -> None:
    """The client is told the setting, and the session that came with the head is closed again."""
    answer = ENDLESS[kind]
    answer = ScriptedAnswer(headers=(*answer.headers, SESSION), chunks=answer.chunks)
    closing = Expect("DELETE", headers={"mcp-session-id": "up-9"})
    upstream = ScriptedUpstream([(Expect("POST", INITIALIZE), answer), (closing, ScriptedAnswer())])
    relaying = relaying_to(upstream)
    with pytest.raises(AnswerTooLarge, match=r"1000 bytes that core\.upstream\.max_answer_bytes allows"):
        await relaying.post_first(INITIALIZE)
    assert upstream.unplayed == [] and relaying.sessions.active == 0


@pytest.mark.parametrize("kind", ["a body", "a body that came whole", "a bomb"])
async def test_answer_to_a_call_that_is_read(kind: str) -> None:
    """Nothing has left yet, so the call fails as a whole."""
    upstream = ScriptedUpstream([(Expect("POST", CALL), ENDLESS[kind])])
    relaying = relaying_to(upstream)
    with pytest.raises(AnswerTooLarge):
        await relaying.post(CALL, await relaying.open())


@pytest.mark.parametrize("kind", ["one line", "one event", "one line that is no field"])
async def test_event_of_a_call_that_is_read(kind: str) -> None:
    """The head has left, so an error event with the id takes the event's place; the upstream's stream is dropped."""
    upstream = ScriptedUpstream([(Expect("POST", CALL), ENDLESS[kind])])
    relaying = relaying_to(upstream)
    body = await relaying.post(CALL, await relaying.open())
    assert body.startswith(b"data: ") and body.endswith(b"\n\n") and body.count(b"\n\n") == 1
    error = orjson.loads(body[6:])
    assert (error["id"], error["error"]["code"]) == (1, -32011)
    assert "core.upstream.max_answer_bytes" in error["error"]["message"]
    assert upstream.replies[0].aborted


@pytest.mark.parametrize("kind", ["one line", "one event", "one line that is no field"])
async def test_event_of_a_stream_that_is_read(kind: str) -> None:
    """Nobody waits for it under an id, so the stream just ends, after what came before."""
    told = b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n'
    answer = ScriptedAnswer(headers=SSE, chunks=[told, *ENDLESS[kind].chunks])
    upstream = ScriptedUpstream([(Expect("GET"), answer)])
    relaying = Relaying(upstream, of_tools(save=Waiting()))
    relaying.server.rules.answer_limit = LIMIT
    ask = relaying.ask(b"", await relaying.open(), method="GET")
    assert await whole(await relaying.relay.handle(ask)) == told
    assert upstream.replies[0].aborted


MANY_TOLD = b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n' * (3 * SLICE // 50)
"""Events that came in one piece with the beginning of one that is too long."""


@pytest.mark.parametrize(("method", "body"), [("GET", b""), ("POST", CALL)])
async def test_events_of_a_stream_that_is_read_leave_before_what_came_with_them(
    method: str, body: bytes
) -> None:
    """They are neither held nor lost for an event behind them that fails; a call is told so."""
    answer = ScriptedAnswer(headers=SSE, chunks=[MANY_TOLD + b"data: " + LARGE])
    relaying = relaying_to(ScriptedUpstream([(Expect(method), answer)]))
    ask = relaying.ask(body, await relaying.open(), method=method)
    left, _, error = (await whole(await relaying.relay.handle(ask))).partition(
        b'data: {"jsonrpc":"2.0","id":1'
    )
    assert len(left) > SLICE and MANY_TOLD.startswith(left) and left.endswith(b"\n\n")
    assert bool(error) is (method == "POST")


async def test_piped_stream_has_no_limit_and_holds_nothing() -> None:
    """One event of many times what is looked into passes as it came, and its end settles the call."""
    chunks = [b"data: ", *[b"x" * (1 << 18)] * 12, b"\n\n"]
    call = CALL.replace(b"save", b"load")
    upstream = ScriptedUpstream([(Expect("POST", call), ScriptedAnswer(headers=SSE, chunks=chunks))])
    relaying = relaying_to(upstream)
    assert await relaying.post(call, await relaying.open()) == b"".join(chunks)


@pytest.mark.parametrize("kind", ENDLESS)
async def test_request_of_the_adapters_own(kind: str) -> None:
    """A list that the adapter reads for itself is bounded like a client's."""

    async def none(_: bytes, __: int | None) -> UpstreamReply | None:
        return None

    with pytest.raises(AnswerTooLarge):
        await read_answer(ScriptedReply(ENDLESS[kind]), "adapter", 1.0, none, LIMIT)


async def test_answer_that_is_put_off_for_ever() -> None:
    """A server that ends each stream after another event id is asked so many times and no more."""
    asked = 0

    def polling(number: int) -> ScriptedReply:
        return ScriptedReply(ScriptedAnswer(headers=SSE, chunks=[b"id: %d\n\n" % number]))

    async def again(last_id: bytes, _: int | None) -> UpstreamReply | None:
        nonlocal asked
        asked += 1
        return polling(int(last_id) + 1)

    with pytest.raises(UpstreamBroken, match="deferred its answer too often"):
        await read_answer(polling(0), 1, 1.0, again, 1 << 20)
    assert asked == RESUMPTIONS


async def test_resumed_streams_count_together() -> None:
    """What came before the answer broke off is held too."""
    sent = b"id: 1\ndata: " + b"x" * (LIMIT // 2) + b"\n\n"

    async def again(last_id: bytes, _: int | None) -> UpstreamReply | None:
        return ScriptedReply(ScriptedAnswer(headers=SSE, chunks=[sent.replace(b"id: 1", b"id: 1" + last_id)]))

    with pytest.raises(AnswerTooLarge):
        await read_answer(ScriptedReply(ScriptedAnswer(headers=SSE, chunks=[sent])), 1, 1.0, again, LIMIT)


# --- many small events ----------------------------------------------------------------------------------------

BLANKS = [b"\n" * (1 << 17)] * 2
ENOUGH = 2 * len(BLANKS[0]) // SLICE // 2
"""Turns that others get at least while so many events are read."""


@contextlib.asynccontextmanager
async def others_have_turns() -> AsyncIterator[None]:
    """Fails unless somebody else got a turn deferred its answer too often while the block ran."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    yield
    counting.cancel()
    assert turns >= ENOUGH


class Taking:
    """A client that takes everything."""

    def __init__(self) -> None:
        self.taken = b""

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        self.taken += chunk
        return True

    async def drained(self) -> None:
        """Nothing waits."""


@pytest.mark.deep
@pytest.mark.parametrize("tool", ["save", "load"], ids=["read", "piped"])
@pytest.mark.parametrize("poured", [True, False])
async def test_blank_lines_on_a_calls_stream(tool: str, poured: bool) -> None:
    """Each is an event; a quarter of a million of them pass as they came, and hold up nobody."""
    call = CALL.replace(b"save", tool.encode())
    response = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
    answer = ScriptedAnswer(headers=SSE, chunks=[*BLANKS, response])
    relaying = Relaying(ScriptedUpstream([(Expect("POST", call), answer)]), of_tools(save=Waiting()))
    reply = await relaying.relay.handle(relaying.ask(call, await relaying.open()))
    async with others_have_turns():
        if poured and isinstance(reply.body, Flow):
            client = Taking()
            await reply.body.pour(client)
            taken = client.taken
        else:
            taken = b"".join([piece async for piece in pieces(reply)])
    assert taken == b"".join(BLANKS) + response


@pytest.mark.deep
async def test_blank_lines_on_a_stream_that_is_read() -> None:
    """A GET stream whose messages pass stages."""
    upstream = ScriptedUpstream([(Expect("GET"), ScriptedAnswer(headers=SSE, chunks=BLANKS))])
    relaying = Relaying(upstream, of_tools(save=Waiting()))
    ask = relaying.ask(b"", await relaying.open(), method="GET")
    async with others_have_turns():
        assert await whole(await relaying.relay.handle(ask)) == b"".join(BLANKS)


@pytest.mark.parametrize("coded", [pytest.param(False, marks=pytest.mark.deep), True])
async def test_blank_lines_in_answer_to_initialize(coded: bool) -> None:
    """Plain, and compressed to a few bytes."""
    response = b'data: {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}\n\n'
    body = b"".join(BLANKS) + response
    headers = (*SSE, ("Content-Encoding", "gzip")) if coded else SSE
    chunks = [gzip.compress(body)] if coded else [body]
    upstream = ScriptedUpstream(
        [(Expect("POST", INITIALIZE), ScriptedAnswer(headers=headers, chunks=chunks))]
    )
    relaying = Relaying(upstream)
    async with others_have_turns():
        assert await relaying.post_first(INITIALIZE) == chunks[0]
    assert relaying.sessions.active == 1
