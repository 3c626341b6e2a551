"""The scripted upstream keeps the promises of the port and of its transcript."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.upstream.port import Upstream, UpstreamRequest
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream

POST = UpstreamRequest("POST", [("Mcp-Session-Id", "one")], b"{}")
GET = UpstreamRequest("GET", [])


async def test_plays_its_steps() -> None:
    """Requests are answered from the transcript and remembered; one that is not in it fails the test."""
    upstream = ScriptedUpstream(
        [(Expect("POST", b"{}"), ScriptedAnswer(202)), (Expect("POST"), ScriptedAnswer(chunks=[b"1"]))]
    )
    port: Upstream = upstream
    first, second = await port.send(POST, 1), await port.send(POST, 1)
    assert [(first.status, first.whole), (second.status, second.whole)] == [(202, b""), (200, b"1")]
    assert [await second.read(1), await second.read(1)] == [b"1", b""]
    with pytest.raises(AssertionError, match="Not in the transcript"):
        await port.send(POST, 1)
    assert upstream.requests == [POST] * 3
    assert upstream.unplayed == []


@pytest.mark.parametrize(
    "expect",
    [
        Expect("GET"),
        Expect("POST", b"[]"),
        Expect("POST", lambda body: b"tools" in body),
        Expect("POST", headers={"mcp-session-id": "two"}),
        Expect("POST", headers={"mcp-session-id": None}),
        Expect("POST", headers={"authorization": "x"}),
    ],
)
async def test_takes_no_request_it_did_not_expect(expect: Expect) -> None:
    """Method, body and headers all have to fit."""
    upstream = ScriptedUpstream([(expect, ScriptedAnswer())])
    with pytest.raises(AssertionError):
        await upstream.send(POST, 1)
    assert upstream.unplayed == [expect]


async def test_streams_side_by_side() -> None:
    """A stream held open by an event leaves calls their freedom."""
    news = asyncio.Event()
    upstream = ScriptedUpstream(
        [
            (Expect("GET"), ScriptedAnswer(chunks=[b"a", news, b"b"])),
            (Expect("POST"), ScriptedAnswer(chunks=[b"c"])),
        ]
    )
    stream = await upstream.send(GET, None)
    assert stream.whole is None
    assert await stream.read(None) == b"a"
    with pytest.raises(UpstreamSilent):
        await stream.read(0.01)
    assert (await upstream.send(POST, 1)).whole == b"c"
    news.set()
    assert [await stream.read(1), await stream.read(1)] == [b"b", b""]


async def test_fails_as_written() -> None:
    """Exceptions come where the transcript has them: instead of a head, or in the body."""
    upstream = ScriptedUpstream([(Expect("POST"), UpstreamUnreachable())])
    upstream.then(Expect("POST"), ScriptedAnswer(chunks=[b"a", UpstreamBroken()]))
    with pytest.raises(UpstreamUnreachable):
        await upstream.send(POST, 1)
    reply = await upstream.send(POST, 1)
    assert await reply.read(1) == b"a"
    with pytest.raises(UpstreamBroken):
        await reply.read(1)


async def test_abort_wakes_the_reader() -> None:
    """A reader that waits learns of the abort, and the test can see who was aborted."""
    upstream = ScriptedUpstream([(Expect("GET"), ScriptedAnswer(chunks=[asyncio.Event()]))])
    stream = await upstream.send(GET, None)
    reading = asyncio.create_task(stream.read(None))
    await asyncio.sleep(0)
    await upstream.close()
    with pytest.raises(UpstreamBroken):
        await reading
    assert upstream.replies[0].aborted


async def test_head_can_be_held_back() -> None:
    """``after`` delays the head, so that silence before it can be played."""
    upstream = ScriptedUpstream([(Expect("GET"), ScriptedAnswer(after=asyncio.Event()))])
    with pytest.raises(UpstreamSilent):
        await upstream.send(GET, 0.01)
