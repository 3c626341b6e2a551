"""A watched store: the outcome of writes, one's own among them, tells whether it can be written."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import StoreUnavailable
from adapter.state.port import Conflict, Row
from adapter.state.sqlite import MemoryStore
from adapter.state.watched import AGAIN, FRESH, LARGEST, SMALLEST, WatchedStore


class FillingStore(MemoryStore):
    """A store with room for rows of at most ``room`` bytes; ``sizes`` are those that were to be put."""

    def __init__(self) -> None:
        super().__init__()
        self.room = LARGEST * 4
        self.sizes: list[int] = []

    async def put(
        self, table: str, key: str, value: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        self.sizes.append(len(value))
        await asyncio.sleep(0)
        if len(value) > self.room:
            raise StoreUnavailable("It is full.")
        return await super().put(table, key, value, expected=expected, due=due)

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        if not self.room:
            raise StoreUnavailable("It is full.")
        return await super().delete(table, key, expected=expected)


class Watching:
    """A watched store and its clock."""

    def __init__(self) -> None:
        self.inner = FillingStore()
        self.now = 0.0
        self.store = WatchedStore(self.inner, lambda: self.now)


@pytest.fixture
def watching() -> Watching:
    return Watching()


async def test_store_is_tried_once_for_all_who_ask(watching: Watching) -> None:
    """Not again for a while after that, nor after a write of somebody's."""
    answers = await asyncio.gather(*(watching.store.failure() for _ in range(10)))
    assert answers == [None] * 10 and watching.inner.sizes == [SMALLEST]
    watching.now += FRESH - 0.1
    await watching.store.put("sessions", "a", b"x")
    watching.now += FRESH - 0.1
    assert await watching.store.failure() is None
    assert watching.inner.sizes == [SMALLEST, 1]
    watching.now += FRESH
    assert await watching.store.failure() is None
    assert watching.inner.sizes == [SMALLEST, 1, SMALLEST]


async def test_write_that_fails_tells_at_once(watching: Watching) -> None:
    """Whoever asks next knows, and the store is tried again soon."""
    watching.inner.room = 0
    with pytest.raises(StoreUnavailable):
        await watching.store.delete("sessions", "a")
    assert str(await watching.store.failure()) == "It is full."
    assert watching.inner.sizes == []
    watching.now += AGAIN
    assert str(await watching.store.failure()) == "It is full."
    watching.inner.room = LARGEST
    watching.now += AGAIN
    assert await watching.store.failure() is None


async def test_store_that_takes_small_rows_only_has_failed(watching: Watching) -> None:
    """What fits now proves nothing for what did not."""
    watching.inner.room = 10_000
    with pytest.raises(StoreUnavailable):
        await watching.store.put("sessions", "a", bytes(20_000))
    await watching.store.put("sessions", "b", b"x")
    assert await watching.store.failure() is not None
    watching.now += AGAIN
    assert await watching.store.failure() is not None
    assert watching.inner.sizes == [20_000, 1, 20_000]
    watching.inner.room = 20_000
    watching.now += AGAIN
    assert await watching.store.failure() is None
    watching.now += FRESH
    await watching.store.failure()
    assert watching.inner.sizes[-1] == SMALLEST


async def test_row_that_is_tried_with_is_bounded(watching: Watching) -> None:
    """However large the write was that failed."""
    watching.inner.room = 0
    with pytest.raises(StoreUnavailable):
        await watching.store.put("sessions", "a", bytes(3 * LARGEST))
    watching.now += AGAIN
    await watching.store.failure()
    assert watching.inner.sizes == [3 * LARGEST, LARGEST]


async def test_conflicts_and_empty_writes_prove_nothing(watching: Watching) -> None:
    """They may succeed without a byte on the disk."""
    watching.inner.room = 0
    await watching.store.failure()
    watching.inner.room = LARGEST
    with pytest.raises(Conflict):
        await watching.store.put("sessions", "a", bytes(SMALLEST), expected=7)
    await watching.store.delete("sessions", "a")
    await watching.store.touch("sessions", {})
    assert await watching.store.failure() is not None
