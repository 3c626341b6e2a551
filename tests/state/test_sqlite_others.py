"""Several openers of one SQLite file hear of each other: changes within a moment, announcements once each."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adapter.state.sqlite import SqliteStore
from adapter.state.sqlite_others import AT_ONCE, KEPT, LONGEST_BODY, LOOK_EVERY, TABLE
from tests.waiting import until

Opener = Callable[..., Awaitable["Opened"]]

_SPEAKS = """
import asyncio, sys
from pathlib import Path
from adapter.state.sqlite import SqliteStore

async def main():
    store = SqliteStore(Path(sys.argv[1]), shared=True)
    await store.open()
    for line in sys.stdin:
        word, _, text = line.strip().partition(" ")
        if word == "put":
            await store.put("sessions", text, b"theirs")
        else:
            store.announce("topic", text.encode())
        await store.get("sessions", "nothing")
        print("done", flush=True)
    await store.close()

asyncio.run(main())
"""


@dataclass
class Heard:
    """A listener that keeps what it is told."""

    unknown: int = 0
    announcements: list[tuple[str, bytes]] = field(default_factory=list)

    def row_changed(self, table: str, key: str) -> None:
        raise AssertionError("SQLite does not tell which row")

    def rows_unknown(self) -> None:
        self.unknown += 1

    def announced(self, topic: str, body: bytes) -> None:
        self.announcements.append((topic, body))


@dataclass
class Opened:
    store: SqliteStore
    heard: Heard


@pytest.fixture(params=[True, False], ids=["log", "no log"])
async def opened(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Opener]:
    """``await opened()``: another store on the same file, with one that listens."""
    async with contextlib.AsyncExitStack() as stack:

        async def another(*, shared: bool = True) -> Opened:
            store = SqliteStore(tmp_path / "state.sqlite3", wal=request.param, shared=shared)
            heard = Heard()
            store.listeners.append(heard)
            await store.open()
            stack.push_async_callback(store.close)
            return Opened(store, heard)

        yield another


async def some_looks() -> None:
    """Time in which a change of another process would have been noticed."""
    await asyncio.sleep(4 * LOOK_EVERY)


async def test_a_change_of_another_is_heard(opened: Opener) -> None:
    """What was read before may be old; a write of one's own tells one nothing."""
    one, other = await opened(), await opened()
    await some_looks()
    one.heard.unknown = other.heard.unknown = 0
    await one.store.put("sessions", "a", b"1")
    await until(lambda: other.heard.unknown > 0)
    assert one.heard.unknown == 0
    row = await other.store.get("sessions", "a")
    assert row is not None and row.value == b"1"


async def test_a_change_is_heard_soon(opened: Opener) -> None:
    """Within two looks, also by one that writes all the time and is never idle."""
    one, other = await opened(), await opened()

    async def write() -> None:
        while True:
            await other.store.put("sessions", "mine", b"x" * 200_000)

    writing = asyncio.create_task(write())
    await some_looks()
    other.heard.unknown = 0
    await one.store.put("sessions", "a", b"1")
    await until(lambda: other.heard.unknown > 0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_an_announcement_is_heard_once_by_every_other(opened: Opener) -> None:
    """In the order of the announcements, and not by who made them."""
    speakers = [await opened(), await opened()]
    listener = await opened()
    for number in range(3 * AT_ONCE):
        speakers[number % 2].store.announce("counted", b"%d" % number)
        await asyncio.sleep(0)
    await until(lambda: len(listener.heard.announcements) == 3 * AT_ONCE)
    await until(lambda: len(speakers[0].heard.announcements) == 3 * AT_ONCE // 2)
    await some_looks()
    heard = [body for _, body in listener.heard.announcements]
    assert sorted(heard, key=int) == [b"%d" % number for number in range(3 * AT_ONCE)]
    for parity in (0, 1):
        mine = [body for body in heard if int(body) % 2 == parity]
        assert mine == sorted(mine, key=int)
        assert [body for _, body in speakers[1 - parity].heard.announcements] == mine


async def test_what_was_announced_before_is_not_heard(opened: Opener) -> None:
    """A process that starts has nothing in memory that an old announcement could concern."""
    one = await opened()
    one.store.announce("topic", b"early")
    await one.store.get("sessions", "nothing")
    other = await opened()
    one.store.announce("topic", b"late")
    await until(lambda: bool(other.heard.announcements))
    await some_looks()
    assert other.heard.announcements == [("topic", b"late")]


async def test_old_announcements_leave_the_file(opened: Opener, tmp_path: Path) -> None:
    """The next one deletes them, whoever wrote them; their numbers are not given again."""
    one, other = await opened(), await opened()
    one.store.announce("topic", b"first")
    await until(lambda: bool(other.heard.announcements))
    with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite3")) as file, file:
        file.execute("UPDATE rows SET due = due - ? WHERE tbl = ? AND due IS NOT NULL", (2 * KEPT, TABLE))
    other.store.announce("topic", b"second")
    await until(lambda: bool(one.heard.announcements))
    rows = await one.store.scan(TABLE)
    assert [row.key for row in rows] == [f"{2:016x}"]


async def test_an_announcement_has_a_bound(opened: Opener) -> None:
    """What is longer is a mistake of its caller."""
    one = await opened()
    for topic, body in (("topic", b"x" * (LONGEST_BODY + 1)), ("t" * 256, b"")):
        with pytest.raises(ValueError, match="announcement"):
            one.store.announce(topic, body)


async def test_a_file_of_one_process_is_not_looked_at(opened: Opener) -> None:
    """There nobody hears anything, and an announcement writes nothing."""
    one, other = await opened(shared=False), await opened(shared=False)
    one.store.announce("topic", b"body")
    await one.store.put("sessions", "a", b"1")
    await some_looks()
    assert (other.heard.unknown, other.heard.announcements) == (0, [])
    assert await one.store.count(TABLE) == 0


async def test_a_file_that_another_keeps_for_itself_makes_all_unknown(tmp_path: Path, opened: Opener) -> None:
    """As long as it cannot be looked at, what was read is not trusted for longer than a second."""
    one = await opened()
    with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite3", isolation_level=None)) as file:
        file.execute("BEGIN EXCLUSIVE")
        reading = asyncio.create_task(one.store.put("sessions", "a", b"1"))
        await until(lambda: one.heard.unknown > 0)
        file.execute("ROLLBACK")
    await reading


async def test_two_processes(tmp_path: Path) -> None:
    """The same between processes as within one, and a process that was killed leaves nothing that hinders."""
    path = tmp_path / "state.sqlite3"
    store, heard = SqliteStore(path, shared=True), Heard()
    store.listeners.append(heard)
    await store.open()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _SPEAKS,
        str(path),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(20):
            process.stdin.write(b"put theirs\n")
            assert await process.stdout.readline() == b"done\n"
            await until(lambda: heard.unknown > 0)
            row = await store.get("sessions", "theirs")
            assert row is not None and row.value == b"theirs"
            process.stdin.write(b"announce hello\n")
            await until(lambda: heard.announcements == [("topic", b"hello")])
            process.kill()
            await process.communicate()
        await store.put("sessions", "theirs", b"mine", expected=row.version)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
        await store.close()
