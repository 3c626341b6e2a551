"""The SQLite connector, on real files."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.hosted.connectors import connector_for
from adapter.hosted.connectors.port import ConnectorFailed, QueryFailed, QueryTimedOut
from adapter.rules.calls.inputs import Scalar
from tests.hosted.stating import Asking, opened_at

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with one empty table."""
    path = tmp_path / "app's data?.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, photo BLOB)")
    connection.close()
    return path


@pytest.fixture
async def database(file: Path) -> AsyncIterator[Asking]:
    async with opened_at("sqlite", str(file)) as asking:
        yield asking


async def test_every_type_comes_as_json_knows_it(database: Asking) -> None:
    """Numbers stay; bytes become text, or base64 where they are none."""
    found = await database.sql(
        "SELECT 7 AS int, 1.5 AS float, NULL AS none, 'é' AS text, x'74657874' AS bytes, x'ff00' AS binary, "
        "1e999 AS huge, CAST(x'ff' AS TEXT) AS broken, date('2024-02-29') AS day"
    )
    assert found.rows == [
        {
            "int": 7,
            "float": 1.5,
            "none": None,
            "text": "é",
            "bytes": "text",
            "binary": "/wA=",
            "huge": "Infinity",
            "broken": "\N{REPLACEMENT CHARACTER}",
            "day": "2024-02-29",
        }
    ]


async def test_values_are_bound(database: Asking) -> None:
    """What a value holds is never read as SQL."""
    hostile = "'; DROP TABLE people; --"
    await database.sql("INSERT INTO people (name) VALUES (?)", hostile)
    found = await database.sql("SELECT name, ? AS yes FROM people WHERE name = ?", True, hostile)
    assert found.rows == [{"name": hostile, "yes": 1}]


async def test_a_write_counts_and_returning_gives_rows(database: Asking) -> None:
    """What a write changed is a number, unless it asks for the rows."""
    inserted = await database.sql("INSERT INTO people (name) VALUES ('Ada'), ('Alan') RETURNING id, name")
    assert inserted.rows == [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Alan"}]
    updated = await database.sql("UPDATE people SET name = ?", "x")
    assert (updated.rows, updated.affected) == ([{"rows_affected": 2}], 2)
    assert (await database.sql("SELECT id FROM people WHERE id = 9")).rows == []
    assert (await database.sql("CREATE TABLE t (x)")).rows == [{"rows_affected": 0}]


async def test_rows_beyond_the_limit_are_cut(database: Asking) -> None:
    """An endless answer is read as far as it is wanted, and a write is never cut."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    cut = await database.sql(numbers, max_rows=2)
    assert (cut.rows, cut.truncated) == ([{"i": 1}, {"i": 2}], True)
    assert not (await database.sql(numbers + " LIMIT 2", max_rows=2)).truncated
    some = await database.sql("INSERT INTO people (name) VALUES ('a'), ('b'), ('c') RETURNING id", max_rows=1)
    assert (some.rows, some.truncated) == ([{"id": 1}], True)
    assert (await database.sql("SELECT count(*) AS n FROM people")).rows == [{"n": 3}]


@pytest.mark.parametrize(
    ("statement", "values", "why"),
    [
        ("SELECT * FROM nowhere", (), "no such table: nowhere"),
        ("SELECT 1; SELECT 2", (), "one statement at a time"),
        ("SELECT ?", (2**70,), "too large"),
        ("SELECT ?", ("\ud800",), "surrogates"),
        ("SELECT ?", (), "number of bindings"),
    ],
)
async def test_a_refused_statement_says_why(
    database: Asking, statement: str, values: tuple[Scalar, ...], why: str
) -> None:
    """The failure's sentence is SQLite's, and the connection serves the next statement."""
    with pytest.raises(QueryFailed, match=why):
        await database.sql(statement, *values)
    assert (await database.sql("SELECT 1 AS one")).rows == [{"one": 1}]


async def test_a_transaction_left_open_is_rolled_back(database: Asking) -> None:
    """A statement is one transaction; what it leaves behind is no other's."""
    await database.sql("BEGIN IMMEDIATE")
    await database.sql("INSERT INTO people (name) VALUES ('Ada')")
    assert (await database.sql("SELECT name FROM people")).rows == [{"name": "Ada"}]


async def test_a_cancelled_call_is_interrupted(file: Path) -> None:
    """Whoever stops waiting stops the thread's work as well, whenever that is."""
    async with opened_at("sqlite", str(file), pool_size=1) as single:
        for turns in range(5):
            call = asyncio.create_task(single.sql(ENDLESS))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        call = asyncio.create_task(single.sql(ENDLESS))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await single.sql("SELECT 1 AS one", timeout=2)).rows == [{"one": 1}]


