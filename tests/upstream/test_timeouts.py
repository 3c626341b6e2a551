"""What ends the silence of an upstream, and what only keeps its connection alive; by a clock that is set by hand."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

import pytest

from adapter.upstream.timeouts import PERSON_SECONDS, SLOW, SLOW_BYTES, ReadTimer
from tests.cpu_time import least_cpu

LIMIT = 10.0

KEEP_ALIVES = [
    b": ping\n\n",
    b": ping - 2026-01-01 00:00:00+00:00\r\n\r\n",
    b":\r\r",
    b"\n",
    b"\r\n\r\n",
    b"id: 7\n\n",
    b"retry: 3000\nid: 7\n\n",
    b"id: 7\nretry: 3000\ndata: \n\n",
    b"data\n\n",
    b"event: ping\n\n",
    b": data: {}\n\n",
    b"id: data: 7\n\n",
    b"\xef\xbb\xbf: ping\n\n",
]
MESSAGES = [
    b"data: {}\n\n",
    b"data:{}\r\n\r\n",
    b"event: message\r\ndata: {}\r\n\r\n",
    b": ping\n\ndata: {}\n\n",
    b"id: 7\rdata:   {}\r\r",
    b"\xef\xbb\xbfdata: {}\n\n",
    b"data: \ndata: {}\n\n",
]


class Alarm:
    """A call that is due at some time."""

    def __init__(self, when: float, ring: Callable[[], None]) -> None:
        self.when = when
        self.ring = ring
        self.is_off = False

    def cancel(self) -> None:
        self.is_off = True


class Clock:
    """As much of a loop as a timer uses."""

    def __init__(self) -> None:
        self.now = 0.0
        self._alarms: list[Alarm] = []

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[bool]:
        return asyncio.get_running_loop().create_future()

    def call_at(self, when: float, ring: Callable[[], None]) -> Alarm:
        self._alarms.append(Alarm(when, ring))
        return self._alarms[-1]

    def goes_on(self, seconds: float) -> None:
        """Let time pass, and ring what is due."""
        self.now += seconds
        for alarm in [each for each in self._alarms if each.when <= self.now]:
            self._alarms.remove(alarm)
            if not alarm.is_off:
                alarm.ring()


class Wait:
    """Waits for an answer as a reader does: chunk by chunk, or with ``poured`` all the time."""

    def __init__(self, *, poured: bool, is_event_stream: bool = True, is_packed: bool = False) -> None:
        self.clock = Clock()
        self.timer = ReadTimer(cast(asyncio.AbstractEventLoop, self.clock))
        self.timer.expect(is_event_stream, is_packed=is_packed)
        self._poured = poured
        self._waiter = self.timer.start(LIMIT)

    def comes(self, piece: bytes, after: float) -> bool:
        """Have a piece come after so many seconds; False where the wait had ended before."""
        self.clock.goes_on(after)
        if self._waiter.done():
            return False
        if not self._poured:
            self.timer.wake()
        self.timer.hear(piece)
        if not self._poured:
            self._waiter = self.timer.start(LIMIT)
        return True

    def seconds(self, pieces: Iterable[bytes], apart: float) -> float:
        """Seconds until the wait ended, or all had come."""
        for piece in pieces:
            if not self.comes(piece, apart):
                break
        return self.clock.now


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("poured", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize("said", KEEP_ALIVES)
async def test_what_has_no_data_ends_no_silence(said: bytes, size: int, poured: bool) -> None:
    """Comments, blank lines, ids and times to come back in are no message, however they are cut."""
    wait = Wait(poured=poured)
    pieces = cut(said * 100, size)
    assert wait.seconds(pieces, 0.9 * LIMIT / len(pieces)) == pytest.approx(0.9 * LIMIT)
    assert not wait.comes(said, 0.2 * LIMIT)


@pytest.mark.parametrize("poured", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize("said", MESSAGES)
async def test_a_message_ends_the_silence(said: bytes, size: int, poured: bool) -> None:
    """Each message gives its server the whole time again, however it is cut."""
    wait = Wait(poured=poured)
    for _ in range(3 * SLOW):
        assert wait.comes(b": ping\n\n", 0.9 * LIMIT)
        for piece in cut(said, size):
            assert wait.comes(piece, 0.0)
    assert not wait.comes(said, LIMIT)


def packing(wbits: int) -> Callable[[bytes], bytes]:
    """Return the function that compresses what a server sends at once."""
    packer = zlib.compressobj(wbits=wbits)
    return lambda data: packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize("poured", [False, True])
@pytest.mark.parametrize("wbits", [15, 31])
async def test_a_compressed_stream_is_looked_into(wbits: int, poured: bool) -> None:
    """Progress in few bytes keeps a long call alive, and comments do not."""
    wait, pack = Wait(poured=poured, is_packed=True), packing(wbits)
    for step in range(5 * SLOW):
        for piece in cut(pack(b'data: {"progress":%d}\n\n' % step), 7):
            assert wait.comes(piece, 0.0)
        assert wait.comes(pack(b": ping - %d\n\n" % step), 0.9 * LIMIT)
    assert not wait.comes(pack(b": ping\n\n"), 0.2 * LIMIT)


@pytest.mark.parametrize("damage", [b"no gzip", packing(31)(b"\n" * (1 << 20))])
async def test_a_compressed_stream_that_cannot_be_looked_into_comes_to_an_end(damage: bytes) -> None:
    """Of what is damaged, or is far larger than it looks, all bytes count, and the look at it is short."""
    assert least_cpu(lambda: Wait(poured=True, is_packed=True).comes(damage, 0.0)) < 0.05
    wait = Wait(poured=True, is_packed=True)
    assert wait.comes(damage, 0.0)
    ended = wait.seconds([b"x"] * 1000, 0.9 * LIMIT)
    assert SLOW * LIMIT <= ended <= (SLOW + 3 + len(damage) / SLOW_BYTES) * LIMIT


@pytest.mark.parametrize("poured", [False, True])
async def test_a_large_event_in_pieces_may_take_long(poured: bool) -> None:
    """Each piece of an event is a sign of life, as long as it goes on at a pace that will end."""
    wait = Wait(poured=poured)
    assert wait.comes(b"data: {", 0.0)
    for _ in range(10 * SLOW):
        assert wait.comes(b"x" * SLOW_BYTES, 0.9 * LIMIT)


@pytest.mark.parametrize("poured", [False, True])
@pytest.mark.parametrize(("is_event_stream", "begins"), [(True, b"data: {"), (False, b"{")])
async def test_a_message_that_drips_comes_to_an_end(
    is_event_stream: bool, begins: bytes, poured: bool
) -> None:
    """A byte now and then does not hold a call for ever: neither in an event nor in a JSON answer."""
    wait = Wait(poured=poured, is_event_stream=is_event_stream)
    assert wait.comes(begins, 0.0)
    ended = wait.seconds([b"x"] * 1000, 0.9 * LIMIT)
    assert SLOW * LIMIT <= ended <= (SLOW + 3) * LIMIT


@pytest.mark.parametrize("poured", [False, True])
@pytest.mark.parametrize("size", [1, 7, 100, 1000])
@pytest.mark.parametrize("method", [b"elicitation/create", b"sampling/createMessage"])
async def test_a_question_is_given_time(method: bytes, size: int, poured: bool) -> None:
    """While somebody is to answer, a server that keeps its stream alive is waited for; its next message ends that."""
    padding = b"x" * 200
    question = b'{"jsonrpc":"2.0","id":1,"x":"%s","method":"%s","params":{"m":"%s"}}' % (
        padding,
        method,
        padding,
    )
    wait = Wait(poured=poured)
    for piece in cut(b"event: message\r\ndata: " + question + b"\r\n\r\n", size):
        assert wait.comes(piece, 0.0)
    for piece in cut(b": ping\r\n\r\n" * 10, size):
        assert wait.comes(piece, 0.9 * LIMIT)
    assert wait.comes(b"data: {}\n\n", 0.9 * LIMIT)
    assert wait.comes(b": ping\n\n", 0.9 * LIMIT)
    assert not wait.comes(b": ping\n\n", 0.2 * LIMIT)


async def test_a_question_is_not_given_all_time() -> None:
    """A tool that hangs after its question was answered does not hold its call for ever."""
    wait = Wait(poured=True)
    assert wait.comes(b'data: {"method":"elicitation/create"}\n\n', 0.0)
    ended = wait.seconds([b": ping\n\n"] * 1000, 0.9 * LIMIT)
    assert PERSON_SECONDS <= ended <= PERSON_SECONDS + 3 * LIMIT


async def test_a_question_that_is_only_told_of_is_none() -> None:
    """The name of the method in a text is written in another way."""
    wait = Wait(poured=True)
    assert wait.comes(b'data: {"text":"{\\"method\\":\\"elicitation/create\\"}"}\n\n', 0.0)
    assert wait.comes(b": ping\n\n", 0.9 * LIMIT)
    assert not wait.comes(b": ping\n\n", 0.2 * LIMIT)


@pytest.mark.parametrize("poured", [False, True])
async def test_a_slow_reader_is_no_silence(poured: bool) -> None:
    """Only the time in which somebody waits counts, also behind a comment."""
    wait = Wait(poured=poured)
    assert wait.comes(b": ping\n\n", 0.6 * LIMIT)
    wait.timer.wake()
    wait.clock.goes_on(5 * LIMIT)
    wait.timer.hear(b": ping\n\n")
    waiter = wait.timer.start(LIMIT)
    wait.clock.goes_on(0.3 * LIMIT)
    assert not waiter.done()
    wait.clock.goes_on(0.2 * LIMIT)
    assert waiter.done() and not waiter.result()


async def test_a_flood_of_blank_lines_is_looked_through_quickly() -> None:
    """A piece of the largest size that is read at once holds the loop for a few milliseconds at most."""
    wait = Wait(poured=True)
    for piece in (
        b"\n" * (1 << 18),
        b":data:" * (1 << 15),
        b"\rdata:" * (1 << 15),
        b"data:" + b" " * (1 << 18),
    ):
        assert least_cpu(partial(wait.timer.hear, piece)) < 0.05
