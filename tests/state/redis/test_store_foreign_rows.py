"""Bytes of others among the rows: they are no rows, and harm none."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from adapter.state.port import ABSENT, Conflict, Delete, Put, delete_overdue
from adapter.state.redis.layout import Layout
from adapter.state.redis.store import RedisStore
from tests.hosted.databases import Server
from tests.state.redis import servers

CELLS = ["garbage", "", "7", "7 ", "7 x value", "0 - value", "1_0 - value", "1 0x10 v", "1 1f v"]


class Shared:
    """A store with one partition, and the server behind it."""

    def __init__(self, server: list[Server]) -> None:
        self.warnings: list[str] = []
        self.base = f"test:{secrets.token_hex(8)}"
        self.store = RedisStore(servers.dialer(server), Layout(self.base, 1), None, self.warnings.append)
        self._server = server[0]

    def overwrite(self, key: str, cell: str) -> None:
        """Have another program write the cell of a row."""
        servers.command(self._server, "HSET", f"{self.base}:{{0}}:rows:t", key, cell)

    def add(self, kind: str, score: int, key: str) -> None:
        """Have another program write an index."""
        servers.command(self._server, "ZADD", f"{self.base}:{{0}}:{kind}:t", str(score), key)

    async def keys(self) -> list[str]:
        return [row.key for row in await self.store.scan("t")]


@pytest.fixture
async def shared(redis_single: list[Server]) -> AsyncIterator[Shared]:
    shared = Shared(redis_single)
    await shared.store.open()
    shared.warnings.clear()
    yield shared
    await shared.store.close()


@pytest.mark.parametrize("cell", CELLS)
async def test_what_is_no_row_is_absent(shared: Shared, cell: str) -> None:
    """For who reads it, and for who writes it; the rows beside it are there, and a new row takes its place."""
    for key in ("g/a", "g/b", "g/c"):
        await shared.store.put("t", key, b"1", due=5.0)
    shared.overwrite("g/b", cell)
    assert await shared.store.get("t", "g/b") is None
    assert await shared.keys() == ["g/a", "g/c"]
    assert [row.key for row in await shared.store.overdue("t", 9.0)] == ["g/a", "g/c"]
    await shared.store.touch("t", {"g/b": 7.0, "g/c": 8.0})
    assert [row.due for row in await shared.store.scan("t")] == [5.0, 8.0]
    with pytest.raises(Conflict):
        await shared.store.put("t", "g/b", b"2", expected=1)
    assert (await shared.store.put("t", "g/b", b"2", expected=ABSENT)).version == 1
    assert await shared.keys() == ["g/a", "g/b", "g/c"]


async def test_what_is_no_row_can_be_deleted(shared: Shared) -> None:
    """Nothing of it is left, as if it had never been there."""
    await shared.store.put("t", "a", b"1", due=5.0)
    shared.overwrite("a", "garbage")
    assert await shared.store.delete("t", "a") is False
    assert await shared.store.count("t") == 0
    assert await shared.store.commit([Put("t", "a", b"2", expected=ABSENT), Delete("t", "a")])
    assert await shared.keys() == []


async def test_a_row_that_takes_its_place_is_due_by_its_own_time(shared: Shared) -> None:
    """Never, where it says so; whoever deletes what is due would delete it else."""
    await shared.store.put("t", "a", b"1", due=5.0)
    await shared.store.put("t", "b", b"1", due=5.0)
    shared.overwrite("a", "garbage")
    await shared.store.put("t", "a", b"2")
    assert [row.key for row in await shared.store.overdue("t", 9.0)] == ["b"]
    await delete_overdue(shared.store, "t", 9.0)
    assert await shared.keys() == ["a"]


async def test_it_is_told_once_for_each_table(shared: Shared) -> None:
    """However often it is met, and however much of it there is."""
    for number in range(3):
        await shared.store.put("t", f"{number}", b"")
        shared.overwrite(f"{number}", "garbage")
    for _ in range(3):
        assert await shared.keys() == [] and await shared.store.get("t", "1") is None
    [warning] = shared.warnings
    assert "'t'" in warning and "garbage" not in warning


async def test_a_key_that_is_no_text_ends_no_scan(shared: Shared) -> None:
    """The pages behind it come, of the scan and of what is due."""
    for number in range(4):
        await shared.store.put("t", f"\uffff{number}", b"", due=float(number))
    # In the command line of Redis, which reads such bytes from an argument as they are.
    shared.overwrite("z\udcff", "1 - v")
    shared.add("keys", 0, "z\udcff")
    shared.add("dues", 1, "z\udcff")
    found: list[str] = []
    while page := await shared.store.scan("t", after=found[-1] if found else "", limit=1):
        found += [row.key for row in page]
    assert found == [f"\uffff{number}" for number in range(4)]
    assert len(await shared.store.overdue("t", 9.0, limit=4)) == 4
