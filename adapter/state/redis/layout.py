"""Keys and values in Redis: the place of a row, the bytes of a row, and the bytes of a word to other replicas.

Rows are divided into partitions by their group. All keys of a partition have the same hash tag, so a cluster keeps
them on one node, and one script may change any of them.

| key | type | holds |
|---|---|---|
| ``BASE:{0}:format`` | string | number of the format and of the partitions |
| ``BASE:{P}:rows:TABLE`` | hash | key of a row -> its version, due time and value |
| ``BASE:{P}:keys:TABLE`` | sorted set | keys of the rows, all with score 0, so in order of bytes |
| ``BASE:{P}:dues:TABLE`` | sorted set | keys of the rows that have a due time, which is the score |
| ``BASE:{P}:spent:TABLE:KEY`` | list | moments that count, in microseconds, the last one first; ends with its window |

``BASE:{P}:changes`` is no key but the channel on which the changes of a partition are told.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

import orjson

from adapter.state.port import Row, group_of

FORMAT = 1
"""Number of this layout, in the row of the format."""

PARTITIONS = 64
"""Fixed with the first start of a state; a cluster spreads them over at most as many primaries."""

LONGEST_WORD = 64 << 10
"""Bytes of a message that names the rows of a change; of a change with more, only the change itself is told."""


class TableKeys(NamedTuple):
    """The three keys of a table in one partition."""

    rows: bytes
    keys: bytes
    dues: bytes


class Layout:
    """The names of keys below ``base``, with so many ``partitions``."""

    def __init__(self, base: str, partitions: int = PARTITIONS) -> None:
        self.partitions = partitions
        self.format = f"{base}:{{0}}:format".encode()
        self.channels = [f"{base}:{{{number}}}:changes".encode() for number in range(partitions)]
        self._base = base
        self._tables: dict[tuple[str, int], TableKeys] = {}

    def partition_of(self, group: str) -> int:
        """The partition of a group of rows; the same in every process."""
        digest = blake2b(group.encode(), digest_size=8).digest()
        return int.from_bytes(digest) % self.partitions

    def partition_of_key(self, key: str) -> int:
        """The partition of a row. Raises UnicodeEncodeError for a key that is no valid text."""
        return self.partition_of(group_of(key))

    def keys_of(self, table: str, partition: int) -> TableKeys:
        """The keys of a table in a partition. There are as many tables as the code has names for."""
        found = self._tables.get((table, partition))
        if found is None:
            names = (f"{self._base}:{{{partition}}}:{kind}:{table}".encode() for kind in TableKeys._fields)
            found = self._tables[table, partition] = TableKeys(*names)
        return found

    def spent(self, table: str, key: str) -> bytes:
        """The list of the moments at which a key was counted."""
        return f"{self._base}:{{{self.partition_of_key(key)}}}:spent:{table}:{key}".encode()


def encoded_due(due: float | None) -> bytes:
    """A due time as the scripts read it: a number, or nothing. Raises ValueError for one that is no number."""
    if due is None:
        return b""
    if math.isnan(due):
        raise ValueError("a due time is a number")
    return repr(float(due)).encode()


_CELL = re.compile(rb"([1-9][0-9]*) ([-0-9.e+inf]+) ")
"""The head of a cell; the scripts go by the same one, so that what is no row to a reader is none to a writer."""


def decoded_row(key: bytes, cell: bytes) -> Row:
    """The row of a field: version, due time or a dash, and the value, divided by one space each.

    Raises ValueError for bytes that no version of the adapter has written.
    """
    head = _CELL.match(cell)
    if head is None:
        raise ValueError("not a row's cell")
    version, due = head.groups()
    return Row(key.decode(), cell[head.end() :], int(version), None if due == b"-" else float(due))


def group_ranges(group: str) -> list[tuple[bytes, bytes]]:
    """The ranges of all keys of a group, as Redis writes lexical ranges."""
    if "/" in group:
        return []  # no row's group has one
    whole, inside, behind = group.encode(), f"{group}/".encode(), f"{group}0".encode()
    return [(b"[" + whole, b"[" + whole), (b"[" + inside, b"(" + behind)]


def key_ranges(group: str | None, after: str) -> list[tuple[bytes, bytes]]:
    """The ranges of keys above ``after`` of one group, or of all, in order, as Redis writes lexical ranges."""
    # A key that is no valid text is no row's, but the scan goes on behind it.
    low = after.encode(errors="surrogateescape")
    if group is None:
        return [(b"(" + low, b"+")]
    if "/" in group:
        return []  # no row's group has one
    whole, inside, behind = group.encode(), f"{group}/".encode(), f"{group}0".encode()
    ranges = [(b"[" + whole, b"[" + whole)] if low < whole else []
    if low < inside:
        ranges.append((b"[" + inside, b"(" + behind))
    elif low < behind:
        ranges.append((b"(" + low, b"(" + behind))
    return ranges


class Word(NamedTuple):
    """A message of another replica. ``rows`` are (table, key); None: any rows of the partition.

    An announcement has a ``topic`` and a ``body``.
    """

    origin: str
    rows: list[tuple[str, str]] | None = None
    topic: str | None = None
    body: bytes = b""


def change_word(origin: str, rows: Iterable[tuple[str, str]]) -> bytes:
    """The message of a change of these rows."""
    message = orjson.dumps([origin, [list(row) for row in rows]])
    return message if len(message) <= LONGEST_WORD else orjson.dumps([origin, None])


def announcement_word(origin: str, topic: str, body: bytes) -> bytes:
    """The message of an announcement: a line of JSON, and the body as it is."""
    return orjson.dumps([origin, topic, ""]) + b"\n" + body


def decoded_word(message: bytes) -> Word | None:
    """The message of a replica; None if no replica has written it."""
    line, _, body = message.partition(b"\n")
    try:
        match orjson.loads(line):
            case [str(origin), None]:
                return Word(origin)
            case [str(origin), list(rows)]:
                return Word(origin, [_named(row) for row in rows])
            case [str(origin), str(topic), _]:
                return Word(origin, topic=topic, body=body)
    except ValueError:
        pass
    return None


def _named(row: object) -> tuple[str, str]:
    match row:
        case [str(table), str(key)]:
            return table, key
    raise ValueError("a row is named by its table and its key")


LARGEST = 500
"""Rows of one page: a server does nothing else while it reads them."""


@dataclass(slots=True)
class PartitionRows:
    """The rows of a partition as far as they have been read: so many entries of its index, the last of them ``last``.

    An entry whose row is not there counts, and has no row.
    """

    partition: int
    rows: list[Row] = field(default_factory=list)
    entries: int = 0
    last: bytes | None = None
    more: bool = True


Fetch = Callable[[PartitionRows, int], Awaitable[tuple[list[bytes], list[Row]]]]
"""Read so many more entries of a partition: their keys, and the rows that are there."""


def page_size(limit: int, partitions: int) -> int:
    """Rows to read of each partition at once, when ``limit`` are wanted of all."""
    share = limit / partitions
    # Rows are spread at random: few partitions have more of the first ones than this.
    return max(1, min(limit, LARGEST, math.ceil(share + 2 * math.sqrt(share))))


async def first_rows(
    fetch: Fetch, partitions: Sequence[int], limit: int, order: Callable[[Row], Any]
) -> list[Row]:
    """The first ``limit`` rows of all partitions by ``order``, which is also the order of each partition."""
    if limit <= 0:
        return []
    size = page_size(limit, len(partitions))
    every = [PartitionRows(number) for number in partitions]
    hungry = every
    while True:
        await asyncio.gather(*(_read_on(fetch, each, size) for each in hungry))
        found = heapq.nsmallest(limit, chain.from_iterable(each.rows for each in every), key=order)
        bound = order(found[-1]) if len(found) == limit else None
        # Others have nothing left, or nothing that comes before the last row found.
        hungry = [
            each
            for each in every
            if each.more and (bound is None or not each.rows or order(each.rows[-1]) < bound)
        ]
        if not hungry:
            return found
        # Rows of one group lie together: then one partition has most of them, and would be asked very often.
        size = min(2 * size, LARGEST)


async def _read_on(fetch: Fetch, read: PartitionRows, size: int) -> None:
    names, rows = await fetch(read, size)
    read.rows += rows
    read.entries += len(names)
    read.last = names[-1] if names else read.last
    read.more = len(names) == size
