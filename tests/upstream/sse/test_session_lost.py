"""Streams that break off in the middle of a session, and what becomes of the calls."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import AnswerTooLarge, UpstreamBroken, UpstreamUnanswered
from adapter.upstream.sse.session import ATTEMPTS
from tests.upstream.raw_peer import PATIENCE
from tests.upstream.sse.clients import AGREED, DELAY, INITIALIZE, INITIALIZED, Front, call, result, sent
from tests.upstream.sse.scripted_server import ENDPOINT, SseSite
from tests.waiting import until

LOG = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}'


def calls(site: SseSite) -> list[int]:
    """The ids of the calls that reached the server, in order."""
    return [post.message["id"] for post in site.posted if post.message.get("method") == "tools/call"]


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_call_under_way_may_have_run(site: SseSite, front: Front, orderly: bool) -> None:
    """Its answer may be lost with the stream, so the client is told at once, and it is never sent again."""
    session, stream = await front.opened()
    waits = await front.called(session)
    if orderly:
        await stream.ends()
    else:
        stream.breaks()
    with pytest.raises(UpstreamBroken, match=r"may (or may not )?have run"):
        await waits
    again = await site.stream()
    await again.opens("/messages?session_id=2")
    await again.left()
    assert calls(site) == [7]


async def test_a_session_that_breaks_off_before_it_is_open_is_over(site: SseSite, front: Front) -> None:
    """Nobody would end one that was opened again."""
    waits = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens()
    await site.post()
    await stream.ends()
    with pytest.raises(UpstreamBroken):
        await waits
    await asyncio.sleep(5 * DELAY)
    assert site.streams.empty() and repr(front.server) == "<SseServer: 0 sessions>"


async def test_a_call_with_progress_ends_with_an_error_event(site: SseSite, front: Front) -> None:
    """What has begun as a stream ends with an error under the id of the call."""
    session, stream = await front.opened()
    waits = front.posting(call(_meta={"progressToken": 1}), session)
    await site.post()
    await stream.says(sent("notifications/progress", progressToken=1, progress=1))
    reply = await waits
    assert b"progress" in await reply.read(PATIENCE)
    stream.breaks()
    last = await reply.read(PATIENCE)
    assert b'"id":7,"error":{"code":-32011' in last and await reply.read(PATIENCE) == b""


async def test_a_server_that_opens_another_session_ends_this_one(site: SseSite, front: Front) -> None:
    """Another endpoint is another session: calls are answered 404, which has the session layer initialize again."""
    session, stream = await front.opened()
    listening = await front.get(session)
    await stream.ends()
    again = await site.stream()
    waits = front.posting(call(), session)
    telling = front.posting(INITIALIZED, session)
    await again.opens("/messages?session_id=2")
    assert [(await waits).status, (await telling).status] == [404, 404]
    await again.left()
    assert (await front.post(call(), session)).status == 404
    assert await listening.read(PATIENCE) == b"" and calls(site) == []


async def test_a_server_that_knows_its_session_goes_on(site: SseSite, front: Front) -> None:
    """The same endpoint is the same session: what waited for the stream is sent, once, and GET streams live on."""
    session, stream = await front.opened()
    listening = await front.get(session)
    await stream.ends()
    again = await site.stream()
    assert "last-event-id" not in again.head.lower()
    waits = front.posting(call(), session)
    telling = front.posting(INITIALIZED, session)
    await asyncio.sleep(0)
    assert site.posts.empty()
    await again.opens()
    assert {(await site.post()).body, (await site.post()).body} == {call(), INITIALIZED}
    await again.says(LOG, result())
    assert ((await waits).whole, (await telling).status) == (result(), 202)
    assert await listening.read(PATIENCE) == b"id: 1-1\ndata: " + LOG + b"\n\n"
    assert calls(site) == [7]


async def test_a_server_that_numbers_its_events_loses_no_answer(site: SseSite, front: Front) -> None:
    """A call waits while the stream is asked for with the last event's id, and its answer comes on the new one."""
    session, stream = await front.opened()
    await stream.says(LOG, id="e-41")
    waits = await front.called(session)
    await stream.sends(b"retry: 5\n\n")
    stream.breaks()
    again = await site.stream()
    assert "last-event-id: e-41" in again.head.lower()
    await again.opens()
    await again.says(result(), id="e-42")
    assert (await waits).whole == result()
    assert calls(site) == [7]


async def test_numbers_are_no_promise(site: SseSite, front: Front) -> None:
    """A server that numbers its events and then does not go on leaves the call with its error."""
    session, stream = await front.opened()
    await stream.says(LOG, id="1")
    waits = await front.called(session)
    stream.breaks()
    await (await site.stream()).refuses(b"HTTP/1.1 404 Not Found")
    with pytest.raises(UpstreamBroken):
        await waits
    assert (await front.post(call(8), session)).status == 404


async def test_a_stream_that_ends_again_and_again_ends_the_session(site: SseSite, front: Front) -> None:
    """A server that opens each stream only to end it is not asked for ever."""
    session, stream = await front.opened()
    for _ in range(ATTEMPTS - 1):
        await stream.ends()
        stream = await (await site.stream()).opens()
    await stream.ends()
    listening = await front.get(session)
    assert await listening.read(PATIENCE) == b""
    assert (await front.post(call(), session)).status == 404
    assert site.streams.empty()


