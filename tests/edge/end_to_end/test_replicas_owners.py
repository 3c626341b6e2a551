"""Sessions that live in one replica, used through another: to their clients it makes no difference."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson

from tests.edge.end_to_end.test_sse_upstream import playing
from tests.edge.raw import error_of, read_chunk
from tests.edge.replicating import PATIENCE, call, messages, next_message, site, tool, two_replicas


async def test_a_session_is_served_by_the_process_that_has_it(tmp_path: Path) -> None:
    """A session that A opened has the same child through B, and the answers have the same bytes."""
    async with two_replicas(tmp_path) as (_, _, b, first), b.client(first.session) as second:
        here, there = (await first.request("POST", tool("who")), await second.request("POST", tool("who")))
        assert here[1] == there[1]
        assert (await call(second, "who"))["result"]["seen"] == {}
        fields = [[each for each in head.fields if each[0] != "date"] for head, _ in (here, there)]
        assert fields[0] == fields[1]


async def test_a_question_of_the_server_is_answered_through_another_replica(tmp_path: Path) -> None:
    """The child asks on the stream of a call on A; the client answers through B, and the call goes on."""
    async with site(tmp_path) as found:
        a, b = await found.start("a"), await found.start("b")
        for asking, answering in ((a, b), (b, a)):
            async with a.client() as first, asking.client() as second, answering.client() as third:
                await first.initialize()
                second.session = third.session = first.session
                await second.send("POST", tool("ask", 5, method="roots/list"))
                assert (await second.head()).status == 200
                assert (await next_message(second))["method"] == "roots/list"
                answer = b'{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}'
                head, _ = await third.request("POST", answer)
                assert head.status == 202
                assert (await next_message(second))["result"] == {"answered": {"roots": []}}


async def test_a_stream_of_the_session_is_opened_and_resumed_elsewhere(tmp_path: Path) -> None:
    """What the server says outside of calls is heard through B, and goes on behind the last event that was read."""
    async with two_replicas(tmp_path) as (_, _, b, first):
        async with b.client(first.session) as listener:
            await listener.send("GET")
            head = await listener.head()
            assert (head.status, head["content-type"]) == (200, "text/event-stream")
            await call(first, "tell", 1, method="notifications/one")
            event = await listener.read_until(1)
            assert messages(event)[0]["method"] == "notifications/one"
            last = event.split(b"\n")[0].removeprefix(b"id: ").decode()
        await call(first, "tell", 2, method="notifications/two")
        async with b.client(first.session) as listener:
            await listener.send("GET", last_event_id=last)
            assert (await listener.head()).status == 200
            assert (await next_message(listener))["method"] == "notifications/two"


async def test_a_call_is_cancelled_through_another_replica(tmp_path: Path) -> None:
    """The child learns of a cancellation that came through B, and the call on A ends."""
    async with two_replicas(tmp_path) as (_, a, b, first), a.client(first.session) as listener:
        await listener.send("GET")
        await listener.head()
        await first.send("POST", tool("hold", 5))
        assert (await next_message(listener))["params"]["data"] == "holding"
        async with b.client(first.session) as second:
            cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}'
            assert (await second.request("POST", cancelled))[0].status == 202
        assert (await next_message(listener))["params"]["data"] == "cancelled 5 known"
        assert (await first.head()).status == 202


async def test_a_client_that_goes_ends_the_forwarded_exchange(tmp_path: Path) -> None:
    """The connection between the replicas is closed with that of the client."""
    async with two_replicas(tmp_path) as (_, a, b, first), b.client(first.session) as listener:
        await listener.send("GET")
        await listener.head()
        async with b.client(first.session) as second:
            await second.send("POST", tool("hold", 5))
            assert (await next_message(listener))["params"]["data"] == "holding"
            await a.exchanges(2)
        await a.exchanges(1)


async def test_the_end_of_a_session_ends_its_process(tmp_path: Path) -> None:
    """DELETE through B ends the child that A has, and the session is unknown everywhere."""
    async with two_replicas(tmp_path) as (_, a, b, first):
        await call(first, "who")
        assert a.processes == 1
        async with b.client(first.session) as second:
            assert (await second.request("DELETE"))[0].status == 200
            assert (await second.call())[0].status == 404
        await a.without_processes()


async def test_a_session_of_a_replica_that_died_is_opened_anew(tmp_path: Path) -> None:
    """B opens the session again for the next call; the call that was under way got an error under its id."""
    async with (
        two_replicas(tmp_path) as (found, a, b, first),
        b.client(first.session) as second,
        b.client(first.session) as third,
    ):
        before = (await call(second, "who"))["result"]["pid"]
        await third.send("POST", tool("hold", 8))
        await third.head()
        await next_message(third)
        await second.send("POST", tool("sleep", 7, seconds=600))
        await a.exchanges(2)
        await found.kill("a", a)
        async with asyncio.timeout(PATIENCE):
            head = await second.head()
            assert error_of(await second.reader.readexactly(int(head["content-length"])))["id"] == 7
            assert (await next_message(third))["id"] == 8
        async with b.client(first.session) as fourth:
            after = (await call(fourth, "who"))["result"]["pid"]
            assert after != before
            assert (await call(fourth, "who"))["result"]["pid"] == after
        assert b.processes == 1


async def test_a_replica_that_stops_leaves_its_sessions(tmp_path: Path) -> None:
    """Its streams elsewhere end so that clients come back, and the next call opens the session anew."""
    async with two_replicas(tmp_path) as (found, _, b, first):
        async with b.client(first.session) as listener:
            await listener.send("GET")
            await listener.head()
            await found.stop("a")
            async with asyncio.timeout(PATIENCE):
                while await read_chunk(listener.reader):
                    pass
        async with b.client(first.session) as second:
            assert (await call(second, "who"))["result"]["seen"] == {}
        assert await found.memory.rows.get("replicas", "a") is None


async def test_a_large_message_crosses_both_ways(tmp_path: Path) -> None:
    """Three megabytes of arguments arrive, and come back."""
    async with two_replicas(tmp_path) as (_, _, b, first), b.client(first.session) as second:
        text = "x" * 3_000_000
        assert (await call(second, "who", text=text))["result"]["seen"] == {"text": text}


async def test_an_owner_that_is_not_known_while_the_store_is_away(tmp_path: Path) -> None:
    """Nobody opens a session anew because the store cannot tell who has it."""
    async with two_replicas(tmp_path) as (_, _, b, first), b.client(first.session) as second:
        assert "a" in b.registry.sightings.seen
        b.registry.sightings.seen.pop("a", None)
        await call(second, "who")
        b.registry.sightings.seen.pop("a", None)
        b.store.down = True
        head, body = await second.request("POST", tool("who", 9))
        assert head.status == 200
        assert (error_of(body)["code"], error_of(body)["id"]) == (-32014, 9)
        b.store.down = False
        assert "result" in await call(second, "who")


async def test_an_sse_session_has_one_stream(tmp_path: Path) -> None:
    """Calls through B are posted to the endpoint of A's stream, and DELETE through B ends it."""
    async with playing() as player:
        server = {"upstream": {"transport": "sse", "url": player.site.url}}
        async with two_replicas(tmp_path, server) as (_, _, b, first), b.client(first.session) as second:
            assert "result" in await call(second, "read", 2)
            assert player.methods(0)[-1] == "tools/call"
            assert len(player.streams) == 1
            assert (await second.request("DELETE"))[0].status == 200
            await player.streams[0].left()


async def test_a_caller_over_http_has_one_process_behind_all_replicas(tmp_path: Path) -> None:
    """A server that is a process serves it where its session began, whichever replica is asked."""
    async with site(tmp_path, console={"enabled": True, "allow_execute": True}) as found:
        a, b = await found.start("a"), await found.start("b")
        for each in (a, b, b, a):
            async with each.client() as client, asyncio.timeout(PATIENCE):
                path = "/explorer/raw/tools/who/call"
                head, body = await client.request("POST", b"{}", path, x_adapter_session="tab")
            assert head.status == 200 and orjson.loads(body)["isError"] is False
            assert (a.processes, b.processes) == (1, 0)
