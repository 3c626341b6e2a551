"""Memory that all bodies share: who waits for it, who goes on, and who is told that there is none."""

from __future__ import annotations

import asyncio

import pytest

from adapter.edge.http.bodies import Body, BodyLimits
from adapter.edge.http.buffers import HeldBytes, RequestBuffers
from adapter.errors import BuffersFull
from tests.edge.conftest import Adapter, StartRoad
from tests.edge.http.test_bodies import KIB, MIB, no_place_ahead
from tests.edge.raw import Head, call_body, result
from tests.waiting import until

# --- bodies for which there is no room --------------------------------------------------------------------------


async def test_no_way_of_reading_takes_a_refused_body_for_whole() -> None:
    """Its end may have come before its first reader does."""
    body = Body(lambda: None)
    body.add(bytes(30 * KIB))
    body.refuse()
    body.end()
    for read in (body.whole(MIB, ValueError), body.piece(1)):
        with pytest.raises(BuffersFull):
            await read
    with pytest.raises(BuffersFull):
        body.take()


# --- waiting ----------------------------------------------------------------------------------------------------


async def test_who_leaves_while_it_waits_is_forgotten(in_session: StartRoad) -> None:
    """Also while nothing is given back: a crowd that comes and goes leaves nothing behind."""
    async with in_session(core={"max_buffered_bytes": "1Mi"}) as (_, front, client):
        buffers = front.app.bodies.buffers
        buffers.add(MIB + 1)
        async with no_place_ahead(buffers):
            await client.send("POST", call_body() + b" " * 20 * KIB, content_length=str(90 * KIB))
            await until(lambda: buffers._waiting)
            client.close()
            await until(lambda: not buffers._waiting)
            assert buffers.full


# --- going ahead ------------------------------------------------------------------------------------------------

SHARE = 300_000


async def send_in_turns(front: Adapter, pieces: int) -> tuple[Head, bytes]:
    """Send a body of ``SHARE`` bytes so that others come between its pieces, and return the answer."""
    body = call_body() + b" " * (SHARE - len(call_body()))
    async with front.client() as client:
        await client.initialize()
        await client.send("POST", content_length=str(SHARE))
        for start in range(0, SHARE, SHARE // pieces):
            await client.send_more(body[start : start + SHARE // pieces])
            await asyncio.sleep(0.01)
        head = await client.head()
        return head, await client.reader.readexactly(int(head["content-length"]))


async def test_bodies_do_not_wait_for_each_other(road: StartRoad) -> None:
    """Each holds a part, and all of them together fill the memory: one goes ahead, and then all are answered."""
    async with road(core={"max_buffered_bytes": "1Mi"}) as (_, front, _):
        async with asyncio.timeout(20):
            told = await asyncio.gather(*(send_in_turns(front, 10) for _ in range(6)))
        assert [head.status for head, _ in told] == [200] * 6
        assert front.app.bodies.buffers.used == 0


async def test_who_goes_ahead_and_sends_nothing_loses_its_place(in_session: StartRoad) -> None:
    """It is refused as soon as somebody else waits, and its memory is free: silence may not fill it."""
    async with in_session(core={"max_buffered_bytes": "1Mi"}) as (_, front, client):
        buffers = front.app.bodies.buffers
        async with front.client() as silent:
            await silent.initialize()
            await silent.send("POST", content_length=str(2 * MIB))
            for _ in range(5):
                await silent.send_more(b" " * 220_000)
            await until(lambda: buffers._ahead == 1)
            head, body = await client.request("POST", call_body() + b" " * 100 * KIB)
            assert (head.status, body) == (200, result(1))
            head = await silent.head()
            assert head.status == 503 and head["retry-after"] == "1"
        await until(lambda: buffers.used == buffers._ahead == 0)


async def test_no_more_go_ahead_than_there_is_room_for() -> None:
    """A quarter of the limit holds so many of the largest bodies; who falls back lets the next one go."""
    buffers = RequestBuffers(8 * MIB, patience=5, largest=MIB)
    buffers.add(8 * MIB + 1)
    held = [HeldBytes(buffers) for _ in range(5)]
    waiting = [asyncio.create_task(buffers.room(each, each.release)) for each in held]
    await asyncio.sleep(0)
    assert [each.ahead for each in held] == [True, True, False, False, False]
    held[0].fall_back()
    held[0].fall_back()
    held[1].release()
    assert [each.ahead for each in held] == [False, False, True, True, False]
    waiting[4].cancel()
    await asyncio.sleep(0)
    held[2].fall_back()
    assert [each.ahead for each in held] == [False, False, False, True, False]
    assert buffers._ahead == 1
    held[3].fall_back()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_goes_ahead_is_not_refused_for_those_that_come() -> None:
    """Others that come meanwhile may fill what there is above the limit; whoever has begun still ends."""
    terms = BodyLimits(RequestBuffers(MIB, patience=5))
    body, late = Body(lambda: None, terms), Body(lambda: None, terms)
    terms.buffers.add(MIB)
    body.add(bytes(30 * KIB))
    body.count()
    reading = asyncio.create_task(body.whole(MIB, ValueError))
    await asyncio.sleep(0)
    terms.buffers.add(MIB)
    body.add(bytes(30 * KIB))
    late.add(bytes(30 * KIB))
    late.count()
    assert late.overfull and not body.overfull
    body.end()
    assert len(await reading) == 60 * KIB
    body.release()
    assert terms.buffers._ahead == 0


async def test_an_upload_gives_its_place_back_with_each_piece() -> None:
    """It holds no more than that, and goes behind whoever waited meanwhile; nothing of it is refused for that."""
    terms = BodyLimits(RequestBuffers(MIB, patience=5))
    upload, other = Body(lambda: None, terms), HeldBytes(terms.buffers)
    upload.add(bytes(30 * KIB))
    upload.count()
    await upload.piece(1)
    terms.buffers.add(MIB + 1)
    coming = asyncio.create_task(upload.piece(1))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(terms.buffers.room(other, other.release))
    await asyncio.sleep(0)
    assert upload.held is not None and upload.held.ahead and not other.ahead
    upload.add(b"next")
    assert await coming == b"next"
    await waiting
    assert other.ahead and not upload.held.ahead
    other.release()
    upload.release()
