"""The PostgreSQL connector, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapter.hosted.connectors.port import QueryFailed
from adapter.rules.calls.inputs import Scalar
from tests.hosted.connectors import scenarios
from tests.hosted.databases import URL_PASSWORD, Server
from tests.hosted.stating import Asking, opened
from tests.ports import free_port
from tests.waiting import until

RUNNING = "SELECT count(*) AS running FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1"


@pytest.fixture
async def database(postgres: Server) -> AsyncIterator[Asking]:
    """A connector to an empty table."""
    async with opened(postgres) as asking:
        await asking.sql("DROP TABLE IF EXISTS people")
        await asking.sql("CREATE TABLE people (id serial PRIMARY KEY, name text, born date)")
        yield asking


async def test_every_type_comes_as_json_knows_it(database: Asking) -> None:
    """Numbers and booleans stay, JSON is parsed, everything else is a text that loses nothing."""
    found = await database.sql(
        """SELECT 7 AS int, 9007199254740993 AS big, 1.5::float8 AS float, 12.50::numeric AS decimal, true AS yes,
           'NaN'::float8 AS nan, NULL AS nothing, 'text' AS text, 'text'::bytea AS bytes, '\\xff00'::bytea AS binary,
           '2024-02-29'::date AS day, '10:11:12'::time AS hour, '2024-02-29 10:11:12.5'::timestamp AS naive,
           '2024-02-29 10:11:12+00'::timestamptz AS aware, 'infinity'::timestamptz AS never,
           '1 mon 2 days'::interval AS span, '5f0c0a52-6a4b-4a38-9d3b-1b9f1a3e9c11'::uuid AS uuid,
           '{"a": [1, null]}'::jsonb AS json, ARRAY[1, 2] AS ints, ARRAY['a', 'b'] AS texts,
           '127.0.0.1'::inet AS address"""
    )
    (row,) = found.rows
    zone = row.pop("aware")
    assert zone.startswith("2024-02-29T") and zone[10] == "T"
    assert row == {
        "int": 7,
        "big": 9007199254740993,
        "float": 1.5,
        "decimal": "12.50",
        "yes": True,
        "nan": "NaN",
        "nothing": None,
        "text": "text",
        "bytes": "text",
        "binary": "/wA=",
        "day": "2024-02-29",
        "hour": "10:11:12",
        "naive": "2024-02-29T10:11:12.5",
        "never": "infinity",
        "span": "1 mon 2 days",
        "uuid": "5f0c0a52-6a4b-4a38-9d3b-1b9f1a3e9c11",
        "json": {"a": [1, None]},
        "ints": [1, 2],
        "texts": ["a", "b"],
        "address": "127.0.0.1",
    }


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("$1::text", 42, "42"),
        ("$1::text", True, "true"),
        ("'%' || $1 || '%'", 5, "%5%"),
        ("$1::int", "42", 42),
        ("$1::numeric", 1.25, "1.25"),
        ("$1::timestamp", "2024-02-29", "2024-02-29T00:00:00"),
        ("$1::uuid::text", "5F0C0A52-6a4b-4a38-9d3b-1b9f1a3e9c11", "5f0c0a52-6a4b-4a38-9d3b-1b9f1a3e9c11"),
        ("$1::json", '{"a":1}', {"a": 1}),
        ("$1::text", "'; DROP TABLE people; --", "'; DROP TABLE people; --"),
    ],
)
async def test_the_server_decides_what_a_value_means(
    database: Asking, expression: str, value: Scalar, expected: object
) -> None:
    """A value is bound, and read as its column reads a literal, whatever its type was."""
    found = await database.sql(f"SELECT {expression} AS value", value)
    assert found.rows == [{"value": expected}]


async def test_a_write_counts_and_returning_gives_rows(database: Asking) -> None:
    """What a write changed is a number, unless it asks for the rows."""
    insert = "INSERT INTO people (name) VALUES ($1), ($2) RETURNING id, name"
    await scenarios.writes_and_shows_rows(database, insert, "UPDATE people SET born = $1", "1912-06-23")
    assert (await database.sql("VACUUM people")).rows == [{"rows_affected": 0}]


async def test_a_row_as_a_value_is_asked_for_as_json(database: Asking) -> None:
    """What the driver cannot read in text says how to ask for it, and the connection stays good."""
    await database.sql("INSERT INTO people (name, born) VALUES ('Ada', '1815-12-10')")
    for statement in ("SELECT people FROM people", "SELECT ROW(1, 2)"):
        with pytest.raises(QueryFailed, match="to_jsonb"):
            await database.sql(statement)
    found = await database.sql("SELECT to_jsonb(people) AS person FROM people")
    assert found.rows == [{"person": {"id": 1, "name": "Ada", "born": "1815-12-10"}}]


async def test_returning_writes_all_and_shows_some(database: Asking) -> None:
    """The limit is one of reading: a write is never cut."""
    some = await database.sql(
        "INSERT INTO people (name) SELECT 'x' FROM generate_series(1, 10) RETURNING id", max_rows=3
    )
    assert (len(some.rows), some.truncated) == (3, True)
    assert (await database.sql("SELECT count(*) AS n FROM people")).rows == [{"n": 10}]


async def test_rows_beyond_the_limit_are_cut(database: Asking) -> None:
    """The rest of a table stays where it is, and the answer says that there is a rest."""
    cut = await database.sql("SELECT generate_series(1, 1000000000) AS n", max_rows=2)
    assert (cut.rows, cut.truncated) == ([{"n": 1}, {"n": 2}], True)
    whole = await database.sql("SELECT n FROM generate_series(1, 2) n", max_rows=2)
    assert not whole.truncated


async def test_a_refused_statement_says_why(database: Asking) -> None:
    """The server's sentence is the failure's, and the connection serves the next statement."""
    with pytest.raises(QueryFailed, match='relation "nowhere" does not exist'):
        await database.sql("SELECT * FROM nowhere")
    with pytest.raises(QueryFailed, match="invalid input syntax for type integer"):
        await database.sql("SELECT $1::int", "many")
    await scenarios.still_answers(database)


async def test_w9_a_failure_quotes_only_what_the_call_sent(database: Asking) -> None:
    """Not what another row holds, though the server's sentence does."""
    await database.sql("INSERT INTO people (name) VALUES ($1)", "it's \"another's\"")
    for statement, values, why in (
        ("SELECT name::int FROM people", (), 'invalid input syntax for type integer: "…"'),
        ("SELECT id FROM people WHERE id = $1", ("mine",), 'invalid input syntax for type integer: "mine"'),
    ):
        with pytest.raises(QueryFailed) as failure:
            await database.sql(statement, *values)
        assert str(failure.value) == why


