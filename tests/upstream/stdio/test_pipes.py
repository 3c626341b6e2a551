"""The two ends of a child's pipes on real pipes: what comes out is what went in, in any slicing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.errors import LimitReached
from adapter.upstream.stdio.pipes import (
    LINES_AT_ONCE,
    MOST_BYTES,
    MOST_MESSAGES,
    TURN_SECONDS,
    LinePipe,
    MessagePipe,
)
from adapter.wire.line_messages import Line
from tests.waiting import until

IDLE_TURN = 0.0001
"""Seconds of a turn of the loop in which nothing is to be done, at most."""


def pipe() -> tuple[int, int]:
    """A pipe whose two ends do not block."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing


class Reading:
    """A line pipe, what it handed on, and the number of turns that took."""

    def __init__(self, descriptor: int, take: Callable[[Line], None] | None = None) -> None:
        self.lines: list[Line] = []
        self.ended = asyncio.Event()
        self.pipe = LinePipe(descriptor, 1 << 20, take or self.lines.append, self.ended.set)


async def test_a_pipe_begins_paused() -> None:
    """Whoever makes it is ready before the first line comes."""
    reading, writing = pipe()
    end = Reading(reading)
    os.write(writing, b"1\n2\n")
    await asyncio.sleep(0.01)
    assert end.lines == []
    end.pipe.resume()
    os.close(writing)
    await end.ended.wait()
    assert end.lines == [b"1", b"2"]
    assert end.pipe.ended
    end.pipe.close()


async def test_some_lines_are_handed_on_in_a_turn() -> None:
    """Then everything else that the loop has to do comes first."""
    reading, writing = pipe()
    end = Reading(reading)
    os.write(writing, b"x\n" * (3 * LINES_AT_ONCE))
    os.close(writing)
    counts: set[int] = set()
    end.pipe.resume()
    while not end.ended.is_set():
        counts.add(len(end.lines))
        await asyncio.sleep(0)
    assert {LINES_AT_ONCE, 2 * LINES_AT_ONCE, 3 * LINES_AT_ONCE} <= counts
    assert all(count % LINES_AT_ONCE == 0 for count in counts)
    end.pipe.close()


async def test_lines_that_take_long_are_handed_on_one_by_one() -> None:
    """An owner that tells a thousand clients of each line does not hold up everything else."""
    reading, writing = pipe()
    counts: set[int] = set()
    lines: list[Line] = []

    def take(line: Line) -> None:
        lines.append(line)
        end = time.thread_time() + TURN_SECONDS
        while time.thread_time() < end:
            pass

    end = Reading(reading, take)
    os.write(writing, b"x\n" * 5)
    os.close(writing)
    end.pipe.resume()
    while not end.ended.is_set():
        counts.add(len(lines))
        await asyncio.sleep(0)
    assert counts == {0, 1, 2, 3, 4, 5}
    end.pipe.close()


@pytest.mark.timed
@pytest.mark.parametrize("data", [b"x\n" * 100, b"\r\n" * 30_000])
async def test_a_writer_that_never_stops_has_half_of_the_loop(data: bytes) -> None:
    """Whether its lines take long or hold nothing, so that everybody else has the other half."""
    reading, writing = pipe()

    def take(_: Line) -> None:
        end = time.thread_time() + 0.0002
        while time.thread_time() < end:
            pass

    def write() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, data)

    end = Reading(reading, take)
    asyncio.get_running_loop().add_writer(writing, write)
    end.pipe.resume()
    worked, began = 0.0, time.monotonic()
    while time.monotonic() < began + 0.5:
        before = time.thread_time()
        await asyncio.sleep(0)
        worked += max(0.0, time.thread_time() - before - IDLE_TURN)
    assert 0.05 < worked < 0.58 * (time.monotonic() - began)
    asyncio.get_running_loop().remove_writer(writing)
    os.close(writing)
    end.pipe.close()


@pytest.mark.parametrize("act", ["pause", "discard", "close"])
async def test_no_line_follows_once_it_is_not_wanted(act: str) -> None:
    """Also if the owner decides that while it takes a line."""
    reading, writing = pipe()
    lines: list[Line] = []

    def take(line: Line) -> None:
        lines.append(line)
        if line == b"2":
            getattr(end.pipe, act)()

    end = Reading(reading, take)
    os.write(writing, b"1\n2\n3\n4\n")
    os.close(writing)
    end.pipe.resume()
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert lines == [b"1", b"2"]
    assert end.ended.is_set() == (act == "discard")
    if act == "pause":
        end.pipe.resume()
        await end.ended.wait()
        assert lines == [b"1", b"2", b"3", b"4"]
    end.pipe.close()


async def test_an_owner_that_fails_gets_the_next_line() -> None:
    """An error while a line is taken is the loop's to report, and stops nothing."""
    reading, writing = pipe()
    lines: list[Line] = []
    errors: list[object] = []

    def take(line: Line) -> None:
        lines.append(line)
        if line == b"1":
            raise RuntimeError("of the owner")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    end = Reading(reading, take)
    os.write(writing, b"1\n2\n")
    os.close(writing)
    end.pipe.resume()
    await end.ended.wait()
    assert lines == [b"1", b"2"]
    assert [str(error) for error in errors] == ["of the owner"]
    end.pipe.close()


# A CR at its end would be one of the line's end.
message = st.binary(max_size=200_000).map(lambda data: data.translate(None, b"\r\n"))
messages = st.lists(message, max_size=6)


@given(early=messages, late=messages)
@settings(max_examples=30)
def test_messages_stay_whole_and_in_order(early: list[bytes], late: list[bytes]) -> None:
    """None is ever cut, doubled, mixed or lost, whether it came before the pipe was there or while it was full."""

    async def converse() -> list[Line]:
        reading, writing = pipe()
        end, out = Reading(reading), MessagePipe("test")
        for message in early:
            out.put(message)
        out.open(writing)
        for message in late:
            out.put(message)
        end.pipe.resume()
        await until(lambda: not out.waiting)
        out.close()
        await end.ended.wait()
        end.pipe.close()
        return end.lines

    assert asyncio.run(converse()) == [message for message in (*early, *late) if message]


async def test_only_so_much_waits_for_a_child_that_does_not_read() -> None:
    """One message more is refused with the name of the server, and so are more bytes; a single one may be larger."""
    _, writing = pipe()
    out = MessagePipe("test")
    out.put(b"x" * (MOST_BYTES + 1))
    with pytest.raises(LimitReached, match='"test" does not read what it is sent: 1 messages'):
        out.put(b"{}")
    out.close()
    for _ in range(MOST_MESSAGES):
        out.put(b"{}")
    with pytest.raises(LimitReached, match=f"{MOST_MESSAGES} messages"):
        out.put(b"{}")
    out.open(writing)
    out.put(b"{}")
    out.close()


async def test_waiting_messages_are_forgotten_when_nobody_reads() -> None:
    """The reader closes its end while messages wait for it: the descriptor is closed, and they are held no longer."""
    reading, writing = pipe()
    out = MessagePipe("test")
    out.open(writing)
    for _ in range(3):
        out.put(b"x" * 100_000)
    assert out.waiting == 3
    os.close(reading)
    await until(lambda: not out.waiting)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writing)


async def test_pipe_that_closed_while_it_was_full_is_as_one_that_is_not_there_yet() -> None:
    """Its owner hears of the end of the child a moment later."""
    reading, writing = pipe()
    out = MessagePipe("test")
    out.open(writing)
    out.put(b"x" * 100_000)
    out.close()
    out.put(b"{}")
    assert out.waiting == 1
    os.close(reading)
