"""Sessions of one principal in one session at the server: nobody's answer meets another."""

from __future__ import annotations

import asyncio
import zlib

import orjson
import pytest

from adapter.errors import SessionUnknown
from adapter.relay.exchange import ClientRequest
from adapter.state.sqlite import MemoryStore
from adapter.upstream.port import UpstreamReply, header
from tests.relay.relaying import INITIALIZE, whole
from tests.relay.sharing import (
    JSON,
    RESULT,
    LiveUpstream,
    Message,
    Sharing,
    Stream,
    answered,
    client,
    nobody,
    request,
    sharing,
)
from tests.scripted import ScriptedAnswer
from tests.waiting import until

# --- opening --------------------------------------------------------------------------------------------------


async def test_clients_that_open_at_once_open_one() -> None:
    """Nine of ten wait for the first, and go on when that one leaves."""
    upstream = LiveUpstream()
    upstream.opens.clear()
    process = sharing(upstream)
    opening = [asyncio.create_task(client(process, number=number)) for number in range(10)]
    await until(lambda: upstream.opened)
    opening[0].cancel()
    upstream.opens.set()
    assert len({each.session for each in await asyncio.gather(*opening[1:])}) == 9
    assert upstream.opened == len(upstream.said) == 1 and upstream.alive == {"real-1"}


async def test_principals_never_share(upstream: LiveUpstream, process: Sharing) -> None:
    """Each has a session of its own, and neither's client reaches the other's."""
    ada, bea = await client(process, "ada"), await client(process, "bea")
    assert upstream.opened == 2 and upstream.alive == {"real-1", "real-2"}
    async with ada.listening() as adas, bea.listening() as beas:
        upstream.streams[0].say({"jsonrpc": "2.0", "method": "notifications/a"})
        upstream.streams[1].say({"jsonrpc": "2.0", "method": "notifications/b"})
        assert (await adas())["method"] == "notifications/a"
        assert (await beas())["method"] == "notifications/b"
    stolen = type(ada)(process, ada.session, "bea")
    with pytest.raises(SessionUnknown):
        await stolen.call(1, "x")


async def test_refusal_to_open_is_everybodys() -> None:
    """What the server says instead of opening is what each client gets, under its own id; the next one asks again."""
    error = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32000, "message": "not today"}}
    upstream = LiveUpstream(refuses=ScriptedAnswer(200, headers=(JSON,), chunks=[orjson.dumps(error)]))
    upstream.opens.clear()
    process = sharing(upstream)
    bodies = [orjson.dumps(orjson.loads(INITIALIZE) | {"id": number}) for number in (0, 5)]
    both = [asyncio.create_task(process.post_first(body)) for body in bodies]
    await asyncio.sleep(0)
    upstream.opens.set()
    assert [orjson.loads(each) for each in await asyncio.gather(*both)] == [error, error | {"id": 5}]
    assert upstream.opened == 1
    upstream.refuses = None
    await client(process)
    assert upstream.opened == 2


async def test_stateless_server_needs_no_sharing() -> None:
    """A server that issues no id gets every request as it came."""
    upstream = LiveUpstream(issues_ids=False)
    ada = await client(sharing(upstream))
    assert await ada.call(1, "a") == "a"
    assert orjson.loads(upstream.requests[-1].body)["id"] == 1
    assert header(upstream.requests[-1].headers, "mcp-session-id") is None


async def test_session_that_cannot_be_completed_is_closed() -> None:
    """An answer to initialize that is no result leaves nothing behind at the server."""
    upstream = LiveUpstream(
        refuses=ScriptedAnswer(200, headers=(JSON, ("Mcp-Session-Id", "lost")), chunks=[b'{"oops":1}'])
    )
    upstream.alive.add("lost")
    process = sharing(upstream)
    await process.post_first(INITIALIZE)
    assert upstream.alive == set()


# --- ids ------------------------------------------------------------------------------------------------------


async def test_answers_to_equal_ids_find_their_clients() -> None:
    """Two clients call with the same id at once; the later call is answered first."""
    waiting: dict[str, asyncio.Event] = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def in_turn(message: Message) -> UpstreamReply:
        argument = message["params"]["arguments"]
        await waiting[argument].wait()
        return answered(message, argument)

    upstream = LiveUpstream(in_turn)
    process = sharing(upstream)
    ada, ben = await client(process), await client(process)
    for number in (1, "1", 1.5, 2**60, 'q"\\\n'):
        for event in waiting.values():
            event.clear()
        adas, bens = (asyncio.create_task(each.call(number, name)) for each, name in ((ada, "a"), (ben, "b")))
        await asyncio.sleep(0.01)
        waiting["b"].set()
        assert await bens == "b" and not adas.done()
        waiting["a"].set()
        assert await adas == "a"
    assert (
        len({orjson.loads(each.body)["id"] for each in upstream.requests if b"tools/call" in each.body}) == 10
    )