@pytest.mark.parametrize("named", ["/messages?session_id=9", "http://evil.example/m", "%"])
async def test_a_second_endpoint_ends_the_session(site: SseSite, front: Front, named: str) -> None:
    """Messages never follow a server that changes its mind; the stream is not opened again."""
    session, stream = await front.opened()
    waits = await front.called(session)
    await stream.sends(f"event: endpoint\ndata: {ENDPOINT}\n\n".encode())
    await stream.sends(f"event: endpoint\ndata: {named}\n\n".encode())
    with pytest.raises(UpstreamBroken, match="endpoint"):
        await waits
    await stream.left()
    assert (await front.post(call(), session)).status == 404
    assert site.streams.empty()


async def test_an_answer_above_the_limit_is_told(site: SseSite) -> None:
    """It is not kept, so it may have been anybody's; the session goes on."""
    front = Front(site, limit=1000)
    session, stream = await front.opened()
    waits = await front.called(session)
    await stream.sends(b'data: {"id":7,"result":"' + b"x" * 3000, b'"}\n\n')
    with pytest.raises(AnswerTooLarge, match=r"core\.upstream\.max_answer_bytes"):
        await waits
    for kind in ("application/json", "text/event-stream"):
        site.accepts = False
        waits = front.posting(call(), session)
        await (await site.post()).answers(
            "200 OK", b"data: " + b"x" * 3000 + b"\n\n", f"Content-Type: {kind}"
        )
        with pytest.raises(AnswerTooLarge):
            await waits
    site.accepts = True
    await front.is_answered(session, stream)
    await front.close()


async def test_an_answer_to_initialize_above_the_limit_opens_nothing(site: SseSite) -> None:
    """The client is told, and the stream is dropped, since no client would end its session."""
    front = Front(site, limit=1000)
    waits = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens()
    await site.post()
    await stream.sends(b'data: {"id":0,"result":"' + b"x" * 3000, b'"}\n\n')
    with pytest.raises(AnswerTooLarge):
        await waits
    await stream.left()
    assert repr(front.server) == "<SseServer: 0 sessions>"
    await front.close()


async def test_an_event_above_the_limit_may_come_before_anything_was_sent(site: SseSite) -> None:
    """It answers nothing, so the session is opened all the same."""
    front = Front(site, limit=1000)
    waits = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens(None)
    long = b"data: " + b"x" * 3000 + b"\n\n"
    await stream.sends(f"event: endpoint\ndata: {ENDPOINT}\n\n".encode() + long)
    await site.post()
    await stream.says(AGREED)
    assert (await waits).whole == AGREED
    await front.close()


async def test_a_connection_that_breaks_under_a_post_may_have_carried_it(site: SseSite, front: Front) -> None:
    """The call gets the error of one that may have run, and is not sent again; the session goes on."""
    session, stream = await front.opened()
    site.accepts = False
    waits = front.posting(call(), session)
    (await site.post()).breaks()
    with pytest.raises(UpstreamUnanswered):
        await waits
    site.accepts = True
    await stream.says(result())
    await front.is_answered(session, stream)
    assert calls(site) == [7, 8]


async def test_answers_for_nobody_change_nothing(site: SseSite, front: Front) -> None:
    """Unknown ids, second answers and what is no JSON-RPC are dropped."""
    session, stream = await front.opened()
    waits = await front.called(session)
    await stream.says(result(99), b"no", b"[]", b"{}", result(), result())
    assert (await waits).whole == result()
    assert (await front.get(session)).whole is None


async def test_a_client_that_does_not_read_slows_its_server(site: SseSite, front: Front) -> None:
    """Progress that nobody reads is not collected: the server has to wait, and goes on when the client leaves."""
    session, stream = await front.opened()
    waits = front.posting(call(_meta={"progressToken": 1}), session)
    await site.post()
    progress = sent("notifications/progress", progressToken=1, message="x" * 60_000)
    flood = asyncio.create_task(stream.says(*[progress] * 300))
    reply = await waits
    done, _ = await asyncio.wait([flood], timeout=0.5)
    assert not done
    reply.abort()
    async with asyncio.timeout(4 * PATIENCE):
        await flood
    await front.is_answered(session, stream)


async def test_sessions_leave_nothing_behind(site: SseSite) -> None:
    """Sessions that clients delete, servers drop, and calls outlive: tasks and connections are as many as before."""
    front = Front(site)
    before = len(asyncio.all_tasks())
    for number in range(60):
        session, stream = await front.opened()
        waits = await front.called(session)
        if number % 3 == 0:
            assert (await front.delete(session)).status == 200
        elif number % 3 == 1:
            await stream.sends(b"event: endpoint\ndata: /other\n\n")
        else:
            waits.cancel()
            assert (await front.delete(session)).status == 200
        await asyncio.gather(waits, return_exceptions=True)
        await stream.left()
    assert repr(front.server) == "<SseServer: 0 sessions>"
    await front.close()
    # The scripted server has a task for each connection that is open, and hears of the end of one a little later.
    await until(lambda: len(asyncio.all_tasks()) <= before, PATIENCE)
