"""Lines of stdio: any slicing gives the same lines, and a line that is too long costs no memory."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.wire.line_messages import Line, LineReader, LongLine
from tests.wire.pieces import sliced

FRAGMENTS = [b"\n", b"\r\n", b"\r", b"\n\n", b"{}", b'{"id":1}', b"a", b" ", b"\0", b"\xff\xfe", b"x" * 9]
streams = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(b"".join)
limits = st.integers(1, 12)


def read(pieces: list[bytes], limit: int) -> list[Line]:
    reader = LineReader(limit)
    return [line for piece in pieces for line in reader.feed(piece)] + reader.end()


def expected(stream: bytes, limit: int) -> list[Line]:
    """The same by the plainest means."""
    whole = [each[:-1] if each.endswith(b"\r") else each for each in stream.split(b"\n")]
    return [
        each if len(each) <= limit else LongLine(len(each), each[:256], each[-256:]) for each in whole if each
    ]


@given(streams, st.lists(st.integers(1, 7), min_size=1, max_size=5), limits)
@example(b"1234\r\n", [5], 4)
@example(b"1234\r5\n", [5], 4)
@example(b"1234\r", [5], 4)
@example(b"x" * 600 + b"\r\n", [1], 4)
def test_slicing_never_changes_the_lines(stream: bytes, steps: list[int], limit: int) -> None:
    """Lines come out as they were written, wherever the pipe cut them."""
    assert read(sliced(stream, steps), limit) == expected(stream, limit) == read([stream], limit)


@given(st.lists(st.binary(min_size=1, max_size=700), max_size=8), st.lists(st.integers(1, 300), min_size=1))
def test_the_ends_of_a_long_line_are_kept(written: list[bytes], steps: list[int]) -> None:
    """Its size and its first and last bytes do not depend on the slicing either."""
    stream = b"\n".join(written)
    assert read(sliced(stream, steps), 20) == expected(stream, 20)


@given(streams, st.lists(st.integers(1, 7), min_size=1, max_size=5), limits)
def test_no_more_than_the_limit_is_held(stream: bytes, steps: list[int], limit: int) -> None:
    """The incomplete line in memory is as long as a line may be, and one byte that may be the CR of its end."""
    reader = LineReader(limit)
    for piece in sliced(stream, steps):
        reader.feed(piece)
        assert reader.held <= limit + 1


def test_crlf_and_empty_lines_are_tolerated() -> None:
    """CRLF ends a line like LF; a CR elsewhere belongs to the line."""
    assert read([b'\n\r\n{"a":\r1}\r\n\n{}\n'], 100) == [b'{"a":\r1}', b"{}"]


def test_a_line_that_is_too_long_is_reported_once() -> None:
    """The lines around it come out; of itself only its size and its ends do, when it ends."""
    reader = LineReader(10)
    assert reader.feed(b'{}\n{"id":7,"res') == [b"{}"]
    assert reader.feed(b"ult" * 1000) == []
    assert reader.held == 0
    (long, after) = reader.feed(b'"id":8}\n[]\n')
    assert isinstance(long, LongLine)
    assert (long.size, long.head[:8], long.tail[-8:]) == (12 + 3000 + 7, b'{"id":7,', b't"id":8}')
    assert after == b"[]"


def test_what_is_left_at_the_end_is_a_line() -> None:
    """A message whose line end is missing still counts, once."""
    reader = LineReader(100)
    assert reader.feed(b"{}\n[1") == [b"{}"]
    assert reader.end() == [b"[1"]
    assert reader.end() == []


@pytest.mark.parametrize("piece", [b"x" * 65536, b"x\n" * 32768], ids=["no line end", "short lines"])
def test_memory_does_not_grow_with_the_stream(piece: bytes) -> None:
    """A hundred MiB leave nothing behind."""
    reader = LineReader(1 << 20)
    reader.feed(piece)
    tracemalloc.start()
    for _ in range(1600 if piece.startswith(b"xx") else 100):
        reader.feed(piece)
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 4 << 20
    assert peak < 8 << 20


@pytest.mark.timed
def test_the_cost_is_linear() -> None:
    """A line of eight times the length in pieces of a kilobyte takes no more than twice as long by the byte."""

    def cost(kilobytes: int) -> float:
        best = float("inf")
        for _ in range(5):
            reader, piece = LineReader(1 << 30), b"x" * 1024
            begin = time.process_time()
            for _ in range(kilobytes):
                reader.feed(piece)
            reader.feed(b"\n")
            best = min(best, time.process_time() - begin)
        return best / kilobytes

    assert cost(32_000) < 2 * cost(4_000) + 1e-6