async def test_a_full_pool_makes_calls_wait(postgres: Server) -> None:
    """More calls than connections all get their answer, and one that waits too long says so."""
    async with opened(postgres, pool_size=2) as small:
        await scenarios.crowds_a_pool_of_two(
            small, "SELECT pg_sleep(0.02), $1::int AS n", "SELECT pg_sleep(60)"
        )


async def test_many_statements_leak_no_connection(postgres: Server, database: Asking) -> None:
    """A thousand statements, good and bad and cancelled, use no more connections than the pool has."""
    mine = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'leaky'"
    async with opened(postgres, pool_size=4, application_name="leaky") as leaky:
        await scenarios.sends_a_thousand(leaky)
        assert (await database.sql(mine)).rows[0]["n"] <= 4
    await until(lambda: _none_left(database, mine))


async def test_a_restarted_server_is_found_again(postgres: Server, database: Asking) -> None:
    """A server that went away fails the calls of that time, and none afterwards."""
    endless = "SELECT pg_sleep(60)"
    await scenarios.loses_its_server(
        postgres, database, endless, lambda watching: _runs(watching, endless, 1)
    )


async def test_a_connector_that_cannot_open_gives_a_safe_reason(postgres: Server) -> None:
    """The reason helps whoever configured it, and repeats nothing of the connection string."""
    nowhere = free_port()
    wrong = {
        postgres.url.replace(URL_PASSWORD, "hunter2"): "the server refused the credentials",
        postgres.url.replace("/postgres", "/hunter2"): "the configured database does not exist",
        postgres.url.replace(f":{postgres.port}", f":{nowhere}"): "nothing listens at the configured address",
        "postgres://app:hunter2@127.0.0.1:hunter2/db": "the connection string is not valid",
        "hunter2": "the connection string is not valid",
    }
    await scenarios.cannot_open("postgres", wrong)


async def _running(database: Asking, query: str) -> int:
    (row,) = (await database.sql(RUNNING + " AND pid <> pg_backend_pid()", query)).rows
    count: int = row["running"]
    return count


async def _runs(database: Asking, query: str, count: int) -> bool:
    return await _running(database, query) == count


async def _none_left(database: Asking, counting: str) -> bool:
    return (await database.sql(counting)).rows == [{"n": 0}]
