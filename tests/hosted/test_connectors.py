"""What all connectors have in common: how they are chosen, and what they do with hostile values."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest

from adapter.hosted.connectors import connector_for
from adapter.hosted.connectors.plain import plain
from adapter.hosted.connectors.port import Connector, ConnectorFailed, Rows
from adapter.rules.calls.inputs import Input
from adapter.rules.statements.statements import Kind, bind, compile_statement
from tests.hosted.databases import Server
from tests.hosted.stating import opened, opened_at

HOSTILE = (
    "it's",
    "'; DROP TABLE people; --",
    "\\' OR 1=1 -- ",
    '"',
    "100%s",
    "{{ inputs.n }}",
    "a\r\nFLUSHALL\r\n",
    '{"$gt": ""}',
    "é😀",
)
INPUTS = {
    "q": Input(type="string", description="a text"),
    "n": Input(type="int", description="a number"),
}


async def ran(connector: Connector, kind: Kind, template: str, **values: str | int) -> Rows:
    """The statement on the way that a call takes: compiled, bound, run."""
    statement = compile_statement(template, kind, INPUTS, lambda _: None)
    return await connector.run(bind(statement, values), timeout=10, max_rows=10)


async def test_sqlite_binds_what_a_template_names() -> None:
    """In code, in quotes and within a literal, a value stays a value."""
    template = "SELECT {{ inputs.q }} AS code, '{{ inputs.q }}' AS quoted, 'a%{{ inputs.q }}%' AS part"
    async with opened_at("sqlite", ":memory:") as database:
        for value in HOSTILE:
            found = await ran(database.connector, "sqlite", template, q=value)
            assert found.rows == [{"code": value, "quoted": value, "part": f"a%{value}%"}]
        limited = await ran(database.connector, "sqlite", "SELECT 1 AS one LIMIT {{ inputs.n }}", n=0)
        assert limited.rows == []


async def test_postgres_binds_what_a_template_names(postgres: Server) -> None:
    """In code, in quotes and within a literal, a value stays a value, and the server finds its type."""
    template = "SELECT {{ inputs.q }} AS code, '{{ inputs.q }}' AS quoted, 'a%{{ inputs.q }}%' AS part"
    async with opened(postgres) as database:
        for value in HOSTILE:
            found = await ran(database.connector, "postgres", template, q=value)
            assert found.rows == [{"code": value, "quoted": value, "part": f"a%{value}%"}]
        template = "SELECT n FROM generate_series(1, 9) n WHERE n > {{ inputs.n }} LIMIT '{{ inputs.n }}'"
        numbers = await ran(database.connector, "postgres", template, n=2)
        assert numbers.rows == [{"n": 3}, {"n": 4}]


async def test_mysql_binds_what_a_template_names(mariadb: Server) -> None:
    """In code, in quotes and within a literal, a value stays a value, also beside a percent sign."""
    template = (
        "SELECT {{ inputs.q }} AS code, '{{ inputs.q }}' AS quoted, "
        "'a%{{ inputs.q }}%' AS part, 'x' LIKE '%' AS yes"
    )
    async with opened(mariadb) as database:
        for value in HOSTILE:
            found = await ran(database.connector, "mysql", template, q=value)
            assert found.rows == [{"code": value, "quoted": value, "part": f"a%{value}%", "yes": 1}]
        plainly = await ran(database.connector, "mysql", "SELECT 'x' LIKE '%' AS yes")
        assert plainly.rows == [{"yes": 1}]
        limited = await ran(database.connector, "mysql", "SELECT 1 AS one LIMIT {{ inputs.n }}", n=0)
        assert limited.rows == []


async def test_redis_binds_what_a_template_names(redis: Server) -> None:
    """A placeholder is one argument, or a part of one."""
    async with opened(redis) as database:
        for value in HOSTILE:
            await ran(database.connector, "redis", "set key:{{ inputs.q }} {{ inputs.q }}", q=value)
            found = await ran(database.connector, "redis", "get key:{{ inputs.q }}", q=value)
            assert found.rows == [{"value": value}]


async def test_mongodb_binds_what_a_template_names(mongodb: Server) -> None:
    """A placeholder is one value, and no operator."""
    insert = '{"command": {"insert": "bound", "documents": [{"name": "{{ inputs.q }}"}]}}'
    find = '{"command": {"find": "bound", "filter": {"name": "{{ inputs.q }}"}, "projection": {"_id": 0}}}'
    async with opened(mongodb) as database:
        for value in HOSTILE:
            await ran(database.connector, "mongodb", insert, q=value)
            assert (await ran(database.connector, "mongodb", find, q=value)).rows == [{"name": value}]


def test_an_unknown_kind_is_refused() -> None:
    """The sentence lists the kinds there are."""
    with pytest.raises(ConnectorFailed, match="one of sqlite, postgres, mysql, redis, mongodb"):
        connector_for("oracle", "main", "x")


@pytest.mark.parametrize(
    ("kind", "connection_string", "options", "why"),
    [
        ("sqlite", "a.db", {"nonsense": "hunter2"}, "option 'nonsense' is not known"),
        ("sqlite", "a.db", {"mode": "hunter2"}, "option 'mode' is one of ro, rw, rwc"),
        ("sqlite", "a.db", {"pool_size": 0}, "option 'pool_size' must be a whole number of at least 1"),
        ("mysql", "mysql://a/b", {"tls": "hunter2"}, "option 'tls' is one of true, false, skip-verify"),
        (
            "postgres",
            "postgres://a/b",
            {"pool_size": True},
            "option 'pool_size' must be a whole number of at least 1",
        ),
    ],
)
def test_a_wrong_option_is_named_and_not_repeated(
    kind: str, connection_string: str, options: dict[str, object], why: str
) -> None:
    """A typing mistake is found at the start."""
    with pytest.raises(ConnectorFailed) as failure:
        connector_for(kind, "main", connection_string, options)
    assert str(failure.value) == f"connector 'main' ({kind}): {why}"


def test_drivers_are_imported_only_when_they_are_needed() -> None:
    """Who uses SQLite pays for no other database."""
    program = (
        "import sys, adapter.hosted.connectors as c; c.connector_for('sqlite', 'main', ':memory:');"
        "print([name for name in ('asyncpg', 'aiomysql', 'redis', 'pymongo', 'bson') if name in sys.modules])"
    )
    assert _python(program) == "[]"


@pytest.mark.parametrize(
    ("kind", "driver", "extra"),
    [
        ("postgres", "asyncpg", "postgres"),
        ("mariadb", "pymysql", "mysql"),
        ("redis", "redis", "redis"),
        ("mongodb", "pymongo", "mongodb"),
    ],
)
def test_a_missing_driver_is_one_sentence(kind: str, driver: str, extra: str) -> None:
    """It names the extra that brings the driver."""
    program = (
        f"import sys; sys.modules['{driver}'] = None\n"
        "from adapter.hosted.connectors import connector_for\n"
        f"try: connector_for('{kind}', 'main', 'x')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    sentence = f"connector 'main' ({extra}): install mcp-file-adapter[{extra}] for its driver"
    assert _python(program) == f"ConnectorFailed {sentence}"


def test_what_drivers_return_becomes_json() -> None:
    """Nested values are gone through, and keys are texts."""
    assert plain({1: (Decimal("1.0"), {b"a"}), "x": float("-inf")}) == {"1": ["1.0", ["a"]], "x": "-Infinity"}


def _python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()
