"""Event streams: any slicing gives the same events, and no byte is lost."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.errors import MessageTooLong
from adapter.wire.sse import SseEvent, SseReader, data_of_one, encode, replace_data, replace_id
from tests.wire.pieces import sliced

FRAGMENTS = [
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r", b"\xef\xbb\xbf"),
    *(b"data:", b"data: x", b"data", b"id: 7", b"id:", b"id: \0", b"event: e", b"event:", b"retry: 20"),
    *(b"retry: 2x", b":", b": hi", b"unknown: 1", b"a", b" ", b"\0", b"\xff"),
]
streams = st.lists(st.sampled_from(FRAGMENTS), max_size=24).map(b"".join)


def read(stream: bytes, steps: list[int] | None = None, limit: int = 10_000) -> list[SseEvent]:
    reader = SseReader(limit)
    return [event for piece in sliced(stream, steps or [len(stream) or 1]) for event in reader.feed(piece)]


def datas(stream: bytes) -> list[bytes | None]:
    return [event.data for event in read(stream)]


@given(streams, st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_slicing_never_changes_events(stream: bytes, steps: list[int]) -> None:
    """However the stream is cut, the same events come out with the same bytes, and nothing is lost."""
    whole, parts = SseReader(10_000), SseReader(10_000)
    expected = whole.feed(stream)
    got = [event for piece in sliced(stream, steps) for event in parts.feed(piece)]
    assert got == expected
    assert b"".join(event.raw for event in got) + parts.rest == stream
    assert (parts.rest, parts.inside, parts.last_id, parts.retry) == (
        *(whole.rest, whole.inside, whole.last_id),
        whole.retry,
    )


@given(streams, st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 30))
def test_skipping_depends_on_the_block_alone(stream: bytes, steps: list[int], limit: int) -> None:
    """Exactly the blocks above the limit are skipped, their ids still count, slicing changes nothing."""
    reader = SseReader(limit, skip=True)
    got = [event for piece in sliced(stream, steps) for event in reader.feed(piece)]
    expected = read(stream)
    assert [event.skipped for event in got] == [len(event.raw) > limit for event in expected]
    assert [(event.id, event.retry) for event in got] == [(event.id, event.retry) for event in expected]
    assert [event.raw for event in got if not event.skipped] == [
        e.raw for e in expected if len(e.raw) <= limit
    ]


@given(streams, st.sampled_from([b"\n\n", b"\r\n\r\n"]))
def test_data_of_one_event_is_what_a_reader_reads(stream: bytes, end: bytes) -> None:
    """Where the short way finds data, a reader finds one event, with the same data."""
    found = data_of_one(stream + end)
    if found is not None:
        assert datas(stream + end) == [found]


def test_data_of_one_event_is_found_with_either_line_end() -> None:
    """Both usual line ends are read the short way; more than one event, or a bare CR, is not."""
    assert data_of_one(b"id: 1\ndata: a\n\n") == b"a"
    assert data_of_one(b"id: 1\r\ndata: a\r\n\r\n") == b"a"
    assert data_of_one(b"data: a\n\ndata: b\n\n") is None
    assert data_of_one(b"data: a\rdata: b\n\n") is None


@example(b"data:\rdata:\n\n", b"")
@given(streams, streams.filter(lambda data: b"\r" not in data and b"\n" not in data))
@example(b"data:\rdata:\n\n", b"")
@example(b"data:\nid: 1\rdata:\n\n", b"")
@example(b"\n\xef\xbb\xbf\ndata:\n\n", b"")
def test_replacing_data_keeps_every_other_line(stream: bytes, data: bytes) -> None:
    """Only data lines change: the new event reads the same but for its data."""
    for event in read(stream):
        if event.data is None or event.lead:
            continue
        # A bare CR at the end is told from CRLF by the byte behind it, as in the stream. Only the first bytes of a
        # stream are a byte order mark, so a line stands before them.
        (changed,) = read(b":\n" + replace_data(event, data) + b":")[:1]
        assert (changed.data, changed.event, changed.id, changed.retry) == (
            *(data, event.event, event.id),
            event.retry,
        )


@given(st.binary().filter(lambda data: b"\r" not in data), st.sampled_from([None, b"7", b"x y"]))
def test_what_is_encoded_reads_back(data: bytes, name: bytes | None) -> None:
    """Data of several lines, an event name and an id survive encoding."""
    (event,) = read(encode(data, event=name, id=name))
    assert (event.data, event.event, event.id) == (data, name or b"message", name)


def test_fields_of_an_event() -> None:
    """The fields are those of the WHATWG standard, with one leading space taken off."""
    raw = b": note\nevent: progress\nid: 4\nretry: 250\ndata: {\ndata:  1}\nother: x\n\n"
    assert read(raw) == [SseEvent(raw, b"{\n 1}", b"progress", b"4", 250)]


def test_data_may_be_empty() -> None:
    """A data field without a value is data, a block without the field has none."""
    assert datas(b"data\n\ndata:\n\nid: 1\n\n: ping\n\n") == [b"", b"", None, None]


def test_bad_hints_are_ignored() -> None:
    """An id with NUL and a retry that is not all digits count as if absent."""
    (event,) = read(b"id: a\0b\nretry: 1.5\nretry: -1\nretry:\ndata: x\n\n")
    assert (event.id, event.retry, event.data) == (None, None, b"x")


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_completes_an_event_at_once(end: bytes) -> None:
    """The event is out as soon as its blank line is, whichever line end the stream uses."""
    reader = SseReader(100)
    assert [event.data for event in reader.feed(b"data: x" + end + end)] == [b"x"]
    assert not reader.inside


def test_crlf_cut_in_two_stays_one_line_end() -> None:
    """CR at the end of one chunk and LF at the start of the next are one line end of the same event."""
    reader = SseReader(100)
    assert reader.feed(b"data: x\r\n\r") == []
    assert [event.raw for event in reader.feed(b"\ndata: y")] == [b"data: x\r\n\r\n"]
    assert reader.rest == b"data: y"


def test_byte_order_mark_counts_at_the_start_only() -> None:
    """A BOM in front of the stream is no part of a field's name; further on it is."""
    assert datas(b"\xef\xbb\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\n") == [b"1", None]


