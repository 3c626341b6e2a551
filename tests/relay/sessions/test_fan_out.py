"""One stream of the server for all who listen: who gets what, from where, and what is too much."""

from __future__ import annotations

import asyncio
import contextlib
import time

import orjson
import pytest

from adapter.errors import LimitReached
from adapter.relay.sessions.fan_out import QUEUE_BYTES, QUEUE_EVENTS
from adapter.relay.sessions.shared_session import LARGEST, MOST_VALUES
from adapter.rules.access.sessions import REPLAY_BYTES, REPLAY_EVENTS
from adapter.upstream.port import UpstreamReply, header
from tests.relay.relaying import pieces, whole
from tests.relay.sharing import LiveUpstream, Message, Sharing, Stream, client, request, sharing
from tests.scripted import ScriptedAnswer, ScriptedReply


def news(number: int, size: int = 0) -> Message:
    return {"jsonrpc": "2.0", "method": "notifications/news", "params": {"n": number, "text": "x" * size}}


async def settled() -> None:
    """Let what was said reach its listeners."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_last_listener_closes_the_servers_stream(upstream: LiveUpstream, process: Sharing) -> None:
    """It stays open as long as anybody listens, and is opened again for the next."""
    ada, ben = await client(process), await client(process)
    async with ada.listening():
        async with ben.listening():
            pass
        await settled()
        assert not upstream.streams[0].aborted.is_set()
    await asyncio.wait_for(upstream.streams[0].aborted.wait(), 20)
    async with ben.listening() as listener:
        upstream.streams[1].say(news(1))
        assert (await listener())["params"]["n"] == 1


async def test_end_of_the_servers_stream_is_that_of_all(upstream: LiveUpstream, process: Sharing) -> None:
    """They end in good order, and may come back at once."""
    ada, ben = await client(process), await client(process)
    async with ada.listening() as adas, ben.listening() as bens:
        upstream.streams[0].end()
        assert await adas() is None and await bens() is None
    async with ada.listening():
        assert len(upstream.streams) == 2


async def test_refused_stream_is_refused_as_the_server_does_it() -> None:
    """A server without GET streams says 405, to each who asks."""

    class Refusing(LiveUpstream):
        async def send(self, request, read_timeout):  # type: ignore[no-untyped-def]  # the port's own
            if request.method == "GET":
                return ScriptedReply(ScriptedAnswer(405))
            return await super().send(request, read_timeout)

    process = sharing(Refusing())
    ada = await client(process)
    for _ in range(2):
        ask = process.ask(b"", ada.session, method="GET")
        assert (await process.relay.handle(ask)).status == 405


async def test_two_streams_of_a_client_say_it_once() -> None:
    """Of several streams of one client the newest has the news (MCP 2025-11-25, "Multiple Connections")."""
    upstream = LiveUpstream()
    ada = await client(sharing(upstream))
    async with ada.listening() as first:
        async with ada.listening() as second:
            upstream.streams[0].say(news(1))
            assert (await second())["params"]["n"] == 1
        upstream.streams[0].say(news(2))
        assert (await first())["params"]["n"] == 2


async def test_listener_that_comes_back_gets_what_it_missed(upstream: LiveUpstream, process: Sharing) -> None:
    """From behind the event it names, once; event ids of this stream are marked as such."""
    ada, ben = await client(process), await client(process)
    async with ben.listening():
        async with ada.listening() as listener:
            upstream.streams[0].say(news(1), "e1")
            last, message = await listener()
            assert message["params"]["n"] == 1 and last.endswith("*e1")
        for number in (2, 3):
            upstream.streams[0].say(news(number), f"e{number}")
        await settled()
        async with ada.listening(last) as listener:
            assert [(await listener())[1]["params"]["n"] for _ in range(2)] == [2, 3]
            upstream.streams[0].say(news(4), "e4")
            assert (await listener())[1]["params"]["n"] == 4


async def test_sole_listener_that_comes_back_is_resumed_by_the_server() -> None:
    """Nobody listened meanwhile, so the server is told its own event id."""
    upstream = LiveUpstream()
    ada = await client(sharing(upstream))
    async with ada.listening() as listener:
        upstream.streams[0].say(news(1), "e1")
        last, _ = await listener()
    await asyncio.wait_for(upstream.streams[0].aborted.wait(), 20)
    async with ada.listening(last):
        assert header(upstream.requests[-1].headers, "last-event-id") == "e1"


async def test_event_of_the_session_before_is_not_asked_for() -> None:
    """The new session never said it, so the listener just joins."""
    upstream = LiveUpstream()
    ada = await client(sharing(upstream))
    async with ada.listening("0123abcd*e1"):
        assert header(upstream.requests[-1].headers, "last-event-id") is None


async def test_rest_of_a_call_is_its_clients_alone() -> None:
    """A stream resumed by a call's event id is asked of the server as it is, and leaves under the client's ids."""
    upstream = LiveUpstream()
    calls: list[Message] = []

    async def polled(message: Message) -> UpstreamReply:
        calls.append(message)
        stream = Stream()
        stream.write(b"id: call-1\nretry: 1\n\n")
        stream.end()
        return stream

    upstream.handler = polled
    process = sharing(upstream)
    ada, ben = await client(process), await client(process)
    assert b"id: call-1" in await whole(await ada.handle(request(1, "a")))
    async with ada.listening("call-1") as adas, ben.listening() as bens:
        assert header(upstream.requests[-2].headers, "last-event-id") == "call-1"
        upstream.streams[0].say({"jsonrpc": "2.0", "id": calls[0]["id"], "result": "a"}, "call-2")
        upstream.streams[1].say(news(1))
        assert await adas() == ("call-2", {"jsonrpc": "2.0", "id": 1, "result": "a"})
        assert (await bens())["params"]["n"] == 1


# --- bounds ---------------------------------------------------------------------------------------------------


async def test_slow_listener_is_ended_and_nobody_else(upstream: LiveUpstream, process: Sharing) -> None:
    """What waits for one listener is bounded; behind the bound its stream ends, and others go on."""
    slow, quick = await client(process), await client(process)
    ask = process.ask(b"", slow.session, method="GET")
    answer = await process.relay.handle(ask)
    async with quick.listening() as listener:
        for number in range(8):
            upstream.streams[0].say(news(number, QUEUE_BYTES // 5))
            assert (await listener())["params"]["n"] == number
        received = [piece async for piece in pieces(answer)]
        assert 0 < sum(map(len, received)) <= QUEUE_BYTES
        upstream.streams[0].say(news(9))
        assert (await listener())["params"]["n"] == 9
    await answer.close()


async def test_many_small_events_are_bounded_too(upstream: LiveUpstream, process: Sharing) -> None:
    """Comments of some bytes each end a stream that nobody reads, long before they are a megabyte."""
    slow, quick = await client(process), await client(process)
    answer = await process.relay.handle(process.ask(b"", slow.session, method="GET"))
    async with quick.listening():
        upstream.streams[0].write(b":\n\n" * 4000)
        await asyncio.wait_for(upstream.streams[0].aborted.wait(), 20)
        received = [piece async for piece in pieces(answer)]
        assert sum(map(len, received)) == QUEUE_EVENTS * 3
    await answer.close()


async def test_stream_that_ends_at_once_leaves_nothing_open() -> None:
    """Two come at once while the server ends each stream as it begins; both end, and the server's too."""
    upstream = LiveUpstream()

    class Ending(LiveUpstream):
        async def send(self, request, read_timeout):  # type: ignore[no-untyped-def]  # the port's own
            reply = await super().send(request, read_timeout)
            if isinstance(reply, Stream):
                reply.end()
                await asyncio.sleep(0)
            return reply

    upstream = Ending()
    process = sharing(upstream)
    both = await client(process), await client(process)
    asks = [process.ask(b"", each.session, method="GET") for each in both]
    answers = await asyncio.gather(*(process.relay.handle(ask) for ask in asks))
    assert [await whole(answer) for answer in answers] == [b"", b""]
    await settled()
    assert all(stream.aborted.is_set() for stream in upstream.streams)