async def test_progress_finds_its_client() -> None:
    """Equal tokens are two, on the streams of their calls and on the stream of everybody."""
    streams: list[tuple[Message, Stream]] = []

    async def slowly(message: Message) -> UpstreamReply:
        streams.append((message, Stream()))
        return streams[-1][1]

    upstream = LiveUpstream(slowly)
    process = sharing(upstream)
    ada, ben = await client(process), await client(process)
    with_token = request(1, "x", _meta={"progressToken": "t"})
    answers = [await each.handle(with_token) for each in (ada, ben)]
    async with ada.listening() as adas, ben.listening() as bens:
        tokens = [message["params"]["_meta"]["progressToken"] for message, _ in streams]
        assert tokens[0] != tokens[1]
        for (message, stream), token in zip(streams, tokens, strict=True):
            progress = {"jsonrpc": "2.0", "method": "notifications/progress"}
            stream.say(progress | {"params": {"progressToken": token, "progress": 1}})
            upstream.streams[0].say(progress | {"params": {"progressToken": token, "progress": 2}})
            stream.say({"jsonrpc": "2.0", "id": message["id"], "result": {}})
            stream.end()
        for answer in answers:
            text = await whole(answer)
            assert b'"progressToken":"t","progress":1' in text and b'"id":1' in text
        for listener in (adas, bens):
            assert (await listener())["params"] == {"progressToken": "t", "progress": 2}
        upstream.streams[0].say({"jsonrpc": "2.0", "method": "notifications/last"})
        assert [(await each())["method"] for each in (adas, bens)] == ["notifications/last"] * 2


async def test_cancellation_reaches_the_call_that_is_meant() -> None:
    """The id of a cancelled call is the one that the call went out under."""
    calls: asyncio.Queue[Message] = asyncio.Queue()

    async def never(message: Message) -> UpstreamReply:
        calls.put_nowait(message)
        return Stream()

    upstream = LiveUpstream(never)
    process = sharing(upstream)
    ada, ben = await client(process), await client(process)
    answers = [await each.handle(request(1, name)) for each, name in ((ada, "a"), (ben, "b"))]
    await ben.say("notifications/cancelled", requestId=1, reason="enough")
    told = upstream.said[-1]["params"]
    sent = [calls.get_nowait() for _ in range(2)]
    assert told == {"requestId": sent[1]["id"], "reason": "enough"} != {"requestId": sent[0]["id"]}
    for answer in answers:
        await answer.close()


async def test_batch_is_tagged_member_by_member() -> None:
    """Each request of a batch goes out under its tag, and its answers come back as a batch."""
    upstream = LiveUpstream(result=RESULT | {"protocolVersion": "2025-03-26"})
    ada = await client(sharing(upstream))
    batch = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (1, "x")]
    assert [each["id"] for each in await ada.post(batch)] == [1, "x"]
    assert all("." in each["id"] for each in orjson.loads(upstream.requests[-1].body))


async def test_compressed_request_is_read_and_leaves_plain(upstream: LiveUpstream, process: Sharing) -> None:
    """Its ids are edited too; the server is told nothing of a coding."""
    ada = await client(process)
    ask = process.ask(orjson.dumps(request(1, "a")), ada.session)
    ask.body, ask.encoded = zlib.compress(ask.body), True
    ask.headers = [("Content-Encoding", "deflate"), ("Accept-Encoding", "gzip")]
    assert orjson.loads(await whole(await process.relay.handle(ask)))["result"] == "a"
    assert header(upstream.requests[-1].headers, "content-encoding") is None
    assert header(upstream.requests[-1].headers, "accept-encoding") == "identity"


# --- the server's requests ------------------------------------------------------------------------------------


async def test_question_amid_a_call_reaches_its_client_only() -> None:
    """The caller's answer goes up under the server's own id, once; anybody else's, or one of another session, never."""
    stream = Stream()
    seen: list[Message] = []

    async def asking(message: Message) -> UpstreamReply:
        seen.append(message)
        return stream

    upstream = LiveUpstream(asking)
    process = sharing(upstream)
    ada, ben = await client(process), await client(process)
    answer = await ada.handle(request(1, "a"))
    question = {"jsonrpc": "2.0", "id": 0, "method": "sampling/createMessage", "params": {}}
    stream.say(question)
    stream.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}})
    stream.say({"jsonrpc": "2.0", "id": seen[0]["id"], "result": {}})
    stream.end()
    text = (await whole(answer)).split(b"\n\n")
    asked, cancelled = (orjson.loads(each.removeprefix(b"data: ")) for each in text[:2])
    assert asked["method"] == "sampling/createMessage" and cancelled["params"]["requestId"] == asked["id"]
    await ben.answer(asked["id"], result={"from": "ben"})
    await ada.answer(0, result={"from": "nowhere"})
    await ada.answer("00000000." + asked["id"].partition(".")[2], result={"from": "before"})
    assert upstream.methods() == []
    await ada.answer(asked["id"], result={"from": "ada"})
    await ada.answer(asked["id"], result={"from": "ada again"})
    assert upstream.said[-1] == {"jsonrpc": "2.0", "id": 0, "result": {"from": "ada"}}
    assert upstream.methods() == ["response"]


