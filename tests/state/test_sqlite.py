"""What SQLite adds: durability, several openers of one file, and failures told in sentences."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from adapter.errors import StoreUnavailable
from adapter.state import sql
from adapter.state.port import ABSENT, Conflict, Delete, Put, Row
from adapter.state.sqlite import LOCK_TIMEOUT, MERGED, RESTS, SLOW, SqliteStore, connect
from tests.waiting import until

_WRITES_FOREVER = """
import asyncio, sys
from pathlib import Path
from adapter.state.sqlite import SqliteStore

async def main():
    store = SqliteStore(Path(sys.argv[1]), wal=sys.argv[2] == "wal")
    await store.open()
    async def write(writer):
        for n in range(1_000_000):
            await store.put("sessions", f"{writer}-{n}", b"x" * 500)
            print(f"{writer}-{n}", flush=True)
    await asyncio.gather(*(write(writer) for writer in range(int(sys.argv[3]))))

asyncio.run(main())
"""

_ENDS_WHILE_IT_WRITES = """
import asyncio, sqlite3, sys
from pathlib import Path
from adapter.state.sqlite import SqliteStore

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    main.other = sqlite3.connect(sys.argv[1], isolation_level=None)
    main.other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(store.put("sessions", "a", b""))
    await asyncio.sleep(0.1)
    print("ends", flush=True)

asyncio.run(main())
"""

_FILLS_ITS_DISK = """
import asyncio, resource, sys
from pathlib import Path
from adapter.errors import StoreUnavailable
from adapter.state.sqlite import SqliteStore

