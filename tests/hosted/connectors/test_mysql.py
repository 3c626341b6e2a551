"""The MySQL connector, on a real MariaDB server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapter.hosted.connectors.port import QueryFailed
from adapter.rules.calls.inputs import Scalar
from tests.hosted.connectors import scenarios
from tests.hosted.databases import PASSWORD, URL_PASSWORD, Server
from tests.hosted.stating import Asking, opened, opened_at
from tests.hosted.witnesses import root_of
from tests.ports import free_port
from tests.waiting import until

ENDLESS = "SELECT seq FROM seq_1_to_1000000000"


@pytest.fixture
async def database(mariadb: Server) -> AsyncIterator[Asking]:
    """A connector to an empty table."""
    async with opened(mariadb) as asking:
        await asking.sql("DROP TABLE IF EXISTS people")
        await asking.sql("CREATE TABLE people (id int AUTO_INCREMENT PRIMARY KEY, name text)")
        yield asking


async def test_every_type_comes_as_json_knows_it(database: Asking) -> None:
    """Numbers stay, bytes become text, everything else is a text that loses nothing."""
    await database.sql("DROP TABLE IF EXISTS kinds")
    await database.sql(
        "CREATE TABLE kinds (big bigint unsigned, price decimal(8,2), ratio double, day date, at datetime(1), "
        "hour time, raw varbinary(8), bits bit(10), words text, choice enum('a', 'b'), yes boolean, uuid uuid, "
        "nothing int)"
    )
    await database.sql(
        "INSERT INTO kinds VALUES (18446744073709551615, 12.50, 1.5, '2024-02-29', '2024-02-29 10:11:12.5', "
        "'-26:03:04', x'ff00', b'1000000001', 'é😀', 'b', true, '5f0c0a52-6a4b-4a38-9d3b-1b9f1a3e9c11', NULL)"
    )
    assert (await database.sql("SELECT *, CAST('text' AS BINARY) AS bytes FROM kinds")).rows == [
        {
            "big": 18446744073709551615,
            "price": "12.50",
            "ratio": 1.5,
            "day": "2024-02-29",
            "at": "2024-02-29T10:11:12.500000",
            "hour": "-26:03:04",
            "raw": "/wA=",
            "bits": 513,
            "words": "é😀",
            "choice": "b",
            "yes": 1,
            "uuid": "5f0c0a52-6a4b-4a38-9d3b-1b9f1a3e9c11",
            "nothing": None,
            "bytes": "text",
        }
    ]


@pytest.mark.parametrize(
    "value", ["'; DROP TABLE people; --", "\\' OR 1=1 -- ", '"', "%s", "é😀\0\n\x1a", ""]
)
@pytest.mark.parametrize("mode", ["", "NO_BACKSLASH_ESCAPES"])
async def test_values_are_bound(mariadb: Server, value: str, mode: str) -> None:
    """What a value holds is never read as SQL, in either of the server's ways to quote."""
    async with opened_at("mysql", root_of(mariadb)) as root:
        (before,) = (await root.sql("SELECT @@GLOBAL.sql_mode AS mode")).rows
        await root.sql(f"SET GLOBAL sql_mode = '{mode}'")
        async with opened(mariadb, pool_size=1) as database:
            found = await database.sql("SELECT %s AS value, @@sql_mode AS `100%%`", value)
        await root.sql("SET GLOBAL sql_mode = %s", before["mode"])
        assert found.rows == [{"value": value, "100%": mode}]


@pytest.mark.parametrize(
    "statement",
    [
        "SET NAMES gbk",
        "/* once */ set character_set_client = sjis",
        "USE app",
        "EXECUTE IMMEDIATE 'SET NAMES gbk'",
        "BEGIN NOT ATOMIC SET NAMES gbk; END",
    ],
)
async def test_what_changes_a_connection_is_no_other_statement_s(mariadb: Server, statement: str) -> None:
    """In a character set whose letters end in a backslash, the driver's quotes would be read as something else."""
    async with opened(mariadb, pool_size=1) as database:
        question = "SELECT @@character_set_client AS set_, connection_id() AS id, %s AS value"
        hostile = "\u7e17' UNION SELECT 1, 2, 3 -- \u8868' OR 1=1 -- "
        before = (await database.sql(question, hostile)).rows[0]
        await database.sql(statement)
        after = (await database.sql(question, hostile)).rows[0]
        assert before["id"] != after["id"]
        assert (after["set_"], after["value"]) == ("utf8mb4", hostile)


