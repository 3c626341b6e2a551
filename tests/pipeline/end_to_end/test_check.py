"""``mcp-adapter check`` finds what is wrong with database files, and changes nothing."""

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
def test_a_database_is_read_and_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], journal: str
) -> None:
    """No statement is run, and no file comes or changes."""
    file = shop(tmp_path, journal=journal)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert checked(file, capsys) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


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