async def test_a_pattern_has_an_end(database: Asking) -> None:
    """One that would keep a thread busy for longer than anybody can stop it is refused, on every connection."""
    for question in ("SELECT ? LIKE ? AS yes", "CREATE TABLE found AS SELECT ? LIKE ?"):
        with pytest.raises(QueryFailed, match="pattern too complex: the limit is 1000 bytes"):
            await database.sql(question, "a" * 100_000, "%" + "a" * 20_000 + "b%")
    assert (await database.sql("SELECT ? LIKE ? AS yes", "a" * 998, "%" + "a" * 998 + "%")).rows == [
        {"yes": 1}
    ]


async def test_a_lock_is_waited_for_and_the_wait_can_be_cancelled(file: Path, database: Asking) -> None:
    """Another process that writes holds a statement up; it neither fails it nor makes it deaf."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(QueryTimedOut):
        await database.sql("INSERT INTO people (name) VALUES ('late')", timeout=0.1)
    waiting = asyncio.create_task(database.sql("INSERT INTO people (name) VALUES ('Ada')"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    other.execute("COMMIT")
    other.close()
    assert (await waiting).affected == 1
    assert (await database.sql("SELECT name FROM people")).rows == [{"name": "Ada"}]


async def test_readers_run_beside_a_writer(file: Path) -> None:
    """With a write-ahead log nobody who reads waits for one who writes."""
    async with opened_at("sqlite", str(file), journal_mode="wal") as database:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO people (name) VALUES ('half')")
        assert (await database.sql("SELECT count(*) AS n FROM people", timeout=2)).rows == [{"n": 0}]
        other.execute("COMMIT")
        other.close()
        writes = (database.sql("INSERT INTO people (name) VALUES (?)", str(n)) for n in range(50))
        reads = (database.sql("SELECT count(*) AS n FROM people") for _ in range(50))
        await asyncio.gather(*writes, *reads)
        assert (await database.sql("SELECT count(*) AS n FROM people")).rows == [{"n": 51}]


async def test_many_statements_leak_no_thread(file: Path) -> None:
    """A thousand statements, good and bad and cancelled, leave nothing running."""
    async with opened_at("sqlite", str(file), pool_size=2) as database:
        for _ in range(10):
            calls = [asyncio.create_task(database.sql("SELECT 1" if n % 7 else "SELEC")) for n in range(100)]
            await asyncio.sleep(0)
            for call in calls[::10]:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        assert _threads() <= 3
        assert (await database.sql("SELECT 1 AS one")).rows == [{"one": 1}]
    assert _threads() == 0


async def test_a_database_in_memory_is_one_database() -> None:
    """All statements see the same tables."""
    async with opened_at("sqlite", ":memory:") as database:
        await database.sql("CREATE TABLE t (x)")
        await asyncio.gather(*(database.sql("INSERT INTO t VALUES (?)", n) for n in range(5)))
        assert (await database.sql("SELECT count(*) AS n FROM t")).rows == [{"n": 5}]


@pytest.mark.parametrize("spelling", ["{path}", "sqlite:///{path}", "sqlite:////{absolute}"])
async def test_the_file_is_found_in_every_spelling(file: Path, spelling: str) -> None:
    """A path, or a URL as other programs spell it."""
    plain = file.rename(file.with_name("app.db"))
    async with opened_at("sqlite", spelling.format(path=plain, absolute=str(plain).lstrip("/"))) as database:
        assert (await database.sql("SELECT count(*) AS n FROM people")).rows == [{"n": 0}]


async def test_a_relative_path_is_below_its_base(file: Path) -> None:
    """A configuration's paths are relative to its file, not to where the adapter was started."""
    connector = connector_for("sqlite", "main", file.name, base=file.parent)
    await connector.open()
    database = Asking(connector)
    assert (await database.sql("SELECT count(*) AS n FROM people")).rows == [{"n": 0}]
    await connector.close()
    with pytest.raises(QueryFailed, match="closed"):
        await database.sql("SELECT 1")


async def test_a_read_only_database_refuses_to_write(file: Path) -> None:
    """mode: ro is kept by SQLite itself."""
    async with opened_at("sqlite", str(file), mode="ro") as database:
        with pytest.raises(QueryFailed, match="readonly"):
            await database.sql("INSERT INTO people (name) VALUES ('Ada')")


async def test_a_missing_file_is_made_only_when_asked(tmp_path: Path) -> None:
    """A misspelt path is a mistake, not an empty database."""
    path = tmp_path / "new.db"
    with pytest.raises(ConnectorFailed, match="does not exist or cannot be opened") as failure:
        await connector_for("sqlite", "main", str(path)).open()
    assert str(tmp_path) not in str(failure.value)
    async with opened_at("sqlite", str(path), mode="rwc") as database:
        await database.sql("CREATE TABLE t (x)")
    assert path.exists()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """What is no database is noticed when it is opened, and left as it is."""
    (path := tmp_path / "notes.txt").write_text("no database" * 100)
    with pytest.raises(ConnectorFailed, match="the file is not a SQLite database"):
        await connector_for("sqlite", "main", str(path)).open()


def _threads() -> int:
    return sum(thread.name.startswith("sqlite-main") for thread in threading.enumerate())
