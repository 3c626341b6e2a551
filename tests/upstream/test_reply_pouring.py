"""How an answer is poured: without a task for each chunk, at the sink's pace, and with every ending of a read."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from adapter.errors import UpstreamSilent
from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import UpstreamReply, pour
from adapter.upstream.reply import PAUSE_ABOVE, PER_TURN, ByteShare, HttpReply
from adapter.upstream.timeouts import ReadTimer
from tests.upstream.raw_peer import GET, OK, PATIENCE, POST, Peer, Site, sent

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
MEBIBYTE = 1 << 20


class Glass:
    """A sink that holds ``room`` bytes and takes no more until it is emptied; ``taken`` is all it ever got."""

    def __init__(self, room: int = MEBIBYTE) -> None:
        self.room = room
        self.taken: list[bytes] = []
        self.waits = 0
        self._held = 0
        self._changed = asyncio.Event()

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        self.taken.append(chunk)
        self._held += len(chunk)
        self._changed.set()
        return self._held < self.room

    async def drained(self) -> None:
        self.waits += 1
        self._changed.set()
        while self._held >= self.room:
            self._changed.clear()
            await self._changed.wait()

    def empty(self) -> None:
        self._held = 0
        self._changed.set()

    async def has(self, size: int) -> None:
        """Wait until this many bytes have come."""
        async with asyncio.timeout(PATIENCE):
            while sum(map(len, self.taken)) < size:
                self._changed.clear()
                await self._changed.wait()

    async def is_full(self) -> None:
        """Wait until somebody waits for it."""
        async with asyncio.timeout(PATIENCE):
            while not self.waits:
                self._changed.clear()
                await self._changed.wait()


class Broken(Glass):
    """A sink whose owner made a mistake."""

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        raise ZeroDivisionError(f"{len(chunk)} bytes are too many")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def begun(upstream: HttpUpstream, site: Site, head: bytes = CHUNKED) -> tuple[Peer, UpstreamReply]:
    """An answer of which only the head has come."""
    peer, sending = await sent(upstream, site, GET)
    await peer.says(head)
    return peer, await sending


async def test_what_had_come_before_is_poured_first(upstream: HttpUpstream, site: Site) -> None:
    """A reader may read, then pour the rest, then learn again that this was the end."""
    peer, reply = await begun(upstream, site)
    await peer.says(chunk(b"read "))
    assert await reply.read(PATIENCE) == b"read "
    await peer.says(chunk(b"poured"), END)
    glass = Glass()
    await pour(reply, glass, PATIENCE)
    assert b"".join(glass.taken) == b"poured"
    assert await reply.read(PATIENCE) == b""


async def test_full_sink_slows_the_upstream(upstream: HttpUpstream, site: Site) -> None:
    """While the sink is full nothing is put, little is held, and the peer's socket fills up; then all arrives."""
    size = 64 * MEBIBYTE
    peer, reply = await begun(upstream, site, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
    assert isinstance(reply, HttpReply)
    glass = Glass(room=1)
    pouring = asyncio.create_task(pour(reply, glass, PATIENCE))

    async def speak() -> None:
        for _ in range(size // MEBIBYTE):
            peer.writer.write(bytes(MEBIBYTE))
            await peer.writer.drain()

    speaking = asyncio.create_task(speak())
    await glass.is_full()
    done, _ = await asyncio.wait([speaking], timeout=0.3)
    assert not done
    assert len(glass.taken) == 1
    assert reply.buffered <= PAUSE_ABOVE + MEBIBYTE
    while not pouring.done():
        glass.empty()
        await asyncio.sleep(0)
    await pouring
    await speaking
    assert sum(map(len, glass.taken)) == size
    assert max(map(len, glass.taken)) <= PAUSE_ABOVE + MEBIBYTE


async def test_end_behind_a_full_sink_is_no_end_yet(upstream: HttpUpstream, site: Site) -> None:
    """The connection serves the next request while what had come still waits; all of it is poured."""
    peer, reply = await begun(upstream, site)
    glass = Glass(room=5)
    pouring = asyncio.create_task(pour(reply, glass, PATIENCE))
    await peer.says(chunk(b"first"))
    await glass.is_full()
    await peer.says(chunk(b" then"), chunk(b" last") + END)
    sending = asyncio.create_task(upstream.send(POST, PATIENCE))
    await peer.request()
    await peer.says(OK)
    assert (await sending).whole == b"{}"
    assert not pouring.done()
    assert glass.taken == [b"first"]
    glass.room = MEBIBYTE
    glass.empty()
    await pouring
    assert b"".join(glass.taken) == b"first then last"
    assert site.accepted == 1


async def test_silence_is_an_error_and_leaves_the_answer_intact(upstream: HttpUpstream, site: Site) -> None:
    """Every byte is a sign of life; after silence it can be poured again."""
    peer, reply = await begun(upstream, site)
    glass = Glass()
    pouring = asyncio.create_task(pour(reply, glass, 0.2))
    for number in range(1, 5):
        await asyncio.sleep(0.1)
        await peer.says(chunk(b"x"))
        await glass.has(number)
    with pytest.raises(UpstreamSilent):
        await pouring
    await peer.says(chunk(b"y"), END)
    await pour(reply, glass, PATIENCE)
    assert b"".join(glass.taken) == b"xxxxy"


async def test_silence_behind_a_full_sink_is_the_sinks(upstream: HttpUpstream, site: Site) -> None:
    """The upstream is given its whole time from the moment it is listened to again."""
    peer, reply = await begun(upstream, site)
    glass = Glass(room=1)
    pouring = asyncio.create_task(pour(reply, glass, 0.1))
    await peer.says(chunk(b"x"))
    await glass.is_full()
    done, _ = await asyncio.wait([pouring], timeout=0.25)
    assert not done
    glass.empty()
    with pytest.raises(UpstreamSilent):
        await pouring


async def test_cancelled_pouring_puts_nothing_more(upstream: HttpUpstream, site: Site) -> None:
    """Who was poured to may be gone: the rest stays with the answer, which is then aborted."""
    peer, reply = await begun(upstream, site)
    glass = Glass()
    pouring = asyncio.create_task(pour(reply, glass, PATIENCE))
    await peer.says(chunk(b"one"))
    await glass.has(3)
    pouring.cancel()
    await asyncio.wait([pouring])
    await peer.says(chunk(b"two"))
    assert await reply.read(PATIENCE) == b"two"
    assert glass.taken == [b"one"]
    reply.abort()
    await peer.left()


async def test_mistake_of_a_sink_is_its_owners(upstream: HttpUpstream, site: Site) -> None:
    """What a sink raises comes out of the pouring, whoever called it, and the connection is dropped."""
    peer, reply = await begun(upstream, site)
    pouring = asyncio.create_task(pour(reply, Broken(), PATIENCE))
    await asyncio.sleep(0)
    await peer.says(chunk(b"one"))
    with pytest.raises(ZeroDivisionError):
        await pouring
    await peer.left()


class Line:
    """The connection of an answer whose chunks the test adds itself."""

    sends = False

    def __init__(self) -> None:
        self.read_timer = ReadTimer(asyncio.get_running_loop())

    def resume(self) -> None:
        """See Carrier."""

    def abort(self) -> None:
        """See Carrier."""


async def test_many_sinks_that_take_more_at_once_share_each_turn() -> None:
    """However many clients read on at the same moment, a turn of the loop moves few bytes; all of them arrive."""
    piece, number = bytes(PAUSE_ABOVE), 64
    replies = [HttpReply(Line()) for _ in range(number)]
    glasses = [Glass(room=1) for _ in replies]
    for reply in replies:
        reply.add(piece)
    pouring = asyncio.gather(
        *(pour(reply, glass, None) for reply, glass in zip(replies, glasses, strict=True))
    )
    for glass in glasses:
        await glass.is_full()
    for reply in replies:
        reply.add(piece)
        reply.complete()
    for glass in glasses:
        glass.empty()
        glass.room = MEBIBYTE
    moved = [number * len(piece)]
    while not pouring.done():
        await asyncio.sleep(0)
        moved.append(sum(len(each) for glass in glasses for each in glass.taken))
    await pouring
    assert moved[-1] == 2 * number * len(piece)
    # The test's own turn may lie between those of two shares.
    most = max(later - before for before, later in pairwise(moved))
    assert most <= 2 * (PER_TURN + len(piece))


async def test_many_answers_that_come_at_once_share_each_turn() -> None:
    """However many servers send at the same moment to clients that keep up, a turn of the loop moves few bytes, and
    all of them arrive in order.
    """
    piece, number = bytes(PAUSE_ABOVE), 64
    lines = [Line() for _ in range(number)]
    replies = [HttpReply(line) for line in lines]
    glasses = [Glass(room=1 << 30) for _ in replies]
    pouring = asyncio.gather(
        *(pour(reply, glass, None) for reply, glass in zip(replies, glasses, strict=True))
    )
    await asyncio.sleep(0)
    moved = [0]
    for last in (False, True):
        for line, reply in zip(lines, replies, strict=True):
            reply.add(piece + b"2" * last)
            if last:
                reply.complete()
            reply.push()
            line.read_timer.wake()
        moved.append(sum(len(each) for glass in glasses for each in glass.taken))
    while not pouring.done():
        await asyncio.sleep(0)
        moved.append(sum(len(each) for glass in glasses for each in glass.taken))
    await pouring
    assert all(b"".join(glass.taken) == piece + piece + b"2" for glass in glasses)
    assert max(later - before for before, later in pairwise(moved)) <= 2 * (PER_TURN + 2 * len(piece) + 1)


async def test_who_gave_up_takes_no_share() -> None:
    """One that left while it waited is passed over, and those behind it have the same turn."""
    share = ByteShare(asyncio.get_running_loop())
    first, gone, behind = (asyncio.ensure_future(share.take(size)) for size in (PER_TURN, PER_TURN, 1))
    await asyncio.sleep(0)
    assert first.done() and "2 pieces waiting" in repr(share)
    gone.cancel()
    await behind
    assert gone.cancelled()
    assert repr(share) == "<ByteShare: 1 bytes taken, 0 pieces waiting>"
