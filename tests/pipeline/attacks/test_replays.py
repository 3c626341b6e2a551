"""Clients that resume a stream to read once more, and without its stages, what they were answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.edge.raw import Exchange, RawClient, event
from tests.pipeline.attacks.hostile import REDACTED, SECRET, Hostile, behind, response
from tests.pipeline.end_to_end.living import Answer, Speaker


async def numbered(exchange: Exchange, number: Any) -> None:
    """Answers on a stream whose events can be asked for again."""
    await exchange.begin_stream()
    await exchange.chunk(event(b"", "1") + event(response(number), "2"))
    await exchange.end_stream()


async def parked(exchange: Exchange, _: Any) -> None:
    """Ends the stream before the answer."""
    await exchange.begin_stream()
    await exchange.chunk(event(b"", "1"))
    await exchange.end_stream()


def again(*messages: bytes) -> Hostile:
    """An upstream that says these on every GET stream."""

    async def replays(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for message in messages:
            await exchange.chunk(event(message, "2"))
        await exchange.end_stream()

    return Hostile(numbered, replays=replays)


async def resumed(speaker: Speaker) -> Answer:
    return Answer(*await speaker.raw.request("GET", b"", speaker.path, last_event_id="1"))


@pytest.mark.parametrize(
    "message",
    [
        response(1),
        response(1.0),
        b"[" + response(1) + b"]",
        response(1).replace(b'"id":1', b'"id":1,"id":1'),
        b'{"jsonrpc":"2.0","error":{"code":1,"message":"jane@example.org"},"id":null}',
        b"jane@example.org",
    ],
)
async def test_w_an_answer_that_comes_again_is_not_shown(tmp_path: Path, message: bytes) -> None:
    """Its stages are over, so that a failure stands for what they would have kept back."""
    async with behind(again(message), tmp_path) as front, front.speaker() as speaker:
        first = await speaker.call("shown_a")
        answer = await resumed(speaker)
    assert first.result["structuredContent"] == REDACTED
    assert SECRET.encode() not in first.body + answer.body


async def test_w_nor_is_one_whose_client_went_away(tmp_path: Path) -> None:
    """Who breaks the call off and asks for the rest of the stream gets no more than who waited."""
    upstream, reached = again(response(1)), asyncio.Event()

    async def waiting(exchange: Exchange, _: Any) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event(b"", "1"))
        reached.set()
        await exchange.gone()

    upstream.says = waiting
    async with behind(upstream, tmp_path) as front, front.speaker() as speaker:
        async with front.speaker() as leaving:
            leaving.raw.session = speaker.raw.session
            await leaving.begin("shown_a")
            await reached.wait()
        answer = await resumed(speaker)
    assert answer.error["message"].endswith("Call the tool again.")
    assert answer.messages[-1]["id"] == 1


async def test_w_a_large_id_is_the_same_id(tmp_path: Path) -> None:
    """An id of which a float is only near is recognised all the same, also of an answer that was awaited."""

    def large(message: bytes) -> bytes:
        return message.replace(b'"id":0', b'"id":1%030d' % 0)

    upstream = again(large(response(0)))
    upstream.says = parked
    body = b'{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"shown_a"}}'
    async with behind(upstream, tmp_path) as front, front.speaker() as speaker:
        await speaker.raw.request("POST", large(body), speaker.path)
        answers = [await resumed(speaker) for _ in range(2)]
    assert answers[0].result["structuredContent"] == REDACTED
    assert answers[1].error["code"] == -32011


async def test_w_after_a_restart_nobody_knows_which_answers_those_were(tmp_path: Path) -> None:
    """So none of them is shown."""
    upstream = again(response(1))
    async with behind(upstream, tmp_path) as front, front.speaker() as speaker:
        await speaker.call("shown_a")
    async with behind(upstream, tmp_path) as front, RawClient(front.port) as raw:
        raw.session = speaker.raw.session
        answer = await resumed(Speaker(raw, speaker.path, speaker.version))
    assert SECRET.encode() not in answer.body and answer.error["code"] == -32011


async def test_other_answers_and_news_pass(tmp_path: Path) -> None:
    """Of tools without a plan, and whatever is no answer."""
    news = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"n":1.0}}'
    async with behind(again(news, response(2)), tmp_path) as front, front.speaker() as speaker:
        await speaker.call("shown_a")
        await speaker.call("free")
        answer = await resumed(speaker)
    assert answer.body == event(news, "2") + event(response(2), "2")


async def test_an_answer_that_was_awaited_is_presented(tmp_path: Path) -> None:
    """Where the upstream itself ended the stream before its answer, the call's stages are still there."""
    upstream = again(response(1))
    upstream.says = parked
    async with behind(upstream, tmp_path) as front, front.speaker() as speaker:
        await speaker.call("shown_a")
        answer = await resumed(speaker)
    assert answer.result["structuredContent"] == REDACTED
