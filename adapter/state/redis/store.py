"""The store: rows in the partitions of a Redis, changed by scripts, and every change told to other replicas.

The state of the server at start: the format that the rows have there, and settings with which rows may be lost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

import orjson

from adapter.errors import StoreUnavailable
from adapter.state.port import (
    Change,
    Conflict,
    Delete,
    Put,
    Row,
    StoreListener,
    TableFull,
    group_of_all,
    tell_all,
)
from adapter.state.redis import scripts
from adapter.state.redis.dialer import NOT_OPEN, Dialer, LinkLost
from adapter.state.redis.layout import (
    FORMAT,
    Layout,
    PartitionRows,
    announcement_word,
    change_word,
    decoded_row,
    decoded_word,
    encoded_due,
    first_rows,
    group_ranges,
    key_ranges,
)
from adapter.state.redis.nodes import RedisNodes, RedisTimes

EVICTS = (
    "The maxmemory-policy of Redis is {}: when its memory is full it deletes sessions and records of files. Set it to "
    "noeviction."
)
FORGETS = (
    "Redis keeps no log of its writes (appendonly no): when it stops, sessions and records of files since its last "
    "snapshot are lost. Set appendonly to yes."
)


async def check_server(nodes: RedisNodes, layout: Layout) -> None:
    """Write the row of the format if there is none, and tell nothing to nobody.

    Raises StoreUnavailable for any format but the own one, and for a server without the commands or the rights.
    """
    # In a script it would fail after the rows were written.
    await nodes.ask(0, b"SPUBLISH", layout.channels[0], b"")
    own = {"format": FORMAT, "partitions": layout.partitions}
    await nodes.ask(0, b"SET", layout.format, orjson.dumps(own), b"NX")
    found = _format(await nodes.ask(0, b"GET", layout.format, reads=True))
    if found["format"] > FORMAT:
        raise StoreUnavailable(
            f"The state in Redis was written by a newer version of the adapter (format {found['format']}, this one"
            f" reads {FORMAT}): upgrade, or set another state_persistence.redis.key_base."
        )
    if found["partitions"] != layout.partitions:
        raise StoreUnavailable(
            f"The state in Redis has {found['partitions']} partitions, and this version of the adapter writes"
            f" {layout.partitions}: set another state_persistence.redis.key_base."
        )


def _format(row: Any) -> dict[str, int]:
    try:
        match orjson.loads(row):
            case {"format": int(number), "partitions": int(partitions)}:
                return {"format": number, "partitions": partitions}
    except (ValueError, TypeError):
        pass
    raise StoreUnavailable(
        "The keys in Redis were written by another program: set another state_persistence.redis.key_base."
    )


async def server_warnings(nodes: RedisNodes) -> list[str]:
    """Sentences on settings of the server with which rows may be lost; none where it does not tell its settings."""
    policy, log = await asyncio.gather(_setting(nodes, b"maxmemory-policy"), _setting(nodes, b"appendonly"))
    found = [EVICTS.format(policy)] if policy not in (None, "noeviction") else []
    return [*found, FORGETS] if log == "no" else found


async def _setting(nodes: RedisNodes, name: bytes) -> str | None:
    try:
        match await nodes.ask(0, b"CONFIG", b"GET", name, reads=True):
            case [_, bytes(value)]:
                return value.decode()
    except StoreUnavailable:
        # Many services forbid CONFIG.
        pass
    return None


MOST_TOUCHED = 500
"""Rows of one script that touches rows: a server does nothing else meanwhile."""

MICROSECONDS = 1_000_000
"""In a second."""

_BY_KEY, _BY_DUE = attrgetter("key"), attrgetter("due", "key")


class RedisStore:
    """A Store that replicas share. What ``put`` has returned is as durable as the server keeps it.

    No write is sent twice. All methods belong to the event loop that called ``open``. ``warn`` gets a sentence on
    settings of the server with which state may be lost, once for each ``open``, on a server that cannot be heard, and
    once for each table in which something was found that is no row. That counts as absent, for reads and writes.
    Rows of the tables ``expiring`` go by themselves some time after they are due; listeners are not told.
    """

    shared = True

    def __init__(
        self,
        dialer: Dialer,
        layout: Layout,
        times: RedisTimes | None = None,
        warn: Callable[[str], None] = lambda _: None,
        expiring: Collection[str] = (),
    ) -> None:
        self.listeners: list[StoreListener] = []
        self._dialer = dialer
        self._layout = layout
        self._times = times or RedisTimes()
        self._warn = warn
        self._expiring = expiring
        self._origin = secrets.token_urlsafe(9)
        self._nodes: RedisNodes | None = None
        self._refusal = ""
        self._foreign: set[str] = set()

    def __repr__(self) -> str:
        return f"<RedisStore: {'closed' if self._nodes is None else self._nodes}>"

    async def open(self) -> None:
        """Connect. Also raises StoreUnavailable for a newer format, or another number of partitions."""
        if self._nodes is not None:
            return
        nodes = RedisNodes(self._dialer, self._layout, self._times, self._hear, self._unknown, self._refused)
        try:
            await nodes.open()
            await check_server(nodes, self._layout)
            for sentence in await server_warnings(nodes):
                self._warn(sentence)
        except BaseException:
            await nodes.close()
            raise
        self._nodes = nodes

    async def close(self) -> None:
        nodes, self._nodes = self._nodes, None
        if nodes is not None:
            await nodes.close()

    # --- rows -------------------------------------------------------------------------------------------------

    async def get(self, table: str, key: str) -> Row | None:
        partition = self._layout.partition_of_key(key)
        name = key.encode()
        rows = self._layout.keys_of(table, partition).rows
        cell = await self._open_nodes().ask(partition, b"HGET", rows, name, reads=True)
        return None if cell is None else self._row(table, name, cell)

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        (version,) = await self._change([Put(table, key, value, due, expected)])
        return Row(key, value, version, due)

    async def commit(self, changes: Sequence[Change]) -> list[Row]:
        if not changes:
            return []
        group_of_all(changes)
        versions = await self._change(changes)
        return [
            Row(change.key, change.value, version, change.due)
            for change, version in zip(changes, versions, strict=True)
            if isinstance(change, Put)
        ]

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        (gone,) = await self._change([Delete(table, key, expected)], absent=b"g")
        return gone == 1

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        rows: dict[int, list[bytes]] = {}
        for key, due in dues.items():
            rows.setdefault(self._layout.partition_of_key(key), []).extend((key.encode(), encoded_due(due)))
        nodes = self._open_nodes()
        await asyncio.gather(
            *(
                nodes.run(
                    number, scripts.TOUCH, self._layout.keys_of(table, number)[::2], words[at : at + most]
                )
                for most in (2 * MOST_TOUCHED,)
                for number, words in rows.items()
                for at in range(0, len(words), most)
            )
        )

    async def _change(self, changes: Sequence[Change], *, absent: bytes = b"d") -> list[int]:
        """What each change did: the version written, or the number of rows deleted. Raises Conflict, TableFull.

        ``absent`` is the kind of a deletion.
        """
        partition = self._layout.partition_of_key(changes[0].key)
        tables = list(dict.fromkeys(change.table for change in changes))
        keys = [self._layout.channels[partition]]
        for table in tables:
            keys += self._layout.keys_of(table, partition)
        expiring = next((place for place, table in enumerate(tables) if table in self._expiring), None)
        words = [b"" if expiring is None else b"%d" % (2 + 3 * expiring)]
        for change in changes:
            place = b"%d" % (2 + 3 * tables.index(change.table))
            expected = b"" if change.expected is None else b"%d" % change.expected
            name = change.key.encode()
            if isinstance(change, Delete):
                words += (place, absent, name, b"", b"", expected, b"")
            else:
                most = b"" if change.most is None else b"%d" % change.most
                words += (place, b"p", name, change.value, encoded_due(change.due), expected, most)
        word = change_word(self._origin, ((change.table, change.key) for change in changes))
        try:
            done = await self._open_nodes().run(partition, scripts.COMMIT, keys, [word, *words])
        except (LinkLost, asyncio.CancelledError):
            self._doubt(changes)
            raise
        if not isinstance(done, list):
            raise (
                TableFull("the group has as many rows as it may have")
                if done == b"full"
                else Conflict(done.decode())
            )
        return done

    def _doubt(self, changes: Sequence[Change]) -> None:
        """Take note of a write that may be done, now or later: its word is heard as that of another replica."""
        self._origin = secrets.token_urlsafe(9)
        for change in changes:
            self._tell(methodcaller("row_changed", change.table, change.key))

    # --- many rows --------------------------------------------------------------------------------------------

    async def scan(
        self, table: str, *, group: str | None = None, after: str = "", limit: int = 500
    ) -> list[Row]:
        fetch = partial(self._scanned, self._open_nodes(), table, group, after)
        return await first_rows(fetch, self._partitions(group), limit, _BY_KEY)

    async def overdue(self, table: str, now: float, *, limit: int = 500) -> list[Row]:
        fetch = partial(self._late, self._open_nodes(), table, encoded_due(now))
        return await first_rows(fetch, self._partitions(None), limit, _BY_DUE)

    async def count(self, table: str, *, group: str | None = None) -> int:
        nodes = self._open_nodes()
        counts = []
        for number in self._partitions(group):
            index = self._layout.keys_of(table, number).keys
            if group is None:
                counts.append(nodes.ask(number, b"ZCARD", index, reads=True))
            else:
                for low, high in group_ranges(group):
                    counts.append(nodes.ask(number, b"ZLEXCOUNT", index, low, high, reads=True))
        return sum(await asyncio.gather(*counts))

    def _partitions(self, group: str | None) -> Sequence[int]:
        return range(self._layout.partitions) if group is None else (self._layout.partition_of(group),)

    async def _scanned(
        self, nodes: RedisNodes, table: str, group: str | None, after: str, read: PartitionRows, most: int
    ) -> tuple[list[bytes], list[Row]]:
        ranges = key_ranges(group, after if read.last is None else read.last.decode(errors="surrogateescape"))
        keys = self._layout.keys_of(table, read.partition)[:2]
        words = [b"%d" % most, *(end for ends in ranges for end in ends)]
        return self._rows(table, await nodes.run(read.partition, scripts.SCAN, keys, words, reads=True))

    async def _late(
        self, nodes: RedisNodes, table: str, now: bytes, read: PartitionRows, most: int
    ) -> tuple[list[bytes], list[Row]]:
        keys = self._layout.keys_of(table, read.partition)[::2]
        words = (now, b"%d" % read.entries, b"%d" % most)
        return self._rows(table, await nodes.run(read.partition, scripts.OVERDUE, keys, words, reads=True))

    async def spend(self, table: str, key: str, most: int, window: float) -> float:
        partition = self._layout.partition_of_key(key)
        words = (b"%d" % most, b"%d" % (window * MICROSECONDS))
        wait = await self._open_nodes().run(
            partition, scripts.SPEND, (self._layout.spent(table, key),), words
        )
        return int(wait) / MICROSECONDS

    # --- other replicas ---------------------------------------------------------------------------------------

    def announce(self, topic: str, body: bytes) -> None:
        if self._nodes is not None:
            partition = self._layout.partition_of(topic)
            word = announcement_word(self._origin, topic, body)
            self._nodes.tell(partition, b"SPUBLISH", self._layout.channels[partition], word)

    def _hear(self, message: bytes) -> None:
        word = decoded_word(message)
        if word is None or word.origin == self._origin:
            return
        if word.topic is not None:
            self._tell(methodcaller("announced", word.topic, word.body))
        elif word.rows is None:
            self._unknown()
        else:
            for row in word.rows:
                self._tell(methodcaller("row_changed", *row))

    def _unknown(self) -> None:
        self._tell(methodcaller("rows_unknown"))

    def _refused(self, sentence: str) -> None:
        if sentence != self._refusal:
            self._refusal = sentence
            self._warn(f"Changes by other replicas cannot be heard. {sentence}")

    def _tell(self, tell: Callable[[StoreListener], None]) -> None:
        tell_all(self.listeners, tell)

    def _open_nodes(self) -> RedisNodes:
        if self._nodes is None:
            raise StoreUnavailable(NOT_OPEN)
        return self._nodes

    def _row(self, table: str, name: bytes, cell: bytes) -> Row | None:
        """The row of a cell; None for bytes that no adapter has written, so that they harm no other row."""
        try:
            return decoded_row(name, cell)
        except ValueError:
            if table not in self._foreign:
                self._foreign.add(table)
                self._warn(f"Something else than the adapter has written into its table {table!r}.")
            return None

    def _rows(self, table: str, answer: Any) -> tuple[list[bytes], list[Row]]:
        names, cells = answer
        rows = [
            row
            for name, cell in zip(names, cells, strict=False)
            if cell is not None and (row := self._row(table, name, cell)) is not None
        ]
        return names, rows