@pytest.mark.timed
async def test_flood_for_many_listeners_leaves_others_their_turn() -> None:
    """Thousands of events for a hundred listeners are passed on in parts."""
    upstream = LiveUpstream()
    process = sharing(upstream, connections=50)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(100):
            await stack.enter_async_context((await client(process)).listening())
        upstream.streams[0].write(b":\n\n" * 4000)
        longest, last = 0.0, time.thread_time()
        for _ in range(2000):
            await asyncio.sleep(0)
            longest, last = max(longest, time.thread_time() - last), time.thread_time()
        assert longest < 0.05


async def test_event_larger_than_the_queue_is_passed_on() -> None:
    """One event always fits, so no news is lost for its size."""
    upstream = LiveUpstream()
    ada = await client(sharing(upstream, answer=4 * QUEUE_BYTES))
    async with ada.listening() as listener:
        upstream.streams[0].say(news(1, 2 * QUEUE_BYTES))
        assert (await listener())["params"]["n"] == 1


async def test_too_large_event_ends_the_stream() -> None:
    """Above the bytes of an answer the stream ends for all."""
    upstream = LiveUpstream()
    ada = await client(sharing(upstream, answer=1000))
    async with ada.listening() as listener:
        upstream.streams[0].say(news(1, 2000))
        assert await listener() is None


