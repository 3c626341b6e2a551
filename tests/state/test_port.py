"""What every store promises, asked of each of them."""

from __future__ import annotations

import asyncio
from operator import methodcaller
from typing import Any

import pytest

from adapter.state.port import ABSENT, Conflict, Delete, Put, Row, Store, StoreListener, TableFull, tell_all


async def test_a_row_comes_back_as_it_was_put(store: Store) -> None:
    """Value, version and due time of a row are what put returned."""
    put = await store.put("sessions", "a", b"\x00\xff", due=12.5)
    assert put == Row("a", b"\x00\xff", 1, 12.5)
    assert await store.get("sessions", "a") == put


async def test_tables_do_not_share_rows(store: Store) -> None:
    """The same key in another table is another row."""
    await store.put("sessions", "a", b"one")
    assert await store.get("pins", "a") is None
    assert await store.count("pins") == 0


async def test_creating_twice_is_a_conflict(store: Store) -> None:
    """expected=ABSENT creates, or refuses and leaves the row alone."""
    await store.put("sessions", "a", b"first", expected=ABSENT)
    with pytest.raises(Conflict):
        await store.put("sessions", "a", b"second", expected=ABSENT)
    assert await store.get("sessions", "a") == Row("a", b"first", 1, None)


async def test_a_write_at_the_version_read_succeeds_once(store: Store) -> None:
    """A version can be replaced only once; the second writer with it is refused."""
    first = await store.put("sessions", "a", b"1")
    assert (await store.put("sessions", "a", b"2", expected=first.version)).version == 2
    with pytest.raises(Conflict):
        await store.put("sessions", "a", b"3", expected=first.version)


async def test_replacing_a_row_that_is_gone_is_a_conflict(store: Store) -> None:
    """A row that was deleted meanwhile is not created again by a conditional write."""
    row = await store.put("sessions", "a", b"1")
    await store.delete("sessions", "a")
    with pytest.raises(Conflict):
        await store.put("sessions", "a", b"2", expected=row.version)
    assert await store.get("sessions", "a") is None


async def test_an_unconditional_write_creates_and_replaces(store: Store) -> None:
    """Without expected a write always wins, counts the version up and replaces the due time."""
    await store.put("sessions", "a", b"1", due=5.0)
    assert await store.put("sessions", "a", b"2") == Row("a", b"2", 2, None)
    assert await store.get("sessions", "a") == Row("a", b"2", 2, None)


async def test_of_fifty_writers_one_wins(store: Store) -> None:
    """Fifty concurrent writes that expect the same version end in one row written and 49 conflicts."""
    row = await store.put("sessions", "a", b"start")
    writes = [store.put("sessions", "a", b"%d" % n, expected=row.version) for n in range(50)]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Row)]
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 49
    assert await store.get("sessions", "a") == winner
    assert winner.version == 2


async def test_of_fifty_creators_one_wins(store: Store) -> None:
    """Fifty concurrent creations of one key end in one row."""
    creations = [store.put("sessions", "a", b"%d" % n, expected=ABSENT) for n in range(50)]
    outcomes = await asyncio.gather(*creations, return_exceptions=True)
    assert sum(isinstance(outcome, Row) for outcome in outcomes) == 1


def creating(*rows: tuple[str, bytes]) -> list[Put]:
    """Changes that create rows of one group of files."""
    return [Put("files", f"s/{key}", value, expected=ABSENT) for key, value in rows]


async def names(store: Store) -> list[tuple[str, bytes]]:
    return [(row.key.removeprefix("s/"), row.value) for row in await store.scan("files")]


async def test_many_rows_are_created_together(store: Store) -> None:
    """Each has its value and due time and is at the first version, also in different tables of the group."""
    changes = [Put("files", "s/a", b"1", 5.0, ABSENT), Put("files", "s/b", b"2"), Put("scopes", "s", b"3")]
    rows = await store.commit(changes)
    assert rows == [Row("s/a", b"1", 1, 5.0), Row("s/b", b"2", 1, None), Row("s", b"3", 1, None)]
    assert await store.scan("files") == rows[:2]
    assert await store.commit([]) == []