async def test_progress_on_a_question_goes_up_under_the_servers_token(
    upstream: LiveUpstream, process: Sharing
) -> None:
    """The token of a server's request comes back as it was; one of nobody's stays here."""
    ada = await client(process)
    async with ada.listening() as listener:
        params = {"_meta": {"progressToken": 4}}
        upstream.streams[0].say({"jsonrpc": "2.0", "id": 4, "method": "roots/list", "params": params})
        asked = await listener()
        await ada.say("notifications/progress", progressToken=4, progress=0)
        await ada.say(
            "notifications/progress", progressToken=asked["params"]["_meta"]["progressToken"], progress=1
        )
    assert [each["params"] for each in upstream.said[1:]] == [{"progressToken": 4, "progress": 1}]


async def test_question_without_addressee_goes_to_all_and_is_answered_once(
    upstream: LiveUpstream, process: Sharing
) -> None:
    """A refusal does not win over an answer, the first answer counts, and the others are told that it is over."""
    ada, ben, eve = [await client(process) for _ in range(3)]
    async with ada.listening() as adas, ben.listening() as bens, eve.listening() as eves:
        assert len(upstream.streams) == 1
        upstream.streams[0].say({"jsonrpc": "2.0", "id": 9, "method": "roots/list"})
        (number,) = {(await each())["id"] for each in (adas, bens, eves)}
        await ada.answer(number, error={"code": -32601, "message": "Method not found"})
        assert upstream.methods() == []
        await ben.answer(number, result={"roots": []})
        await eve.answer(number, result={"roots": ["too late"]})
        assert upstream.said[1:] == [{"jsonrpc": "2.0", "id": 9, "result": {"roots": []}}]
        for listener in (adas, eves):
            told = await listener()
            assert told["method"] == "notifications/cancelled" and told["params"]["requestId"] == number


# --- the end --------------------------------------------------------------------------------------------------


async def test_delete_ends_one_part_and_not_the_session(upstream: LiveUpstream, process: Sharing) -> None:
    """The other client goes on in the same session at the server; so does the principal's next one."""
    ada, ben = await client(process), await client(process)
    async with ada.listening() as adas, ben.listening() as bens:
        await ada.delete()
        assert await adas() is None
        upstream.streams[0].say({"jsonrpc": "2.0", "method": "notifications/news"})
        assert (await bens())["method"] == "notifications/news"
    with pytest.raises(SessionUnknown):
        await ada.call(1, "a")
    assert await ben.call(1, "b") == "b"
    await ben.delete()
    assert await (await client(process)).call(1, "c") == "c"
    assert upstream.opened == 1 and upstream.alive == {"real-1"}


async def test_forgotten_session_is_opened_again_once(upstream: LiveUpstream, process: Sharing) -> None:
    """Ten calls of two clients get 404; one of them initializes, and all are answered."""
    both = await client(process), await client(process)
    async with both[0].listening() as listener:
        upstream.alive.clear()
        calls = [each.call(number, number) for number in range(5) for each in both]
        assert await asyncio.gather(*calls) == [number for number in range(5) for _ in both]
        assert await listener() is None
    assert upstream.opened == 2 and upstream.alive == {"real-2"}


async def test_stale_answer_does_not_reach_the_session_after(
    upstream: LiveUpstream, process: Sharing
) -> None:
    """A question of the session before is answered after the server began anew, and counts again from 0."""
    ada = await client(process)
    async with ada.listening() as listener:
        upstream.streams[0].say({"jsonrpc": "2.0", "id": 0, "method": "roots/list"})
        old = (await listener())["id"]
    upstream.alive.clear()
    await ada.call(1, "x")
    await ada.answer(old, result={"roots": []})
    assert upstream.methods() == []


