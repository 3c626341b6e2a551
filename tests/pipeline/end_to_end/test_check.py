"""``mcp-adapter check`` finds what is wrong with statements and database files, and changes nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from adapter.cli import run
from tests.pipeline.end_to_end.living import furnished

SETTINGS = """
connectors:
  - {name: main, connector: sqlite, connection_string: shop.db}
servers:
  - id: shop
    upstream: {transport: hosted}
    tools:
      define:
        - {name: count, use: main, statement: "SELECT count(*) AS n FROM things"}
        - name: find
          use: main
          statement: >-
            SELECT {{ inputs.column | ident }} FROM things
            WHERE name LIKE '%{{ inputs.part }}%' LIMIT {{ inputs.most }}
          inputs: {part: {type: string}, column: {type: string, enum: [id, name]}, most: {type: int}}
        - name: add
          use: main
          statement: "INSERT INTO things (name) VALUES ({{ inputs.name }})"
          inputs: {name: {type: string}}
        - {name: why, use: main, statement: "explain SELECT * FROM things"}
"""

DEFINE = "servers[0].tools.define"


def shop(place: Path, settings: str = SETTINGS, journal: str = "delete") -> Path:
    """The settings file beside a database."""
    with closing(sqlite3.connect(place / "shop.db")) as database, database:
        database.execute(f"PRAGMA journal_mode = {journal}")
        database.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT)")
    return furnished(place, settings)


def checked(file: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What check has against it, without its first line."""
    status = run(["check", "--config", str(file)])
    said = capsys.readouterr().err.splitlines()[1:]
    assert status == (2 if said else 0)
    return said


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_statements_that_their_database_takes_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], journal: str
) -> None:
    """None of them is run, and no file comes or changes."""
    file = shop(tmp_path, journal=journal)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert checked(file, capsys) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_database_that_is_written_to_is_read_with_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the adapter has it open, what is only in the write-ahead log counts."""
    file = shop(tmp_path, SETTINGS.replace("n FROM things", "n FROM fresh", 1), journal="wal")
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as database:
        database.execute("CREATE TABLE fresh (id INTEGER)")
        assert checked(file, capsys) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "SELECT count(*) AS n",
            "SELEC count(*) AS n",
            '[0].statement: SQLite refuses it: near "SELEC": syntax error',
        ),
        ("n FROM things", "n FROM thing", "[0].statement: SQLite refuses it: no such table: thing"),
        ("enum: [id, name]", "enum: [id, title]", "[1].statement: SQLite refuses it: no such column: title"),
        (
            "things (name)",
            "things (title)",
            "[2].statement: SQLite refuses it: table things has no column named title",
        ),
        ("count(*) AS n", "counted(*) AS n", "[0].statement: SQLite refuses it: no such function: counted"),
    ],
)
def test_a_statement_that_its_database_refuses_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, said: str
) -> None:
    """At its place, in SQLite's own words; each name out of an enum is tried."""
    assert before in SETTINGS
    assert checked(shop(tmp_path, SETTINGS.replace(before, after, 1)), capsys) == [DEFINE + said]


MISSING = "the database file does not exist or cannot be opened (mode: rwc creates it)"


@pytest.mark.parametrize(
    ("more", "content", "said"),
    [
        ("", None, f"connectors[0]: connector 'main' (sqlite): {MISSING}"),
        (
            "",
            b"no database at all, but long enough" * 99,
            "connectors[0]: connector 'main' (sqlite): the file is not a SQLite database",
        ),
        (", required: false", None, None),
        (", options: {mode: rwc}", None, None),
    ],
)
def test_a_database_file_that_is_missing_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, content: bytes | None, said: str | None
) -> None:
    """Unless it need not be there, or is created at start; check creates none."""
    settings = SETTINGS.replace("connection_string: shop.db", f"connection_string: other.db{more}")
    file = furnished(tmp_path, settings)
    if content is not None:
        (tmp_path / "other.db").write_bytes(content)
    assert checked(file, capsys) == ([] if said is None else [said])
    assert (tmp_path / "other.db").exists() is (content is not None)


@pytest.mark.parametrize("where", [":memory:", "new.db, options: {mode: rwc}"])
def test_where_tables_are_made_later_the_rest_is_still_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    """A database that begins empty lacks every table; a word that is none is wrong all the same."""
    settings = SETTINGS.replace(
        "connection_string: shop.db",
        f'connection_string: "{where}"'.replace(', options: {mode: rwc}"', '", options: {mode: rwc}'),
    )
    settings = settings.replace("SELECT count(*)", "SELEC count(*)")
    assert checked(furnished(tmp_path, settings), capsys) == [
        f'{DEFINE}[0].statement: SQLite refuses it: near "SELEC": syntax error'
    ]


def test_a_table_that_a_tool_makes_may_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until that is called."""
    settings = SETTINGS.replace(
        "SELECT count(*) AS n FROM things", "CREATE TABLE IF NOT EXISTS notes (body TEXT)"
    )
    settings = settings.replace("INTO things (name)", "INTO notes (body)")
    assert checked(shop(tmp_path, settings), capsys) == []


def test_databases_elsewhere_are_not_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check needs no network: a server that is away, and a statement for it, are known at start."""
    settings = SETTINGS.replace(
        "connector: sqlite, connection_string: shop.db",
        'connector: postgres, connection_string: "postgres://127.0.0.1:9/x"',
    ).replace("SELECT count(*)", "SELEC count(*)")
    assert checked(furnished(tmp_path, settings), capsys) == []


def test_a_variable_that_is_not_set_here_keeps_nothing_from_starting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read at each call, in an environment that may be another."""
    assert (
        checked(shop(tmp_path, SETTINGS.replace('FROM things"', 'FROM {{ env.NOWHERE_SET }}"')), capsys) == []
    )