async def test_commit_of_several_groups_is_refused(store: Store) -> None:
    """Rows of two groups may lie apart, so that no step could change both."""
    with pytest.raises(ValueError, match="one group, not of 2"):
        await store.commit([Put("files", "s/a", b"1"), Put("files", "t/a", b"2")])
    assert await store.count("files") == 0


@pytest.mark.parametrize("keys", [("b", "a", "c"), ("b", "c", "b")], ids=["there already", "named twice"])
async def test_of_many_rows_all_are_created_or_none(store: Store, keys: tuple[str, ...]) -> None:
    """One that exists keeps all from being created, and neither undoes nor stops the writes beside them."""
    await store.put("files", "s/a", b"first")
    beside = [store.put("files", f"s/{name}", b"") for name in ("x", "y")]
    failed, *written = await asyncio.gather(
        store.commit(creating(*((key, b"") for key in keys))), *beside, return_exceptions=True
    )
    assert isinstance(failed, Conflict)
    assert all(isinstance(row, Row) for row in written)
    assert [name for name, _ in await names(store)] == ["a", "x", "y"]


async def test_rows_take_the_place_of_others(store: Store) -> None:
    """Each change sees what those before it have left, and absent rows are passed over."""
    await store.commit(creating(("a", b"1"), ("b", b"2"), ("c", b"3")))
    leaving = [Delete("files", f"s/{key}") for key in ("a", "c", "absent")]
    rows = await store.commit([*leaving, *creating(("c", b"new"), ("d", b"4"))])
    assert [(row.key, row.version) for row in rows] == [("s/c", 1), ("s/d", 1)]
    assert await names(store) == [("b", b"2"), ("c", b"new"), ("d", b"4")]
    await store.commit(
        [Put("files", "s/b", b"x", expected=1), Delete("files", "s/b", 2), Delete("files", "s/c")]
    )
    assert await names(store) == [("d", b"4")]


@pytest.mark.parametrize(
    "last",
    [Put("files", "s/b", b"new", expected=ABSENT), Put("files", "s/b", b"new", expected=7),
     Delete("files", "s/b", 7), Delete("files", "s/absent", 1)],
    ids=["exists", "another version", "deleted at another version", "deleted though absent"],
)  # fmt: skip
async def test_rows_that_cannot_come_drive_no_others_out(store: Store, last: Put | Delete) -> None:
    """A conflict leaves everything as it was."""
    await store.commit(creating(("a", b"1"), ("b", b"2")))
    with pytest.raises(Conflict):
        await store.commit([Delete("files", "s/a"), Put("files", "s/c", b"3"), last])
    assert await store.scan("files") == [Row("s/a", b"1", 1, None), Row("s/b", b"2", 1, None)]