async def test_shared_session_goes_on_after_a_restart() -> None:
    """Another process on the same store goes on in it, for old clients and new ones."""
    upstream, store = LiveUpstream(), MemoryStore()
    before = sharing(upstream, store)
    ada = await client(before)
    await before.shared.close()
    after = sharing(upstream, store)
    old = type(ada)(after, ada.session)
    assert [await old.call(1, "a"), await (await client(after)).call(1, "b")] == ["a", "b"]
    assert upstream.opened == 1


async def test_idle_session_is_closed_and_a_used_one_is_not() -> None:
    """The idle time counts from the last request of anybody; afterwards its clients go on in another."""
    upstream = LiveUpstream()
    process = sharing(upstream, idle_ttl=60)
    ada = await client(process)
    process.clock.now += 50
    await ada.call(1, "a")
    process.clock.now += 50
    await process.cleanup.run_once()
    assert upstream.alive == {"real-1"}
    process.clock.now += 50
    await process.cleanup.run_once()
    assert upstream.alive == set()
    assert await ada.call(2, "a") == "a" and upstream.alive == {"real-2"}


async def test_session_under_way_is_not_idle() -> None:
    """A call that takes longer than the idle time keeps the session."""
    go_on = asyncio.Event()

    async def slow(message: Message) -> UpstreamReply:
        await go_on.wait()
        return answered(message, "done")

    upstream = LiveUpstream(slow)
    process = sharing(upstream, idle_ttl=60)
    ada = await client(process)
    process.server.timeouts = type(process.server.timeouts)(None, 60)
    calling = asyncio.create_task(ada.call(1, "a"))
    await asyncio.sleep(0.01)
    process.clock.now += 100
    await process.shared.tidy()
    go_on.set()
    assert await calling == "done" and upstream.alive == {"real-1"}


async def test_idle_session_of_a_server_that_is_away_is_closed_later() -> None:
    """Where it cannot be closed it is tried again after a while, also by another process."""
    upstream, store = LiveUpstream(), MemoryStore()
    process = sharing(upstream, store, idle_ttl=60)
    await client(process)
    await process.shared.close()
    later = sharing(upstream, store, idle_ttl=60, clock=process.clock)
    process.clock.now += 100
    upstream.away = True
    await later.shared.tidy()
    assert await store.count("shared:one") == 1
    upstream.away = False
    await later.shared.tidy()
    assert upstream.alive == {"real-1"}
    later.clock.now += 100
    await later.shared.tidy()
    assert upstream.alive == set() and await store.count("shared:one") == 0


# --- clients that name no session -----------------------------------------------------------------------------


async def test_cancellation_without_id_hits_nobody_elses_call() -> None:
    """The server is told of none, also where only one call of that id is under way, alone or in a batch."""

    async def never(_: Message) -> UpstreamReply:
        return Stream()

    upstream = LiveUpstream(never, result=RESULT | {"protocolVersion": "2025-03-26"})
    process = sharing(upstream, shares=False)
    one, other = nobody(process), nobody(process)
    answer = await one.handle(request(1, "a"))
    await other.say("notifications/cancelled", requestId=1)
    given_up = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert await other.post([given_up]) is None
    assert upstream.methods() == []
    await answer.close()


async def test_stream_without_id_has_news_and_nobodys_answers() -> None:
    """What is for one request is said on its own stream only; news are for everybody."""
    stream = Stream()
    seen: list[Message] = []

    async def slowly(message: Message) -> UpstreamReply:
        seen.append(message)
        return stream

    upstream = LiveUpstream(slowly)
    process = sharing(upstream, shares=False)
    one, other = nobody(process), nobody(process)
    answer = await one.handle(request(1, "a"))
    async with other.listening() as listener:
        upstream.streams[0].say({"jsonrpc": "2.0", "id": seen[0]["id"], "result": "a"})
        upstream.streams[0].say({"jsonrpc": "2.0", "method": "notifications/news"})
        assert (await listener())["method"] == "notifications/news"
    await answer.close()


async def test_membership_of_a_session_that_is_over_is_404(upstream: LiveUpstream, process: Sharing) -> None:
    """The server is not asked about it: the relay opens another."""
    ada = await client(process)
    await process.store.delete("shared:one", next(iter(process.shared._shared)))
    process.shared._shared.clear()
    count = len(upstream.requests)
    assert await ada.call(1, "a") == "a"
    assert [each.method for each in upstream.requests[count:]] == ["POST"] * 3
    assert upstream.opened == 2


async def test_modern_requests_pass_by() -> None:
    """The modern era knows no sessions, so there is none to share."""
    upstream = LiveUpstream(issues_ids=False)
    process = sharing(upstream)
    body = orjson.dumps(request(1, "a"))
    ask: ClientRequest = process.ask(body, None)
    assert orjson.loads(await whole(await process.relay.handle(ask)))["id"] == 1
    assert upstream.requests[-1].body == body