def test_replaced_data_takes_the_line_end_of_the_old() -> None:
    """The first data line gives place and line end, further ones go, the rest keeps its bytes."""
    (event,) = read(b"id:1\r\ndata:a\r\n:c\r\ndata:b\r\n\r\n")
    assert replace_data(event, b"new") == b"id:1\r\ndata: new\r\n:c\r\n\r\n"


def test_data_cannot_be_replaced_where_there_is_none() -> None:
    """Replacing the data of a comment is a mistake of the caller."""
    (event,) = read(b": ping\n\n")
    with pytest.raises(ValueError, match="without data"):
        replace_data(event, b"x")


def test_event_name_of_two_lines_is_refused() -> None:
    """A name or an id cannot smuggle a line into the stream."""
    with pytest.raises(ValueError, match="line end"):
        encode(b"x", event=b"a\ndata: b")


def test_block_above_the_limit_is_refused() -> None:
    """Whole or in pieces, a block above the limit raises, and one at the limit passes."""
    block = b"data: 1234\n\n"
    assert len(read(block, limit=len(block))) == 1
    for steps in ([len(block)], [1]):
        with pytest.raises(MessageTooLong):
            read(block, steps, limit=len(block) - 1)


def test_skipped_block_keeps_no_bytes_and_its_id() -> None:
    """While an oversized block passes next to nothing is held, and its id is known at its end."""
    reader = SseReader(1000, skip=True)
    assert reader.feed(b"id: 9\ndata: ") == []
    for _ in range(100):
        assert reader.feed(b"x" * 1000) == []
        assert reader.inside
        assert len(reader.rest) < 100
    assert reader.feed(b"\n\ndata: next\n\n") == [
        SseEvent(b"", None, id=b"9", skipped=True),
        SseEvent(b"data: next\n\n", b"next"),
    ]
    assert reader.last_id == b"9"


class CountingBuffer(bytearray):
    """A buffer that counts the bytes its searches may pass over."""

    work = 0

    def find(self, sub: object, start: object = 0, end: object = None) -> int:
        self.work += len(self) - int(str(start))
        return super().find(sub, start)  # type: ignore[arg-type]  # the reader calls it with bytes and int only


def test_work_is_linear_in_the_stream() -> None:
    """An event of 4 MiB in small slices is searched about twice, not once per slice."""
    size, step = 1 << 22, 256
    reader = SseReader(size * 2)
    reader._pending = counting = CountingBuffer(b"data: ")
    for _ in range(size // step):
        assert reader.feed(b"x" * step) == []
    assert len(reader.feed(b"\n\n")) == 1
    assert counting.work < 3 * size


@given(st.binary(max_size=60), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_another_id_leaves_every_other_line(data: bytes, end: bytes) -> None:
    """Only the id lines of an event change, whatever its line ends are."""
    text = data.replace(b"\r", b"").replace(b"\n", b"")
    raw = b": note" + end + b"id: old" + end + b"data: " + text + end + b"id" + end + end
    changed = replace_id(SseEvent(raw, text), b"new")
    assert changed == raw.replace(b"id: old" + end, b"id: new" + end).replace(
        b"id" + end + end, b"id: new" + end + end
    )


@pytest.mark.timed
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_replacing_megabytes_costs_a_few_copies_of_them(end: bytes) -> None:
    """It takes a fraction of what a pattern takes to pass such a line."""
    raw = b"event: message" + end + b"data: " + b'{"a": 1}' * (2 << 20) + end + end
    (event,) = SseReader(len(raw)).feed(raw + b":")
    assert event.data is not None
    replace = partial(replace_data, event, event.data)
    passing = fastest(partial(re.compile(rb"[^\r\n]*+(?:\r\n|\n|\r)").findall, raw))
    assert replace() == raw
    assert fastest(replace) < passing / 2


def fastest(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of three runs."""
    took = []
    for _ in range(3):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)
