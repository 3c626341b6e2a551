"""Bodies that come slowly, in part or too many at once: what they may take of time and of memory."""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter.edge.http.bodies import SMALL, Body, BodyLimits
from adapter.edge.http.buffers import HeldBytes, RequestBuffers
from adapter.errors import BodyTooSlow, BuffersFull
from adapter.rules.access.rate_limit import Floor
from tests.edge.conftest import Adapter, StartRoad
from tests.edge.filing import FORM, file_part
from tests.edge.raw import Exchange, RawClient, beginning, call_body, error_of, read_body, result, silent
from tests.waiting import until

KIB, MIB = 1024, 1024 * 1024


def terms(limit: int = MIB, patience: float = 0.05, **floor: float) -> BodyLimits:
    return BodyLimits(RequestBuffers(limit, patience), Floor(**floor) if floor else Floor(), read_timeout=0.2)


def hurried() -> BodyLimits:
    return BodyLimits(RequestBuffers(MIB), Floor(rate=10_000, window=0.2, grace=0.1), read_timeout=0.3)


# --- time -------------------------------------------------------------------------------------------------------


async def refused_trickle(client: RawClient) -> bytes:
    """What is answered to a client that goes on with a body by single bytes: 408, for this reason."""
    answer = asyncio.create_task(client.head())
    while not answer.done():
        await client.send_more(b"x")
        await asyncio.sleep(0.02)
    head = await answer
    assert head.status == 408
    body = await read_body(client.reader, head)
    assert b"10000 bytes per second over 0.2 s" in body
    return body


async def test_a_body_that_trickles_is_408(road: StartRoad) -> None:
    """It is never silent, but below the floor; the answer names the floor, and the upstream hears nothing."""
    async with road(bodies=hurried()) as (up, _, client):
        await client.send("POST", content_length="100000")
        assert "10000 bytes" in error_of(await refused_trickle(client))["message"]
        assert up.seen == []


async def test_an_upload_that_trickles_is_408(in_session: StartRoad) -> None:
    """Uploads have the same floor as other bodies, besides a silence of their own."""
    takes = {"type": "upload_consumer", "tools": ["tool"], "file_path_argument": "path"}
    async with in_session(bodies=hurried(), server={"adapters": [takes]}) as (_, _, client):
        said = {"content_type": FORM, "content_length": "100000"}
        await client.send("POST", file_part(b"x" * 100)[:-2], "/upload/raw", **said)
        await refused_trickle(client)


async def test_a_body_that_stops_is_408(road: StartRoad) -> None:
    """Silence in the middle of a body ends the wait for the rest."""
    async with road(bodies=hurried()) as (_, _, client):
        head, body = await client.request("POST", b"{", content_length="100000")
        assert head.status == 408 and "0.3 s" in error_of(body)["message"]


async def test_a_body_above_the_floor_may_take_long(in_session: StartRoad) -> None:
    """Many windows of it, each with enough."""
    async with in_session(bodies=hurried()) as (_, _, client):
        body = call_body() + b" " * 40_000
        await client.send("POST", content_length=str(len(body)))
        for start in range(0, len(body), 1000):
            await client.send_more(body[start : start + 1000])
            await asyncio.sleep(0.02)
        assert (await client.head()).status == 200


@pytest.mark.timed
async def test_a_reader_that_is_busy_does_not_make_its_sender_slow() -> None:
    """Only the time counts that is spent waiting for bytes."""
    body = Body(lambda: None, terms(rate=1000, window=0.05, grace=0))
    for _ in range(10):
        asyncio.get_running_loop().call_later(0.01, body.add, b"x" * 100)
        await asyncio.sleep(0)
        assert await body.piece(1) == b"x" * 100
        await asyncio.sleep(0.03)


async def test_a_floor_of_nothing_lets_a_body_trickle() -> None:
    """Turned off, it leaves silence alone to end a body."""
    body = Body(lambda: None, terms(rate=0, window=0.01, grace=0))
    for _ in range(5):
        asyncio.get_running_loop().call_later(0.02, body.add, b"x")
        assert await body.piece(1) == b"x"
    with pytest.raises(BodyTooSlow):
        await body.whole(1, ValueError)


async def test_who_takes_all_of_a_body_is_not_told_of_its_pieces() -> None:
    """Its sender is asked to go on once, however many pieces follow."""
    asked: list[int] = []
    body = Body(lambda: asked.append(body.size), terms(), announced=4 * SMALL)
    whole = asyncio.create_task(body.whole(4 * SMALL, ValueError))
    for _ in range(4):
        await asyncio.sleep(0)
        body.add(b"x" * SMALL)
    body.end()
    assert await whole == b"x" * 4 * SMALL and asked == [0]