@pytest.mark.parametrize("charset", ["gbk", "sjis", "big5", "latin1"])
async def test_no_setting_of_the_server_s_makes_values_code(mariadb: Server, charset: str) -> None:
    """A server that puts a character set of its own in the place of the one that was asked for: the last byte of some
    letters and the driver's backslash are then one letter, and the quote behind them ends the value."""
    async with opened_at("mysql", root_of(mariadb)) as root:
        await root.sql(f"SET GLOBAL init_connect = 'SET NAMES {charset}'")
        try:
            async with opened(mariadb, pool_size=1) as database:
                for letter in "\u4f7f\u7e17\u8868\u529f\u2019\u00bf":
                    hostile = f"{letter}' UNION SELECT current_user() -- "
                    assert (await database.sql("SELECT %s AS value", hostile)).rows == [{"value": hostile}]
        finally:
            await root.sql("SET GLOBAL init_connect = ''")


@pytest.mark.parametrize(
    ("statement", "values", "why"),
    [
        ("SELECT 1 LIMIT %s /* secret */", (-1,), "right syntax to use near '…'"),
        ("UPDATE people SET name = id WHERE name = %s", (1,), "Truncated incorrect DECIMAL value: '…'"),
        ("UPDATE people SET id = name", (), "Incorrect integer value: '…' for column"),
        ("UPDATE people SET id = %s", ("mine",), "Incorrect integer value: 'mine' for column"),
    ],
)
async def test_w9_a_failure_quotes_only_what_the_call_sent(
    database: Asking, statement: str, values: tuple[Scalar, ...], why: str
) -> None:
    """Neither the rest of the statement nor what another row holds, though the server's sentence does."""
    await database.sql("INSERT INTO people (name) VALUES (%s)", "it's another's")
    with pytest.raises(QueryFailed) as failure:
        await database.sql(statement, *values)
    assert why in str(failure.value)
    assert "another" not in str(failure.value) and "secret" not in str(failure.value)


async def test_a_statement_without_values_is_sent_as_it_is(database: Asking) -> None:
    """A percent sign is a percent sign where nothing is filled in."""
    assert (await database.sql("SELECT 'a%s' LIKE 'a%' AS yes")).rows == [{"yes": 1}]


async def test_a_second_statement_is_refused(database: Asking) -> None:
    """A call is one statement, also for the server."""
    with pytest.raises(QueryFailed, match="error in your SQL syntax"):
        await database.sql("SELECT 1; DROP TABLE people")
    assert (await database.sql("SELECT * FROM people")).rows == []


async def test_a_write_counts_and_returning_gives_rows(database: Asking) -> None:
    """What a write changed is a number, unless it asks for the rows."""
    insert = "INSERT INTO people (name) VALUES (%s), (%s) RETURNING id, name"
    await scenarios.writes_and_shows_rows(database, insert, "UPDATE people SET name = %s", "x")


async def test_a_procedure_gives_its_first_rows(database: Asking) -> None:
    """Further results are read away, so that the next statement gets its own."""
    await database.sql("DROP PROCEDURE IF EXISTS two")
    await database.sql("CREATE PROCEDURE two() BEGIN SELECT 1 AS first; SELECT 2 AS second; END")
    assert (await database.sql("CALL two()")).rows == [{"first": 1}]
    assert (await database.sql("SELECT 3 AS third")).rows == [{"third": 3}]


async def test_rows_beyond_the_limit_are_cut(mariadb: Server) -> None:
    """The rest of a table stays where it is, and the only connection answers the next statement."""
    async with opened(mariadb, pool_size=1) as database:
        cut = await database.sql(ENDLESS, max_rows=2)
        assert (cut.rows, cut.truncated) == ([{"seq": 1}, {"seq": 2}], True)
        whole = await database.sql("SELECT seq FROM seq_1_to_2", max_rows=2)
        assert (len(whole.rows), whole.truncated) == (2, False)