def limit_files_to(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    store = SqliteStore(Path(sys.argv[1]), wal=sys.argv[2] == "wal")
    await store.open()
    await store.put("sessions", "before", b"kept")
    limit_files_to(256 * 1024)
    outcomes = await asyncio.gather(
        store.put("sessions", "small", b"fits"),
        store.put("sessions", "big", b"x" * 2_000_000),
        store.get("sessions", "before"),
        return_exceptions=True,
    )
    print([type(outcome).__name__ for outcome in outcomes], str(outcomes[1]))
    limit_files_to(resource.RLIM_INFINITY)
    await store.put("sessions", "big", b"x" * 2_000_000)
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "adapter.sqlite3"


async def _python(script: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("writers", [1, 4, 300])
@pytest.mark.parametrize("journal", ["wal", "rollback"])
async def test_what_put_returned_survives_kill_9(path: Path, journal: str, writers: int) -> None:
    """A process that is killed between and during its writes has lost none that it had been told was done, whether
    each was a transaction of its own or one of many in the same.
    """
    child = await _python(_WRITES_FOREVER, str(path), journal, str(writers))
    assert child.stdout is not None
    acknowledged = [await child.stdout.readline() for _ in range(10 * writers + 30)]
    child.kill()
    acknowledged += (await child.stdout.read()).splitlines(keepends=True)
    await child.wait()

    store = SqliteStore(path, wal=journal == "wal")
    await store.open()
    whole = [line.decode().strip() for line in acknowledged if line.endswith(b"\n")]
    missing = [key for key in whole if await store.get("sessions", key) is None]
    await store.close()
    assert missing == []


async def test_writes_of_one_turn_are_one_commit(path: Path) -> None:
    """What many sessions write at once takes a small part of the log that it takes one after the other."""
    store, log = SqliteStore(path), path.with_name(path.name + "-wal")
    await store.open()
    sizes = [log.stat().st_size]
    await asyncio.gather(*(store.put("sessions", f"a{n}", b"x" * 100) for n in range(50)))
    sizes.append(log.stat().st_size)
    for n in range(50):
        await store.put("sessions", f"b{n}", b"x" * 100)
    sizes.append(log.stat().st_size)
    await store.close()
    at_once, one_by_one = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert 0 < 10 * at_once < one_by_one


async def test_operations_come_to_pass_in_the_order_they_were_asked_for(path: Path) -> None:
    """More than one transaction holds, long rows and scans among them: each sees what was asked before it."""
    store = SqliteStore(path)
    await store.open()
    asked: list[Awaitable[object]] = []
    for n in range(100):
        asked.append(store.put("sessions", "a", b"%d" % n * (100_000 if n == 40 else 1)))
        asked.append(store.get("sessions", "a"))
        asked.append(store.scan("sessions") if n == 70 else store.count("sessions"))
    outcomes = await asyncio.gather(*asked)
    await store.close()
    for n in range(100):
        put, got, seen = outcomes[3 * n : 3 * n + 3]
        assert isinstance(put, Row)
        assert (put.version, got) == (n + 1, put)
        assert seen == ([put] if n == 70 else 1)


async def test_each_writer_of_a_commit_has_an_outcome_of_its_own(path: Path) -> None:
    """Conflicts and unusable arguments are told to who asked, while the others are written; who left is not missed."""
    store = SqliteStore(path)
    await store.open()
    await store.put("sessions", "there", b"")
    leaving = asyncio.ensure_future(store.put("sessions", "left", b""))
    others = asyncio.gather(
        store.put("sessions", "new", b"", expected=0),
        store.put("sessions", "there", b"", expected=0),
        store.put("sessions", "\udcff", b""),
        store.delete("sessions", "there", expected=7),
        store.delete("sessions", "there"),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    leaving.cancel()
    outcomes = await others
    assert [type(outcome) for outcome in outcomes] == [Row, Conflict, UnicodeEncodeError, Conflict, bool]
    assert [row.key for row in await store.scan("sessions")] == ["left", "new"]
    await store.close()


async def test_the_log_is_moved_into_the_file_now_and_then(path: Path) -> None:
    """However much is written, the log stays a few times as long as what makes it be moved."""
    store, log = SqliteStore(path), path.with_name(path.name + "-wal")
    await store.open()
    for n in range(1500):
        await store.put("sessions", f"{n % 50}", b"x" * 20_000)
    assert MERGED / 2 < log.stat().st_size < 3 * MERGED
    await store.close()


async def test_what_is_removed_does_not_make_the_log_long(path: Path) -> None:
    """SQLite may write zeros over a row that goes, or is replaced: the log then grows by much more than is put."""
    store, log = SqliteStore(path), path.with_name(path.name + "-wal")
    await store.open()
    with sqlite3.connect(path) as other:
        (overwrites,) = other.execute("PRAGMA secure_delete").fetchone()
    other.close()
    if not overwrites:
        pytest.skip("this SQLite leaves what was removed in its file")
    sizes = []
    for n in range(60):
        await store.put("rounds", f"{n}", b"x" * 300_000)
    for n in range(60):
        await (store.delete("rounds", f"{n}") if n % 2 else store.put("rounds", f"{n}", b""))
        sizes.append(log.stat().st_size)
    assert max(sizes) < 2 * MERGED
    await store.close()


async def test_a_lock_of_another_process_does_not_hold_the_loop(path: Path) -> None:
    """Writes wait for it in the thread, and come to pass when it is gone."""
    store = SqliteStore(path)
    await store.open()
    await store.put("sessions", "before", b"")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writes = asyncio.gather(*(store.put("sessions", f"{n}", b"") for n in range(3)))
    async with asyncio.timeout(LOCK_TIMEOUT / 2):
        for _ in range(200):
            await asyncio.sleep(0.001)
    assert not writes.done()
    other.execute("COMMIT")
    other.close()
    assert [row.version for row in await writes] == [1, 1, 1]
    await store.close()


async def done_on_the_loop(work: Awaitable[object]) -> bool:
    """Tell whether SQL was run by this thread."""
    called: list[object] = []

    def look(_: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            called.append(getattr(function, "__self__", None))

    sys.setprofile(look)
    try:
        await work
    finally:
        sys.setprofile(None)
    return any(isinstance(each, sqlite3.Connection) for each in called)


async def test_the_loop_does_only_what_is_brief(path: Path) -> None:
    """Small rows are written and read there; long rows, many rows, scans and a journal that syncs are the thread's."""
    store, syncs = SqliteStore(path), SqliteStore(path.with_name("journal.sqlite3"), wal=False)
    await store.open()
    await syncs.open()
    long = ("sessions", "long", b"x" * 600_000)
    assert await done_on_the_loop(store.put("sessions", "a", b""))
    assert await done_on_the_loop(store.get("sessions", "a"))
    assert await done_on_the_loop(
        store.commit([Delete("sessions", "a"), Put("sessions", "a", b"", expected=ABSENT)])
    )
    assert await done_on_the_loop(store.touch("sessions", {"a": 1.0}))
    assert await done_on_the_loop(store.delete("sessions", "a"))
    assert not await done_on_the_loop(store.put(*long))
    assert await store.get("sessions", "long") == Row("long", long[2], 1, None)
    assert not await done_on_the_loop(store.touch("sessions", {f"{n}": 1.0 for n in range(1000)}))
    assert not await done_on_the_loop(store.scan("sessions"))
    assert not await done_on_the_loop(syncs.put("sessions", "a", b""))
    await store.close()
    await syncs.close()


def test_a_long_row_is_neither_replaced_nor_removed_by_who_has_no_time() -> None:
    """Zeros might be written over all of it: nothing has changed then, and who has the time does it."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    sql.prepare(connection, wal=False, patience=0.0)
    row = sql.put("rounds", "a", b"x" * 100, None, None, 100, connection)
    for expected in (None, 1, 2):
        for hurried in (
            partial(sql.put, "rounds", "a", b"", expected, None, 99),
            partial(sql.delete, "rounds", "a", expected, 99),
        ):
            with pytest.raises(sql.TooLong):
                hurried(connection)
    assert sql.get("rounds", "a", 100, connection) == row
    assert sql.put("rounds", "a", b"x" * 100, 1, None, 100, connection).version == 2
    assert sql.delete("rounds", "a", 2, 100, connection)
    connection.close()


async def test_a_store_that_nobody_closed_does_not_keep_the_process(path: Path) -> None:
    """Though its thread waits for a lock just then."""
    running = await _python(_ENDS_WHILE_IT_WRITES, str(path))
    assert running.stdout is not None
    assert await running.stdout.readline() == b"ends\n"
    async with asyncio.timeout(LOCK_TIMEOUT / 2):
        await running.wait()


async def test_a_slow_disk_is_left_to_the_thread(path: Path) -> None:
    """After one commit that took long, the loop does none for a hundred times as long."""
    rested = 2 * SLOW * (RESTS + 1)
    readings = [0.0, 2 * SLOW, rested - 0.1, rested + 0.1, rested + 0.1]
    store = SqliteStore(path, now=lambda: readings.pop(0))
    await store.open()
    on_loop = [await done_on_the_loop(store.put("sessions", "a", b"")) for _ in range(3)]
    readings.append(0.0)
    await store.close()
    assert on_loop == [True, False, True]


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are of Unix")
@pytest.mark.parametrize("journal", ["wal", "rollback"])
async def test_a_full_disk_fails_one_write_and_recovers(path: Path, journal: str) -> None:
    """Of three operations in one transaction only the one that does not fit fails; with room it succeeds."""
    child = await _python(_FILLS_ITS_DISK, str(path), journal)
    printed, _ = await child.communicate()
    assert child.returncode == 0
    assert printed.decode().startswith(
        "['Row', 'StoreUnavailable', 'Row'] The disk of the state file is full"
    )

    store = SqliteStore(path)
    await store.open()
    assert [row.key for row in await store.scan("sessions")] == ["before", "big", "small"]
    await store.close()


async def test_two_stores_on_one_file_never_both_win(path: Path) -> None:
    """Two openers that count up one row with compare-and-set lose no increment."""
    stores = [SqliteStore(path), SqliteStore(path)]
    await asyncio.gather(*(store.open() for store in stores))
    await stores[0].put("counters", "n", b"0")

    async def count_up(store: SqliteStore) -> None:
        for _ in range(25):
            while True:
                row = await store.get("counters", "n")
                assert row is not None
                try:
                    await store.put("counters", "n", b"%d" % (int(row.value) + 1), expected=row.version)
                    break
                except Conflict:
                    continue

    await asyncio.gather(*(count_up(store) for store in stores))
    assert await stores[1].get("counters", "n") == Row("n", b"50", 51, None)
    await asyncio.gather(*(store.close() for store in stores))


async def test_many_may_open_a_new_file_at_once(path: Path) -> None:
    """Whoever comes first makes the schema, the others find it."""
    stores = [SqliteStore(path) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.put("sessions", f"{n}", b"") for n, store in enumerate(stores)))
    assert await stores[0].count("sessions") == 8
    await asyncio.gather(*(store.close() for store in stores))


async def test_file_and_directory_are_the_owners_alone(path: Path) -> None:
    """Nobody but the owner may read the sessions, nor the log beside them."""
    store = SqliteStore(path)
    await store.open()
    await store.put("sessions", "a", b"")
    modes = {entry.name: entry.stat().st_mode & 0o777 for entry in path.parent.iterdir()}
    await store.close()
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert modes == {"adapter.sqlite3": 0o600, "adapter.sqlite3-wal": 0o600, "adapter.sqlite3-shm": 0o600}


async def _refusal(store: SqliteStore) -> str:
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    return str(caught.value)


async def test_a_newer_schema_is_refused(path: Path) -> None:
    """A file that a newer adapter wrote is left alone, and the sentence says what to do."""
    store = SqliteStore(path)
    await store.open()
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert "newer version of the adapter (schema 99" in await _refusal(store)


async def test_a_foreign_database_is_refused(path: Path) -> None:
    """The adapter does not move into a database that something else made."""
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE contacts (name TEXT)")
    connection.close()
    assert "another program" in await _refusal(SqliteStore(path))


async def test_a_damaged_file_is_refused_without_its_path(path: Path) -> None:
    """A file that is not a database is named as such, in a sentence that gives no path away."""
    path.parent.mkdir()
    path.write_bytes(b"not a database at all, " * 500)
    sentence = await _refusal(SqliteStore(path))
    assert "not a database" in sentence
    assert "/" not in sentence


async def test_a_directory_that_cannot_be_made_is_a_store_failure(tmp_path: Path) -> None:
    """An operating system's refusal is translated like SQLite's own."""
    (tmp_path / "file").write_bytes(b"")
    await _refusal(SqliteStore(tmp_path / "file" / "state.sqlite3"))


async def test_pages_damaged_under_an_open_store_are_a_store_failure(path: Path) -> None:
    """Reading a damaged page raises StoreUnavailable, and the store still closes."""
    store = SqliteStore(path)
    await store.open()
    await asyncio.gather(*(store.put("sessions", f"{n:05}", b"x" * 900) for n in range(2000)))
    await store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    await store.open()
    with pytest.raises(StoreUnavailable, match="damaged"):
        await store.scan("sessions", limit=2000)
    await store.close()


async def test_who_is_cancelled_while_it_opens_leaves_nothing_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread closes what it has opened for nobody, and ends."""
    begun, go_on = threading.Event(), threading.Event()
    opened: list[sqlite3.Connection] = []

    def slow(path: Path, *, wal: bool) -> tuple[sqlite3.Connection, str]:
        begun.set()
        go_on.wait(5)
        found = connect(path, wal=wal)
        opened.append(found[0])
        return found

    monkeypatch.setattr("adapter.state.sqlite.connect", slow)
    opening = asyncio.ensure_future(SqliteStore(path).open())
    await until(begun.is_set)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    go_on.set()
    await until(
        lambda: not any(thread.name.startswith("state-sqlite") for thread in threading.enumerate()), 5
    )
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


async def test_a_store_that_is_not_open_says_so() -> None:
    """Before open and after close every method raises StoreUnavailable."""
    with pytest.raises(StoreUnavailable, match="not open"):
        await SqliteStore(Path("never-made.sqlite3")).get("sessions", "a")
    assert not Path("never-made.sqlite3").exists()


async def test_a_row_of_many_that_no_file_can_hold_takes_the_others_along(path: Path) -> None:
    """Rows that were written before it in the same call are undone, the call beside it is not."""
    store = SqliteStore(path)
    await store.open()
    good, bad = await asyncio.gather(
        store.put("files", "a", b""),
        store.commit([Put("files", "s/b", b""), Put("files", "s/\udcff", b"")]),
        return_exceptions=True,
    )
    assert isinstance(good, Row)
    assert isinstance(bad, UnicodeEncodeError)
    assert [row.key for row in await store.scan("files")] == ["a"]
    await store.close()


async def test_a_key_of_no_type_of_sqlites_fails_alone(path: Path) -> None:
    """The calls beside it, and all that come later, are done."""
    wrong: Any = ["a"]
    store = SqliteStore(path)
    await store.open()
    async with asyncio.timeout(5):
        written, bad, missing = await asyncio.gather(
            store.put("files", "a", b""),
            store.delete("files", wrong),
            store.get("files", "b"),
            return_exceptions=True,
        )
        assert isinstance(written, Row) and isinstance(bad, StoreUnavailable) and missing is None
        assert await store.get("files", "a") == written
        await store.close()


async def test_failure_of_the_thread_leaves_nobody_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when there is no memory: its callers are told, and the next ones have their turn."""

    def fail(*_: object) -> None:
        raise MemoryError()

    store = SqliteStore(path)
    await store.open()
    async with asyncio.timeout(5):
        with monkeypatch.context() as patching:
            patching.setattr("adapter.state.sqlite.outcomes", fail)
            with pytest.raises(StoreUnavailable):
                await store.scan("files")
        assert await store.scan("files") == []
        await store.close()


async def test_counts_of_a_clock_that_was_put_back_do_not_hold(tmp_path: Path) -> None:
    """A moment that is still to come is not counted, or callers would wait until then."""
    connection = sqlite3.connect(tmp_path / "state.sqlite3", isolation_level=None)
    sql.prepare(connection, wal=True, patience=1.0)
    assert sql.spend("rates", "a", 1, 60.0, 1_000_000.0, connection) == 0.0
    assert sql.spend("rates", "a", 1, 60.0, 1_000_010.0, connection) == 50.0
    assert sql.spend("rates", "a", 1, 60.0, 900_000.0, connection) == 0.0
    assert sql.spend("rates", "b", 1, 60.0, 1_000_070.0, connection) == 0.0
    assert connection.execute("SELECT key FROM rows").fetchall() == [("b",)]
    connection.close()
