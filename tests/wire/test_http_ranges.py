"""Ranges and conditions: one part, the whole, or a refusal, never a byte outside the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.wire.http_ranges import Unsatisfiable, if_range_allows, not_modified, read_range

TAG = '"5f1b-2a"'


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-499", (0, 500)),
        ("bytes=500-999", (500, 500)),
        ("bytes=999-999", (999, 1)),
        ("bytes=9-9999", (9, 991)),
        ("bytes=400-", (400, 600)),
        ("bytes=0-", (0, 1000)),
        ("bytes=-1", (999, 1)),
        ("bytes=-5000", (0, 1000)),
        ("BYTES=0-0", (0, 1)),
        ("bytes= 0-1 ", (0, 2)),
        ("bytes=,0-1,", (0, 2)),
        ("bytes=000000000000000000000001-2", (1, 2)),
        ("bytes=1-" + "9" * 5_000, (1, 999)),
        ("bytes=-" + "9" * 5_000, (0, 1000)),
    ],
)
def test_one_range(header: str, expected: tuple[int, int]) -> None:
    """A range is cut to the file, however far it reaches."""
    assert read_range(header, 1000) == expected


WHOLE = [
    *(None, "", "bytes", "bytes=", "bytes=-", "bytes=,", "0-1", "=0-1", "bytes:0-1", "items=0-1"),
    *("bytes=0-1,4-5", "bytes=0-1, 4-", "bytes=0-,-1", "bytes=5-2", "bytes=--5", "bytes=-5-", "bytes=0-1-2"),
    *("bytes=a-b", "bytes=0x1-2", "bytes=1.5-2", "bytes=+1-2", "bytes=1 -2", "bytes=1_0-20", "bytes=0-1;"),
    *(
        "bytes=\N{ARABIC-INDIC DIGIT ONE}-",
        "bytes=²-",
        "bytes=0-1\n",
        "bytes=0-1\0",
        "\ud800",
        "bytes=\ud800",
    ),
    "bytes=" + "0-1," * 5_000,
]
BEHIND = ["bytes=1000-", "bytes=1000-1000", "bytes=4000-", "bytes=-0", f"bytes={'9' * 30}-"]


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        *((header, 1000, None) for header in WHOLE),
        *((header, 1000, Unsatisfiable(1000)) for header in BEHIND),
        *((header, 0, Unsatisfiable(0)) for header in ("bytes=0-", "bytes=0-0", "bytes=-0")),
        ("bytes=-5", 0, None),
    ],
)
def test_no_range(header: str | None, size: int, expected: Unsatisfiable | None) -> None:
    """Several ranges, other units and what is no range ask for the whole; one behind the end is refused with the size,
    so that the client may ask again. An empty file has no first byte, and its last ones are the whole of it."""
    assert read_range(header, size) == expected


positions = st.integers(0, 2**70) | st.integers(0, 40)


@given(st.integers(0, 40), positions, positions | st.none())
def test_a_range_is_what_a_slice_is(size: int, first: int, last: int | None) -> None:
    """The bytes a client gets are those the numbers name."""
    content = bytes(range(size))
    found = read_range(f"bytes={first}-{'' if last is None else last}", size)
    if last is not None and last < first:
        assert found is None
    elif isinstance(found, tuple):
        assert content[found[0] : found[0] + found[1]] == content[first : None if last is None else last + 1]
        assert found[1] >= 1
    else:
        assert found == Unsatisfiable(size)
        assert first >= size


@given(
    st.text("bytes=0123456789-, \t") | st.text(st.characters(exclude_categories=[])), st.integers(0, 2**40)
)
def test_no_header_reaches_outside_the_file(text: str, size: int) -> None:
    """Whatever the header holds, what is answered lies within the file."""
    for header in (text, f"bytes={text}"):
        found = read_range(header, size)
        if isinstance(found, tuple):
            first, length = found
            assert 0 <= first < first + length <= size


@pytest.mark.parametrize(
    ("header", "etag", "holds"),
    [
        *((header, TAG, True) for header in (None, TAG, f" {TAG}\t")),
        *((header, TAG, False) for header in ("", "*", '"other"', "5f1b-2a", f"W/{TAG}", f"{TAG}, {TAG}")),
        *((header, TAG, False) for header in ("Wed, 21 Oct 2015 07:28:00 GMT", "\ud800")),
        (f"W/{TAG}", f"W/{TAG}", False),
    ],
)
def test_a_range_of_the_same_file_holds(header: str | None, etag: str, holds: bool) -> None:
    """Without If-Range, or with the file's tag, the part is sent; with another tag, a weak one, several or a date the
    client gets the whole file instead of a wrong part."""
    assert if_range_allows(header, etag) is holds


@pytest.mark.parametrize(
    ("header", "etag", "has"),
    [
        *((header, TAG, True) for header in (TAG, f"W/{TAG}", "*", " * ", f'"a", {TAG}', f'"",{TAG}')),
        (f'"a,b" ,W/{TAG},"c"', TAG, True),
        *((header, TAG, False) for header in (None, "", '"other"', "5f1b-2a", '"5f1b-2a', "**")),
        *((header, TAG, False) for header in ('"5f1b-2a-more"', f"'{TAG[1:-1]}'")),
        ('"a,b"', '"a,b"', True),
        ('"a,b"', '"a"', False),
        ('"a,b"', '"b"', False),
    ],
)
def test_a_file_that_the_client_has_is_not_sent(header: str | None, etag: str, has: bool) -> None:
    """One of the tags it names is enough, weak or not; a comma may stand inside a tag without cutting it."""
    assert not_modified(header, etag) is not_modified(header, f"W/{etag}") is has


@given(st.text(st.characters(exclude_categories=[])))
def test_no_condition_makes_reading_fail(header: str) -> None:
    """Whatever the headers hold, there is an answer."""
    if_range_allows(header, TAG)
    not_modified(header, TAG)