async def test_a_refused_statement_says_why(database: Asking) -> None:
    """The server's sentence is the failure's, and the connection serves the next statement."""
    with pytest.raises(QueryFailed, match=r"Table 'app\.nowhere' doesn't exist"):
        await database.sql("SELECT * FROM nowhere")
    await scenarios.still_answers(database)


async def test_a_row_that_cannot_be_read_leaves_no_other_s(mariadb: Server) -> None:
    """What is no text where one is said to be fails its statement alone."""
    async with opened(mariadb, pool_size=1) as single:
        with pytest.raises(QueryFailed, match="can't decode"):
            await single.sql("SELECT %s AS text FROM seq_1_to_9", "a\udcff")
        await scenarios.still_answers(single)


async def test_a_transaction_left_open_is_rolled_back(mariadb: Server, database: Asking) -> None:
    """What a statement leaves behind is no other's."""
    async with opened(mariadb, pool_size=1) as single:
        await single.sql("BEGIN")
        await single.sql("INSERT INTO people (name) VALUES ('Ada')")
    assert (await database.sql("SELECT name FROM people")).rows == [{"name": "Ada"}]


async def test_a_full_pool_makes_calls_wait(mariadb: Server) -> None:
    """More calls than connections all get their answer, and one that waits too long says so."""
    async with opened(mariadb, pool_size=2) as small:
        await scenarios.crowds_a_pool_of_two(small, "SELECT SLEEP(0.02), %s AS n", "SELECT SLEEP(60)")


async def test_many_statements_leak_no_connection(mariadb: Server, database: Asking) -> None:
    """A thousand statements, good and bad and cancelled, use no more connections than the pool has."""
    async with opened(mariadb, pool_size=4) as leaky:
        before = await _connections(database)
        await scenarios.sends_a_thousand(leaky)
        await until(lambda: _at_most(database, before + 3))
    await until(lambda: _at_most(database, before - 1))


async def test_a_restarted_server_is_found_again(mariadb: Server, database: Asking) -> None:
    """A server that went away fails the calls of that time, and none afterwards."""
    endless = "SELECT SLEEP(60) /* cut off */"
    await scenarios.loses_its_server(
        mariadb, database, endless, lambda watching: _runs(watching, "cut off", 1)
    )


async def test_the_address_of_other_clients_is_understood(mariadb: Server) -> None:
    """user:password@tcp(host:port)/database, with the settings that concern only those clients."""
    address = f"app:{PASSWORD}@tcp(127.0.0.1:{mariadb.port})/app?parseTime=true&charset=utf8mb4"
    async with opened_at("mysql", address) as database:
        assert (await database.sql("SELECT DATABASE() AS name")).rows == [{"name": "app"}]
    socket = f"app:{PASSWORD}@unix({mariadb.folder}/sock)/app"
    async with opened_at("mariadb", socket) as database:
        assert (await database.sql("SELECT DATABASE() AS name")).rows == [{"name": "app"}]


async def test_a_connector_that_cannot_open_gives_a_safe_reason(mariadb: Server) -> None:
    """The reason helps whoever configured it, and repeats nothing of the connection string."""
    wrong = {
        mariadb.url.replace(URL_PASSWORD, "hunter2"): "the server refused the credentials",
        mariadb.url.replace("/app", "/hunter2"): "the server refused the credentials",
        mariadb.url.replace(
            f":{mariadb.port}", f":{free_port()}"
        ): "nothing listens at the configured address",
        mariadb.url + "?tls=skip-verify": "the TLS handshake failed",  # this server has no certificate
        mariadb.url + "?hunter=2": "option 'hunter' is not known",
        "mysql://app:hunter2@127.0.0.1:hunter2/db": "the connection string is not valid",
        "hunter2": "the connection string is not valid",
    }
    await scenarios.cannot_open("mysql", wrong)


async def _runs(database: Asking, mark: str, count: int) -> bool:
    found = await database.sql("SHOW FULL PROCESSLIST")
    return sum(mark in (row["Info"] or "") for row in found.rows) == count


async def _connections(database: Asking) -> int:
    return len((await database.sql("SHOW PROCESSLIST")).rows)


async def _at_most(database: Asking, count: int) -> bool:
    return await _connections(database) <= count
