"""A Flow gives the same whether it is poured or taken piece by piece, and tells the upstream the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from adapter.errors import UpstreamBroken
from adapter.relay.exchange import ClientResponse as Left
from adapter.relay.exchange import Flow
from tests.relay.relaying import Relaying, whole
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}'
NEWS = (
    b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":1}}\n\n'
)
SAID = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
POLL = b"id: 7\nretry: 0\ndata:\n\n"
SSE = (("Content-Type", "text/event-stream"),)
ZIPPED = (*SSE, ("Content-Encoding", "gzip"))
BROKEN = UpstreamBroken("broken off")
LARGE = [b'{"jsonrpc":"2.0","id":1,"result":"', b"x" * 70_000, b"y" * 10, b'"}']


@dataclass
class Cup:
    """A sink that is full after each chunk and takes more when asked."""

    taken: list[bytes] = field(default_factory=list)
    full: bool = False

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        assert not self.full, "nobody asked whether there was room"
        self.taken.append(chunk)
        self.full = True
        return False

    async def drained(self) -> None:
        await asyncio.sleep(0)
        self.full = False


async def poured(answer: Left) -> bytes:
    """The body into a sink, and the answer closed as the edge does it."""
    try:
        assert isinstance(answer.body, Flow)
        cup = Cup()
        await answer.body.pour(cup)
        return b"".join(cup.taken)
    finally:
        await answer.close()


def playing(
    chunks: Sequence[bytes | Exception | asyncio.Event], headers: Sequence[tuple[str, str]]
) -> Relaying:
    """A relay whose upstream answers a call so, a GET with the rest of the stream, and takes cancellations."""
    steps = [
        (Expect("POST", CALL), ScriptedAnswer(headers=headers, chunks=list(chunks))),
        (Expect("GET"), ScriptedAnswer(headers=SSE, chunks=[NEWS, SAID])),
        (Expect("POST", lambda body: b"cancelled" in body), ScriptedAnswer(202)),
    ]
    return Relaying(ScriptedUpstream(steps))


@pytest.mark.parametrize(
    ("headers", "chunks"),
    [
        (SSE, [NEWS, SAID]),
        (SSE, [NEWS[:20], NEWS[20:] + SAID[:-1], b"\n", b": tail"]),
        (SSE, [NEWS, POLL]),
        (SSE, [NEWS, b": nothing said\n\n"]),
        (SSE, [NEWS, SAID[:10], BROKEN]),
        (SSE, [POLL, SAID[:10], BROKEN]),
        (SSE, [NEWS, asyncio.Event()]),
        (ZIPPED, [b"\x1f\x8b", b"whatever"]),
        ((("Content-Type", "application/json"),), LARGE),
    ],
    ids=["answered", "sliced", "polled", "unanswered", "torn", "resumed", "silent", "compressed", "large"],
)
async def test_pouring_gives_what_the_pieces_give(
    headers: Sequence[tuple[str, str]], chunks: Sequence[bytes | Exception | asyncio.Event]
) -> None:
    """Byte for byte, with the same requests to the upstream, the same count of failures, and nothing left open."""
    taken, flowed = playing(chunks, headers), playing(chunks, headers)
    by_pieces = await whole(await taken.relay.handle(taken.ask(CALL, await taken.open())))
    by_pouring = await poured(await flowed.relay.handle(flowed.ask(CALL, await flowed.open())))
    assert by_pouring == by_pieces
    for relaying in (taken, flowed):
        await asyncio.sleep(0)
        await relaying.background.close()
    one, other = taken.upstream, flowed.upstream
    assert isinstance(one, ScriptedUpstream) and isinstance(other, ScriptedUpstream)
    assert [(each.method, each.body) for each in one.requests] == [
        (each.method, each.body) for each in other.requests
    ]
    assert [reply.aborted for reply in one.replies] == [reply.aborted for reply in other.replies]


async def test_what_is_put_around_the_pieces_is_put_around_all_there_is() -> None:
    """A Flow is a generator of its pieces like any other to whoever does not pour it."""
    relaying = playing([NEWS, SAID], SSE)
    answer = await relaying.relay.handle(relaying.ask(CALL, await relaying.open()))
    assert isinstance(answer.body, Flow)
    assert await anext(answer.body) == NEWS
    await answer.close()
    with pytest.raises(StopAsyncIteration):
        await anext(answer.body)