async def test_of_two_that_create_the_same_rows_one_wins(store: Store) -> None:
    """Two commits that share a single key never both come in."""
    outcomes = await asyncio.gather(
        store.commit(creating(("a", b"1"), ("shared", b"1"))),
        store.commit(creating(("shared", b"2"), ("z", b"2"))),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [list, Conflict]
    assert await names(store) == [("a", b"1"), ("shared", b"1")]


async def test_group_has_only_so_many_rows(store: Store) -> None:
    """Of fifty rows that are created at once, as many come in as may be there; one that is there is written again."""
    slots = [Put("slots", f"open/{n:02}", b"", expected=ABSENT, most=5) for n in range(50)]
    await store.put("slots", "other/1", b"")
    outcomes = await asyncio.gather(*(store.commit([slot]) for slot in slots), return_exceptions=True)
    assert sum(isinstance(outcome, TableFull) for outcome in outcomes) == 45
    assert await store.count("slots", group="open") == 5
    (first, *_) = await store.scan("slots", group="open")
    await store.commit([Put("slots", first.key, b"again", most=5)])
    await store.delete("slots", first.key)
    await store.commit([slots[49]._replace(key="open/later")])
    assert await store.count("slots") == 6


async def test_rows_of_one_group_are_scanned_and_counted(store: Store) -> None:
    """A group is a whole key or the part before the first slash, and no other key that begins like it."""
    keys = ["s", "s/", "s/a", "s/b/c", "s!", "s-1", "s0", "sa", "t", "s\x00", "/s"]
    for key in keys:
        await store.put("files", key, b"")
    assert [row.key for row in await store.scan("files", group="s")] == ["s", "s/", "s/a", "s/b/c"]
    assert [row.key for row in await store.scan("files", group="s", after="s/", limit=1)] == ["s/a"]
    assert await store.count("files", group="s") == 4
    assert await store.count("files", group="") == 1
    await store.put("files", "", b"")
    assert await store.count("files", group="") == 2


async def test_delete_says_whether_the_row_was_there(store: Store) -> None:
    """The first delete finds the row, the second does not."""
    await store.put("sessions", "a", b"1")
    assert await store.delete("sessions", "a") is True
    assert await store.delete("sessions", "a") is False
    assert await store.delete("sessions", "a", expected=1) is False


async def test_a_conditional_delete_spares_a_newer_row(store: Store) -> None:
    """Deleting at an old version is a conflict and leaves the row; at its version it goes."""
    await store.put("sessions", "a", b"1")
    await store.put("sessions", "a", b"2")
    with pytest.raises(Conflict):
        await store.delete("sessions", "a", expected=1)
    assert await store.delete("sessions", "a", expected=2) is True
    with pytest.raises(Conflict):
        await store.commit([Delete("sessions", "a", ABSENT)])


async def test_scan_pages_through_all_rows_in_order_of_bytes(store: Store) -> None:
    """Paging with the last key seen visits every row once, ordered by the UTF-8 of its key."""
    keys = ["", "a", "B", "ab", "é", "\uffee", "\U0001f600", "z\x00", "z"]
    for key in keys:
        await store.put("sessions", key, key.encode())
    seen: list[str] = [""]
    while page := await store.scan("sessions", after=seen[-1], limit=3):
        assert len(page) <= 3
        seen += [row.key for row in page]
    assert seen == sorted(keys, key=lambda key: key.encode())


async def test_overdue_gives_the_longest_overdue_first(store: Store) -> None:
    """Only rows whose time has come are given, oldest first, no more than asked for; undated ones never."""
    for key, due in {"late": 10.0, "later": 5.0, "just": 20.0, "future": 20.1}.items():
        await store.put("sessions", key, b"", due=due)
    await store.put("sessions", "undated", b"")
    assert [row.key for row in await store.overdue("sessions", 20.0)] == ["later", "late", "just"]
    assert [row.key for row in await store.overdue("sessions", 20.0, limit=1)] == ["later"]


async def test_touch_moves_due_times_only(store: Store) -> None:
    """Touching many rows changes neither value nor version, and creates nothing."""
    for key in ("a", "b"):
        await store.put("sessions", key, b"value", due=1.0)
    await store.touch("sessions", {"a": 100.0, "b": 200.0, "absent": 300.0})
    assert await store.get("sessions", "a") == Row("a", b"value", 1, 100.0)
    assert await store.get("sessions", "absent") is None
    assert [row.key for row in await store.overdue("sessions", 200.0)] == ["a", "b"]
    await store.touch("sessions", {})


async def test_touch_never_moves_back(store: Store) -> None:
    """A row that is due later stays as it is: of two replicas, the one that saw its user last is right."""
    await store.put("sessions", "a", b"", due=100.0)
    await store.put("sessions", "undated", b"")
    await store.touch("sessions", {"a": 50.0, "undated": 7.0})
    assert [row.due for row in await store.scan("sessions")] == [100.0, 7.0]


async def test_count_of_a_group_follows_every_change(store: Store) -> None:
    """Created, written again, deleted, and undone with a commit that failed."""

    async def counts() -> list[int]:
        return [await store.count("slots", group=group) for group in ("a", "b")]

    await store.put("slots", "a/1", b"")
    assert await counts() == [1, 0]
    await store.commit([Put("slots", "a/2", b""), Put("slots", "a/1", b"again"), Delete("slots", "a/none")])
    await store.put("slots", "b", b"")
    assert await counts() == [2, 1]
    with pytest.raises(Conflict):
        await store.commit(
            [Delete("slots", "a/1"), Put("slots", "a/3", b""), Delete("slots", "a/9", expected=1)]
        )
    assert await counts() == [2, 1]
    await store.delete("slots", "b")
    await store.delete("slots", "b")
    await store.delete("slots", "a/1")
    assert await counts() == [1, 0]
    await store.commit([Put("slots", "a/4", b"", expected=ABSENT, most=2)])
    with pytest.raises(TableFull):
        await store.commit([Put("slots", "a/5", b"", expected=ABSENT, most=2)])
    assert await counts() == [2, 0]


async def test_a_write_is_seen_by_the_next_read(store: Store) -> None:
    """Reads that are asked for together with a write see the state before or after it, in the order asked."""
    before, _, after = await asyncio.gather(
        store.get("sessions", "a"), store.put("sessions", "a", b"1"), store.get("sessions", "a")
    )
    assert (before, after) == (None, Row("a", b"1", 1, None))


async def test_rows_survive_closing_and_opening(store: Store) -> None:
    """Close finishes what is under way, and open finds it again."""
    writes = [asyncio.ensure_future(store.put("sessions", f"{n}", b"x")) for n in range(100)]
    await asyncio.sleep(0)
    await store.close()
    assert all(write.done() for write in writes)
    await store.close()
    await store.open()
    assert await store.count("sessions") == 100


async def test_a_cancelled_caller_harms_nobody_else(store: Store) -> None:
    """A write whose caller went away neither fails nor delays the writes beside it."""
    leaving = asyncio.ensure_future(store.put("sessions", "leaving", b""))
    staying = asyncio.ensure_future(store.put("sessions", "staying", b""))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying).key == "staying"
    assert await store.get("sessions", "staying") is not None