async def test_listeners_are_limited() -> None:
    """One more than four for each of core.upstream.max_connections is refused; a place that is left is free again."""
    upstream = LiveUpstream()
    process = sharing(upstream, connections=1)
    ada, ben = await client(process), await client(process)
    async with ada.listening():
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(ada.listening())
            with pytest.raises(LimitReached, match=r"core\.upstream\.max_connections"):
                async with ben.listening():
                    pass
        async with ben.listening():
            pass


@pytest.mark.parametrize(("events", "size"), [(REPLAY_EVENTS + 50, 0), (8, REPLAY_BYTES // 4)])
async def test_what_is_kept_for_repeating_is_bounded(events: int, size: int) -> None:
    """The oldest events are let go, by number and by bytes; who names one of them gets none twice."""
    upstream = LiveUpstream()
    process = sharing(upstream, answer=1 << 22)
    ada = await client(process)
    async with ada.listening() as listener:
        first = ""
        for number in range(events):
            upstream.streams[0].say(news(number, size), f"e{number}")
            name, _ = await listener()
            first = first or name
        ben = await client(process)
        async with ben.listening(first) as late:
            upstream.streams[0].say(news(-1), "last")
            assert (await late())[1]["params"]["n"] == -1


async def test_huge_message_that_answers_nothing_fails_its_call() -> None:
    """It is not read; the call gets an error under its id."""
    stream = Stream()

    async def roaring(_: Message) -> UpstreamReply:
        return stream

    upstream = LiveUpstream(roaring)
    process = sharing(upstream, answer=2 * LARGEST)
    ada = await client(process)
    answer = await ada.handle(request(1, "a"))
    stream.say(news(1, LARGEST + 1))
    stream.end()
    text = await whole(answer)
    message = orjson.loads(text.partition(b"data: ")[2])
    assert len(text) < 1000 and message["id"] == 1
    assert f"the limit is {LARGEST} bytes and {MOST_VALUES} values" in message["error"]["message"]


async def test_answer_above_the_limit_fails_its_call_only() -> None:
    """The error names the setting, and the session goes on."""

    async def large(message: Message) -> UpstreamReply:
        body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": "x" * 2000})
        return ScriptedReply(ScriptedAnswer(chunks=[body]))

    upstream = LiveUpstream(large)
    process = sharing(upstream, answer=1000)
    ada = await client(process)
    with pytest.raises(Exception, match=r"core\.upstream\.max_answer_bytes"):
        await ada.call(1, "a")
    assert next(iter(process.shared._shared.values())).busy == 0
