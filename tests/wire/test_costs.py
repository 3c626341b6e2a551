"""What hostile input costs whoever reads it: as much as it is long, and no more."""

from __future__ import annotations

import contextlib
import gc
import time
import tracemalloc
from collections.abc import Callable

import orjson
import pytest

from adapter.errors import AdapterError
from adapter.rules.tools.lists import Entries
from adapter.wire.ambiguity import doubt_of_answer, leads_elsewhere, may_hold
from adapter.wire.envelope import ODD_VALUES, answers, parse, read_envelope, read_response
from adapter.wire.names import RESULT, repeats_a_key
from adapter.wire.outline import member, outline, responds
from adapter.wire.piecewise import at_once
from adapter.wire.scan import has_more_values, values_at_most
from adapter.wire.spans import Drop, Insert, edit, find
from adapter.wire.sse import SseReader, encode, replace_data

pytestmark = pytest.mark.timed

MIB = 1 << 20
SMALL = MIB // 16
"""Bytes that are compared with twice as many: enough for a square to show, and few enough for every test run."""

ALLOWED = 3.0
"""Times as long as half of it something may take; a square would take four times as long."""


def filled(unit: bytes, size: int) -> bytes:
    return b",".join([unit] * (size // (len(unit) + 1)))


def keys(size: int) -> bytes:
    return b",".join(b'"%x":0' % number for number in range(size // 10))


def message(arguments: bytes, kind: bytes = b'"method":"tools/call","params"') -> bytes:
    return b'{"jsonrpc":"2.0","id":1,%s:{"name":"echo","id":1,"name2":{"name":1},"arguments":%s}}' % (
        kind,
        arguments,
    )


TEXTS: dict[str, Callable[[int], bytes]] = {
    "pairs": lambda size: b"[" + filled(b"[]", size) + b"]",
    "four levels": lambda size: b"[" + filled(b"[[[[]]]]", size) + b"]",
    "ten levels": lambda size: b"[" + filled(b"[" * 10 + b"]" * 10, size) + b"]",
    "nine hundred levels": lambda size: b"[" + filled(b"[" * 900 + b"]" * 900, size) + b"]",
    "levels with texts": lambda size: b"[" + filled(b'["[",' * 50 + b"0" + b"]" * 50, size) + b"]",
    "objects": lambda size: b"[" + filled(b'{"a":{"a":0}}', size) + b"]",
    "keys": lambda size: b"{" + keys(size) + b"}",
    "one key": lambda size: b"{" + filled(b'"name":0', size) + b"}",
    "escaped keys": lambda size: b"{" + filled(b'"\\u0061":0', size) + b"}",
    "escapes": lambda size: b'"' + b"\\u0041" * (size // 6) + b'"',
    "backslashes": lambda size: b'"' + b"\\\\" * (size // 2) + b'"',
    "quotes": lambda size: b'"' + b'\\"' * (size // 2) + b'"',
    "texts": lambda size: b"[" + filled(b'"a\\"b"', size) + b"]",
    "half characters": lambda size: b'"' + b"\\ud800" * (size // 6) + b'"',
    "marks": lambda size: b'{"' + "\u0301".encode() * (size // 2) + b'":0}',
    "long numbers": lambda size: b"[" + filled(b"1" * 3999, size) + b"]",
    "spaces": lambda size: b"[" + b" " * size + b"]",
}

READERS: dict[str, Callable[[bytes], object]] = {
    "read_envelope": lambda text: read_envelope(message(text)),
    "read_envelope of a response": lambda text: read_envelope(message(text, b'"result"')),
    "read_response": lambda text: read_response(message(text, b'"result"')),
    "answers": lambda text: answers(message(text, b'"result"'), 1),
    "doubt_of_answer": lambda text: doubt_of_answer(message(text, b'"result"'), RESULT),
    "leads_elsewhere": lambda text: leads_elsewhere(
        message(text), (("params", 0), ("arguments", 0), ("name", 1), ("path", 0))
    ),
    "may_hold": lambda text: may_hold(parse(text), "result", "tools"),
    "find": lambda text: find(message(text), ("params", "arguments", 5, "a")),
    "edit": lambda text: edit(message(text), [Insert(("params", "a"), b"1"), Drop(("params", "name"))]),
    "repeats": lambda text: repeats_a_key(text),
    "has_more_values": lambda text: has_more_values(text, 1000),
    "outline": lambda text: at_once(outline(b'{"result":{"tools":[%s]}}' % text, "tools", 1 << 40)),
    "outline beside the list": lambda text: at_once(outline(b'{"x":%s}' % text, "tools", 1 << 40)),
    "responds": lambda text: at_once(responds(message(text, b'"result"'), 1)),
    "member": lambda text: at_once(member(b'{"x":%s}' % text, "name")),
    "entries": lambda text: rewritten(b'{"result":{"tools":[%s]}}' % text),
    "one event": lambda text: replace_data(SseReader(1 << 30).feed(encode(text))[0], b"a\n" * 9),
}


def rewritten(response: bytes) -> None:
    """Write a list anew, each second entry left out."""
    found = at_once(outline(response, "tools", 1 << 40))
    assert found is not None
    entries = Entries(response, found, "tools", b"")
    for place, span in enumerate(found.spans):
        if place % 2:
            entries.drop()
        else:
            entries.keep(span, response[slice(*span)])
    entries.written()


def took(work: Callable[[bytes], object], text: bytes) -> float:
    """The least time (seconds) of three; what is refused counts as well."""
    times = []
    gc.disable()
    try:
        for _ in range(3):
            began = time.thread_time()
            with contextlib.suppress(AdapterError):
                work(text)
            times.append(time.thread_time() - began)
    finally:
        gc.enable()
    return min(times)


def assert_linear(work: Callable[[bytes], object], text: Callable[[int], bytes], what: str) -> None:
    half, whole = (took(work, text(size)) for size in (SMALL, 2 * SMALL))
    if whole > ALLOWED * half + 0.005:
        # Something else took the machine's time; a square stays one.
        half, whole = (took(work, text(size)) for size in (8 * SMALL, 16 * SMALL))
    assert whole <= ALLOWED * half + 0.005, (what, half, whole)


@pytest.mark.parametrize("reader", READERS)
def test_twice_as_much_takes_twice_as_long(reader: str) -> None:
    """Brackets, escapes, keys, equal keys, numbers, spaces: of none of them more than of as many."""
    for name, text in TEXTS.items():
        assert_linear(READERS[reader], text, name)


@pytest.mark.parametrize(
    "unit", [b"data: a\n\n", b"data: a\r\n\r\n", b"a\n", b"id: 1\rdata:\r\r", b":\n\n", b"\r", b"\n"]
)
@pytest.mark.parametrize("chunk", [7, 4096, 1 << 20])
def test_streams_take_as_long_as_they_are(unit: bytes, chunk: int) -> None:
    """However they are cut, and where nothing in them ends."""

    def fed(text: bytes) -> None:
        reader = SseReader(MIB, skip=True)
        for start in range(0, len(text), chunk):
            reader.feed(text[start : start + chunk])

    assert_linear(fed, lambda size: unit * (size // len(unit)), "a stream")


def test_a_long_text_is_read_at_the_price_of_parsing_it() -> None:
    """A file in base64 is nearly all of its message, and nothing in it has to be counted."""
    long = message(b'"' + b"QUJD" * (MIB // 2) + b'"')
    assert took(lambda text: (values_at_most(text), read_envelope(text)), long) < 2.2 * took(
        orjson.loads, long
    )


def test_odd_json_of_many_values_is_not_read() -> None:
    """What only the slower parser takes would hold everybody up."""
    few = b'["\\ud800"' + b",0" * (ODD_VALUES - 10) + b"]"
    assert read_values(few) == ODD_VALUES - 9
    with pytest.raises(AdapterError, match=f"at most {ODD_VALUES} values"):
        parse(b'["\\ud800"' + b",0" * ODD_VALUES + b"]")
    assert read_values(b"[0" + b",0" * ODD_VALUES + b"]") == ODD_VALUES + 1


def read_values(text: bytes) -> int:
    return len(parse(text))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"0", 1),
        (b"[]", 2),
        (b'{"a":[1,2],"b":{}}', 6),
        (b'["a,[{","\\",[","\\\\",[","\\\\"]', 6),
        (b'"' + b"," * 600_000 + b'"', 1),
        (b'["' + b"x" * 600_000 + b'"' + b",0" * 199 + b"]", 201),
        (b'["' + b'","' * 600_000 + b'"]', 600_002),
    ],
)
def test_values_are_counted_outside_of_texts(text: bytes, values: int) -> None:
    """An empty array or object counts as two; long texts are counted in slices."""
    assert not has_more_values(text, values)
    assert has_more_values(text, values - 1) or values <= 1
    assert values_at_most(text) >= values


def test_a_long_answer_is_not_made_into_values_again() -> None:
    """Its values take several times its bytes, and the caller has them already."""
    text = filled(b'{"a":[0.5]}', SMALL)
    answer = b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{"v":[%s]}}}' % text
    tracemalloc.start()
    try:
        assert doubt_of_answer(answer) is None
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < len(answer) / 2