async def test_uses_are_counted_up_to_their_number(store: Store) -> None:
    """As many as allowed are counted in a window, for each key by itself; a refusal says when one will be."""
    assert [await store.spend("rates", "a", 3, 60.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    for _ in range(2):
        assert 0.0 < await store.spend("rates", "a", 3, 60.0) <= 60.0
    assert await store.spend("rates", "b/c", 3, 60.0) == 0.0


async def test_of_many_uses_at_once_the_right_number_is_counted(store: Store) -> None:
    """Twenty callers at the same time never get more than their number."""
    waits = await asyncio.gather(*(store.spend("rates", "a", 5, 60.0) for _ in range(20)))
    assert sum(wait == 0.0 for wait in waits) == 5


async def test_uses_count_no_longer_than_their_window(store: Store) -> None:
    """When the window of the first use is over, one more is counted."""
    assert await store.spend("rates", "a", 1, 0.02) == 0.0
    async with asyncio.timeout(10):
        while await store.spend("rates", "a", 1, 0.02):
            await asyncio.sleep(0)
    for key in "bcdef":
        assert await store.spend("rates", key, 1, 0.02) == 0.0


# --- listeners of a store ----------------------------------------------------------------------------------------


class Ear(StoreListener):
    """Notes that it was told, and may fail then."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self.told = 0

    def rows_unknown(self) -> None:
        self.told += 1
        if self._fails:
            raise ValueError("a fault of its own")


async def test_a_listener_that_fails_makes_no_other_deaf() -> None:
    """The failure is reported, once."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    ears = [Ear(fails=True), Ear(fails=False)]
    tell_all(ears, methodcaller("rows_unknown"))
    assert [ear.told for ear in ears] == [1, 1]
    assert [str(report["exception"]) for report in reports] == ["a fault of its own"]
