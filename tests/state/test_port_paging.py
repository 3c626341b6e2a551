"""Many rows, read and deleted page by page, in every kind of store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from adapter.errors import StoreUnavailable
from adapter.state.port import PAGE, Put, Store, delete_overdue, every_row
from tests.state.shared import SharedMemory

IN_EVERY_KIND = pytest.mark.parametrize("store", ["memory", "sqlite", "redis"], indirect=True)


async def filled(store: Store, keys: Sequence[str], due: float | None = None) -> list[str]:
    """The keys, in order, of rows that were written in commits of one group."""
    for group in {key.partition("/")[0] for key in keys}:
        await store.commit([Put("t", key, b"v", due) for key in keys if key.partition("/")[0] == group])
    return sorted(keys)


async def keys_of(store: Store, group: str | None = None) -> list[str]:
    return [row.key async for row in every_row(store, "t", group)]


@IN_EVERY_KIND
@pytest.mark.parametrize("count", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
async def test_every_row_comes_once_and_in_order(store: Store, count: int) -> None:
    """Whether the last page is full, short or empty."""
    keys = await filled(store, [f"g/{number}" for number in range(count)])
    await store.put("other", "g/x", b"")
    assert await keys_of(store) == keys


@IN_EVERY_KIND
async def test_rows_of_one_group_are_those_of_no_other(store: Store) -> None:
    """Also of a group between two others, over several pages."""
    await filled(store, ["a/1", "c/1", "b0", "b"])
    keys = await filled(store, [f"b/{number}" for number in range(PAGE + 3)])
    assert await keys_of(store, "b") == ["b", *keys]
    assert await keys_of(store, "d") == []


@IN_EVERY_KIND
async def test_what_is_due_is_deleted_and_nothing_else(store: Store) -> None:
    """Over several pages; rows that are due later, or never, stay."""
    await filled(store, [f"g/{number}" for number in range(2 * PAGE + 1)], due=10.0)
    await filled(store, ["late"], due=11.0)
    await filled(store, ["never"])
    await delete_overdue(store, "t", 10.0)
    assert await keys_of(store) == ["late", "never"]


async def test_a_short_page_is_the_last_that_is_asked_for() -> None:
    """Where everything is in one page there is one request."""
    shared = SharedMemory().replica()
    await filled(shared, ["a", "b"], due=1.0)
    assert await keys_of(shared) == ["a", "b"]
    await delete_overdue(shared, "t", 1.0)
    assert (shared.calls["scan"], shared.calls["overdue"]) == (1, 1)


async def test_a_row_that_changes_meanwhile_stays() -> None:
    """Whoever wrote it again needs it; the others go all the same, and it is looked at the next time."""
    memory = SharedMemory()
    store = memory.replica()
    await filled(store, ["a", "b", "c"], due=1.0)

    async def meanwhile(table: str, key: str) -> None:
        if key == "b":
            await memory.rows.put(table, key, b"again", due=1.0)

    store.before = meanwhile
    await delete_overdue(store, "t", 1.0)
    assert [row.value async for row in every_row(memory.rows, "t")] == [b"again"]
    store.before = None
    await delete_overdue(store, "t", 1.0)
    assert await keys_of(memory.rows) == []


async def test_a_store_that_fails_is_told_of_when_nothing_is_under_way() -> None:
    """What was begun has ended by then, so that the store may be closed."""
    memory = SharedMemory()
    store = memory.replica()
    await filled(store, ["a", "b", "c"], due=1.0)

    async def meanwhile(table: str, key: str) -> None:
        if key == "a":
            raise StoreUnavailable("The row cannot be reached.")

    store.before = meanwhile
    with pytest.raises(StoreUnavailable):
        await delete_overdue(store, "t", 1.0)
    assert await keys_of(memory.rows) == ["a"]
    store.down = True
    with pytest.raises(StoreUnavailable):
        await keys_of(store)