async def test_pieces_put_the_end_of_silence_off() -> None:
    """A body that has begun is refused as late as one that has not, and one that is too long at once."""
    body = Body(lambda: None, terms())
    whole = asyncio.create_task(body.whole(2, ValueError))
    await asyncio.sleep(0)
    body.add(b"x")
    with pytest.raises(BodyTooSlow, match=r"silent for 0\.2 s"):
        await whole
    whole = asyncio.create_task(body.whole(2, ValueError))
    await asyncio.sleep(0)
    body.add(b"xx")
    with pytest.raises(ValueError):
        await whole


# --- memory -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def no_place_ahead(buffers: RequestBuffers) -> AsyncIterator[None]:
    """Memory is full, and somebody else goes ahead of all who wait."""
    held = HeldBytes(buffers)
    held.add(buffers._limit - buffers.used + 1)
    await buffers.room(held, lambda: None)
    assert held.ahead
    held.add(-held.size)
    try:
        yield
    finally:
        held.release()


@asynccontextmanager
async def half_sent(front: Adapter, size: int) -> AsyncIterator[RawClient]:
    """A client that has sent so many bytes of a body twice as large, all of which have come."""
    used, buffers = front.app.bodies.buffers.used, front.app.bodies.buffers
    async with front.client() as client:
        await client.initialize()
        await client.send("POST", call_body() + b" " * size, content_length=str(2 * size))
        await until(lambda: buffers.used >= min(used + size, buffers._limit))
        yield client


async def test_bodies_wait_while_others_fill_the_memory(in_session: StartRoad) -> None:
    """The socket of one that waits is not read; when another has gone it comes in, and is answered."""
    async with in_session(core={"max_buffered_bytes": "1Mi"}) as (_, front, client):
        buffers = front.app.bodies.buffers
        async with no_place_ahead(buffers), half_sent(front, 900 * KIB):
            sent = asyncio.create_task(client.request("POST", call_body() + b" " * MIB))
            await until(lambda: buffers._waiting)
            assert buffers.used <= MIB + 512 * KIB and not sent.done()
        # Whoever filled the memory has left.
        head, answer = await sent
        assert (head.status, answer) == (200, result(1))
        assert buffers.used == 0


async def test_what_cannot_even_wait_is_503(in_session: StartRoad) -> None:
    """It names the setting and says when to come again; small bodies are served all the same."""
    async with in_session(core={"max_buffered_bytes": "128Ki"}) as (_, front, client):
        async with half_sent(front, 128 * KIB):
            head, body = await client.request("POST", call_body() + b" " * 100 * KIB)
            assert head.status == 503 and head["retry-after"] == "1"
            assert error_of(body)["code"] == -32015
            assert "core.max_buffered_bytes" in error_of(body)["message"]
        async with front.client() as client, half_sent(front, 128 * KIB):
            await client.initialize()
            assert (await client.call())[1] == result(1)
            # Most clients send a head and then its body.
            await client.send("POST", content_length=str(len(call_body())))
            for start in range(0, len(call_body()), 20):
                await asyncio.sleep(0.01)
                await client.send_more(call_body()[start : start + 20])
            assert (await client.head()).status == 200
        await until(lambda: front.app.bodies.buffers.used == 0)


async def test_who_waits_in_vain_is_refused() -> None:
    """After its patience; and it leaves nothing behind."""
    agreed = terms(limit=SMALL + 1)
    held, body = Body(lambda: None, agreed), Body(lambda: None, agreed)
    for each, size in ((held, 1000), (body, SMALL + 1)):
        each.add(b"x" * size)
        each.count()
    async with no_place_ahead(agreed.buffers):
        with pytest.raises(BuffersFull, match=r"bytes that core\.max_buffered_bytes"):
            await body.whole(MIB, ValueError)
        with pytest.raises(BuffersFull):
            body.take()
            await body.piece(1)
    body.release()
    held.release()
    assert agreed.buffers.used == 0


async def test_who_waits_comes_in_turn_as_there_is_room() -> None:
    """Not all at once: each gets room for a read."""
    agreed = terms(limit=10 * MIB, patience=5)
    held = [Body(lambda: None, agreed) for _ in range(11)]
    for each in held:
        each.add(bytes(MIB))
        each.count()
    order: list[int] = []

    async def wait(number: int) -> None:
        await agreed.buffers.room(HeldBytes(agreed.buffers), lambda: None)
        order.append(number)
        agreed.buffers.add(256 * KIB)

    async with no_place_ahead(agreed.buffers):
        waiting = [asyncio.create_task(wait(number)) for number in range(12)]
        await asyncio.sleep(0)
        held.pop().release()
        await asyncio.sleep(0.1)
        assert order == [0]
        held.pop().release()
        await asyncio.sleep(0)
        assert 4 <= len(order) <= 5
        while held:
            held.pop().release()
        await asyncio.gather(*waiting)
    assert order == list(range(12))


