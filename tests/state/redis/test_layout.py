"""Keys, cells and messages as bytes."""

from __future__ import annotations

import asyncio
import math
import random
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.state.port import Row, group_of
from adapter.state.redis.layout import (
    LARGEST,
    LONGEST_WORD,
    Layout,
    PartitionRows,
    Word,
    announcement_word,
    change_word,
    decoded_row,
    decoded_word,
    encoded_due,
    first_rows,
    key_ranges,
    page_size,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PATHS = st.text(st.sampled_from("ab/0!-\x00é"), max_size=6)


@given(TEXT, st.binary(), st.integers(1, 2**53), st.none() | st.floats(allow_nan=False))
def test_a_cell_holds_a_row(key: str, value: bytes, version: int, due: float | None) -> None:
    """Whatever a row holds, it comes back from its cell as it was."""
    cell = b"%d %s %s" % (version, encoded_due(due) or b"-", value)
    assert decoded_row(key.encode(), cell) == Row(key, value, version, due)


@pytest.mark.parametrize(
    "cell",
    [
        b"",
        b"1",
        b"1 -",
        b"x - ",
        b"1 x ",
        b"0 - ",
        b"01 - ",
        b"1_0 - ",
        b"1 0x10 ",
        b"1 1f ",
        b"1 -- ",
        b"\xff\x00",
    ],
)
def test_a_foreign_cell_is_refused(cell: bytes) -> None:
    """What no version of the adapter has written is no row."""
    with pytest.raises(ValueError):
        decoded_row(b"key", cell)


def test_a_due_time_is_a_number() -> None:
    """Not-a-number orders nothing, and Redis would refuse it in the middle of a script."""
    with pytest.raises(ValueError, match="is a number"):
        encoded_due(math.nan)


@given(st.lists(PATHS), st.none() | st.sampled_from(["", "a", "a!", "ab", "é", "a/", "/"]), PATHS)
def test_ranges_hold_the_keys_of_a_group(keys: list[str], group: str | None, after: str) -> None:
    """The ranges hold just the keys above a key, of one group or of all, and come in order."""
    wanted = {key for key in keys if key > after and group in (None, group_of(key))}
    ranges = key_ranges(group, after)
    assert {key for key in keys if any(_within(key.encode(), *ends) for ends in ranges)} == wanted
    assert [low[1:] for low, _ in ranges] == sorted(low[1:] for low, _ in ranges)


def _within(key: bytes, low: bytes, high: bytes) -> bool:
    above = key >= low[1:] if low[:1] == b"[" else key > low[1:]
    return above and (high == b"+" or (key <= high[1:] if high[:1] == b"[" else key < high[1:]))


@given(TEXT, st.lists(st.tuples(TEXT, TEXT)))
def test_a_message_names_rows(origin: str, rows: list[tuple[str, str]]) -> None:
    """Tables and keys come back as they were."""
    assert decoded_word(change_word(origin, rows)) == Word(origin, rows)


def test_a_message_has_an_end() -> None:
    """A change of more rows than a message holds names none."""
    rows = [("files", "x" * 100)] * 1000
    assert decoded_word(message := change_word("a", rows)) == Word("a")
    assert len(message) <= LONGEST_WORD


@given(TEXT, TEXT, st.binary())
def test_an_announcement_has_topic_and_body(origin: str, topic: str, body: bytes) -> None:
    """Both come back as they were, whatever bytes the body has."""
    assert decoded_word(announcement_word(origin, topic, body)) == Word(origin, None, topic, body)


@given(st.binary() | TEXT.map(str.encode))
def test_any_bytes_are_read_as_a_message_or_none(message: bytes) -> None:
    """Bytes of a stranger raise nothing."""
    decoded_word(message)


def test_groups_are_spread_evenly_and_for_good() -> None:
    """Each partition has its share, and a group has the same partition in every version."""
    layout = Layout("base", 64)
    places = [layout.partition_of(f"group-{n}") for n in range(64_000)]
    assert all(800 < places.count(number) < 1200 for number in range(64))
    assert places[:8] == PLACES
    assert layout.partition_of_key("group-1/row") == places[1]


PLACES = [24, 29, 11, 26, 6, 40, 55, 0]


def test_keys_of_a_partition_have_one_tag() -> None:
    """A cluster keeps keys with the same text in braces together."""
    layout = Layout("base", 3)
    assert layout.keys_of("t", 2) == (b"base:{2}:rows:t", b"base:{2}:keys:t", b"base:{2}:dues:t")
    assert layout.channels[2] == b"base:{2}:changes"


@given(st.lists(st.lists(st.integers(0, 999), unique=True), min_size=1, max_size=8), st.integers(0, 60))
def test_the_first_rows_of_all_partitions(partitions: list[list[int]], limit: int) -> None:
    """However rows are spread, the first ones come in order, and no page is read twice."""
    every = [[f"{n:03}-{place}" for n in sorted(numbers)] for place, numbers in enumerate(partitions)]
    gone = {key for keys in every for key in keys if hash(key) % 5 == 0}
    read: list[str] = []

    async def fetch(rows: PartitionRows, most: int) -> tuple[list[bytes], list[Row]]:
        names = every[rows.partition][rows.entries : rows.entries + most]
        read.extend(names)
        return [name.encode() for name in names], [
            Row(name, b"", 1, None) for name in names if name not in gone
        ]

    found = asyncio.run(first_rows(fetch, range(len(every)), limit, attrgetter("key")))
    there = sorted(key for keys in every for key in keys if key not in gone)
    assert [row.key for row in found] == there[:limit]
    assert len(read) == len(set(read))


def test_a_page_of_many_partitions_reads_few_rows() -> None:
    """Of 64 partitions with rows spread at random, the first 500 rows take less than twice as many reads."""
    spread = random.Random(1)
    every: list[list[str]] = [[] for _ in range(64)]
    for n in range(100_000):
        every[spread.randrange(64)].append(f"{n:06}")
    read = 0

    async def fetch(rows: PartitionRows, most: int) -> tuple[list[bytes], list[Row]]:
        nonlocal read
        names = every[rows.partition][rows.entries : rows.entries + most]
        read += len(names)
        return [name.encode() for name in names], [Row(name, b"", 1, None) for name in names]

    found = asyncio.run(first_rows(fetch, range(64), 500, attrgetter("key")))
    assert [row.key for row in found] == [f"{n:06}" for n in range(500)]
    assert read < 1000


def test_a_page_is_bounded() -> None:
    """However many rows are wanted, a server reads no more at once than it should."""
    assert [page_size(limit, 1) for limit in (1, 500, 10**6)] == [1, 500, LARGEST]
    assert page_size(1, 64) == 1