async def test_decompressed_bodies_count(in_session: StartRoad) -> None:
    """A few hundred bytes that become a megabyte are a megabyte."""
    seen: list[int] = []

    async def script(exchange: Exchange) -> None:
        seen.append(front.app.bodies.buffers.used)
        await exchange.json(result(1))

    async with in_session(script, core={"max_buffered_bytes": "1Mi"}) as (_, front, client):
        body = gzip.compress(call_body() + b" " * MIB)
        await client.request("POST", body, content_encoding="gzip")
        assert seen[0] > MIB
        body = gzip.compress(call_body() + b" " * 2 * MIB)
        head, text = await client.request("POST", body, content_encoding="gzip")
        assert head.status == 503 and "core.max_buffered_bytes" in error_of(text)["message"]
        await until(lambda: front.app.bodies.buffers.used == 0)


@pytest.mark.parametrize("size", [100, SMALL * 2, MIB])
async def test_a_body_counts_until_its_exchange_is_over(in_session: StartRoad, size: int) -> None:
    """While the upstream thinks it is held; a small one that comes whole costs no count."""
    thinking, go = asyncio.Event(), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        thinking.set()
        await go.wait()
        await exchange.json(result(1))

    async with in_session(script) as (_, front, client):
        body = call_body() + b" " * size
        asked = asyncio.create_task(client.request("POST", body))
        await thinking.wait()
        assert front.app.bodies.buffers.used == (len(body) if size > SMALL else 0)
        go.set()
        await asked
        assert front.app.bodies.buffers.used == 0


async def test_who_leaves_unread_is_noticed(in_session: StartRoad) -> None:
    """A client from which nothing is read is looked for, as no read would tell that it has gone."""

    async with in_session(silent) as (_, front, client):
        await client.send("POST", call_body())
        # The sign of an end stands behind all that was sent, so that has to fit the system's buffers.
        await client.send("POST", call_body() + b" " * 100 * KIB)
        await until(lambda: front.app.bodies.buffers.used)
        client.close()
        await until(lambda: not front.app.bodies.buffers.used)


async def test_nobody_keeps_a_body_that_is_not_read(in_session: StartRoad) -> None:
    """A GET that brings a megabyte costs none, however long its stream is open."""
    script = beginning()
    async with in_session(script) as (_, front, client):
        await client.send("GET", b" " * MIB, content_length=str(2 * MIB))
        assert (await client.head()).status == 200
        assert front.app.bodies.buffers.used == 0


def bodies_in_memory() -> int:
    return sum(isinstance(each, Body) for each in gc.get_objects())


ENDS = {
    "half sent": None,
    "asked to go on": None,
    "too large": None,
    "waiting for the upstream": None,
    "streaming": None,
    "answered": b"",
    "broken": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    "broken stream": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\n:",
}


@pytest.mark.parametrize("read", [False, True], ids=["piped", "read"])
@pytest.mark.parametrize("end", ENDS)
async def test_nothing_waits_for_the_collector(road: StartRoad, end: str, read: bool) -> None:
    """With the collector off, no body outlives its request, however that ends: nothing is kept by a cycle."""
    came = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        came.set()
        if end == "answered":
            await exchange.json(result(1))
            return
        if end == "streaming":
            await exchange.begin_stream()
        elif ENDS[end]:
            await exchange.send(ENDS[end] or b"")
            exchange.break_off()
            return
        await exchange.gone()

    async def once(front: Adapter) -> None:
        async with front.client() as client:
            await client.initialize()
            if end == "half sent":
                await client.send("POST", b" " * 200 * KIB, content_length=str(MIB))
                await until(lambda: front.app.bodies.buffers.used)
            elif end == "too large":
                await client.send("POST", b" " * 200 * KIB, content_length=str(100 * MIB))
                assert (await client.head()).status == 413
            elif end == "asked to go on":
                await client.send("POST", content_length="1000", expect="100-continue")
                assert (await client.head()).status == 100
            else:
                await client.send("POST", call_body() + b" " * 200 * KIB)
                await came.wait()
                if end not in ("waiting for the upstream", "streaming"):
                    await client.head()
            came.clear()
        up.seen.clear()

    makes = {"type": "artifact_producer", "tools": ["tool"], "output_locator": {"mode": "embedded"}}
    server = {"adapters": [makes]} if read else {}
    async with road(script, server=server) as (up, front, _):
        await once(front)
        gc.collect()
        gc.freeze()  # only what comes now is looked through
        gc.disable()
        try:
            for _ in range(5):
                await once(front)
            # What belongs to the last event of a connection goes with the loop's next turns.
            await until(lambda: bodies_in_memory() == 0)
            assert front.app.bodies.buffers.used == 0
        finally:
            gc.enable()
