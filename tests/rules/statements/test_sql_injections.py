"""SQL statements under attack: no value changes their text, and SQLite is asked what it sees."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.statements.sql import DIALECTS as LEXED
from adapter.rules.statements.sql import tokens
from adapter.rules.statements.statements import StatementRefused, SubstitutionFailed, bind, compile_statement
from tests.hosted.injections import FAMILIES
from tests.rules.sql_statements import DIALECTS, ENV, INPUTS, Sql, bound

_KINDS = ("always true", "stacked", "unions", "multibyte", "placeholders")
INJECTIONS = tuple(dict.fromkeys(text for kind in _KINDS for text in FAMILIES[kind]))


@pytest.fixture(scope="module")
def users() -> Iterator[sqlite3.Connection]:
    """Three users, one of whose names is a hostile text."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE users (id INTEGER, name TEXT, email TEXT)")
        rows = [(1, "Ann", "ann@example.org"), (2, "O'Neil", "o@example.org"), (3, "' OR '1'='1", "x")]
        database.executemany("INSERT INTO users VALUES (?, ?, ?)", rows)
        yield database


def ids(users: sqlite3.Connection, template: str, *, textual: bool = False, **values: object) -> list[Any]:
    statement = bind(compile_statement(template, "sqlite", INPUTS, ENV.get, textual=textual), values)
    return [row[0] for row in users.execute(statement.text, statement.values)]


TEMPLATES = (
    "SELECT id FROM users WHERE name = {{ inputs.q }}",
    "SELECT id FROM users WHERE name = '{{ inputs.q }}'",
    "SELECT id FROM users WHERE name LIKE '%{{ inputs.q }}%' AND 1 = {{ inputs.n }}",
    "INSERT INTO users (name) VALUES ({{ inputs.q }}), ('{{ inputs.q }}')",
    "SELECT \"id\", '{{ inputs.q }}' /* it's */ FROM users -- '\nWHERE name IN ({{ inputs.q }}, 'a')",
)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(template=st.sampled_from(TEMPLATES), value=st.text() | st.sampled_from(INJECTIONS))
def test_w1_no_value_changes_the_text(dialect: Sql, template: str, value: str) -> None:
    """The text is that of the compiled statement, for every value, and the value is bound whole."""
    statement = compile_statement(template, dialect, INPUTS, ENV.get)
    result = bind(statement, {"q": value, "n": 1})
    assert result.text == statement.text
    assert all(value in str(each) for each in result.values if each != 1)


PLACES = (" {{ inputs.q }} ", "{{ inputs.q }}", "'{{ inputs.q }}'", "{{ inputs.col | ident }}", "{{")
LONGER = ("--", "/*", "*/", "/*!", "$$", "$t$", "x'", "E'", "''", "-- ")
FRAGMENTS = st.sampled_from((*"'\"`[]#\n \\$@Ea1;(,%?:-", *LONGER, *PLACES))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(pieces=st.lists(FRAGMENTS, max_size=12), value=st.text() | st.sampled_from(INJECTIONS))
def test_w1_any_text_binds_or_is_refused(dialect: Sql, pieces: list[str], value: str) -> None:
    """However quotes and comments are mixed, the text is the same for every value."""
    try:
        statement = compile_statement("SELECT " + "".join(pieces), dialect, INPUTS, ENV.get)
    except StatementRefused:
        return
    one, other = (bind(statement, {"q": text, "col": "name"}) for text in (value, "other"))
    assert one.text == other.text
    assert len(one.values) == len(other.values)


@given(pieces=st.lists(FRAGMENTS, max_size=12))
def test_w1_sqlite_counts_the_same_binds(pieces: list[str]) -> None:
    """Where SQLite sees a parameter there is a value for it: its lexer and this one agree."""
    try:
        statement = bound("SELECT 1, " + "".join(pieces), q="x", col="name")
    except StatementRefused:
        return
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute(statement.text, statement.values)
        except sqlite3.ProgrammingError as error:
            raise AssertionError(f"{statement.text!r}: {error}") from error
        except (sqlite3.OperationalError, sqlite3.Warning):
            pass  # the grammar is the database's own affair


@given(pieces=st.lists(FRAGMENTS, max_size=12))
def test_w1_mysql_reads_quotes_alike_whatever_its_mode(pieces: list[str]) -> None:
    """A driver that fills in by itself must not be told otherwise by NO_BACKSLASH_ESCAPES."""
    text = "SELECT " + "".join(pieces)
    try:
        compile_statement(text, "mysql", INPUTS, ENV.get)
    except StatementRefused:
        return
    mysql = LEXED["mysql"]
    assert [*tokens(text, mysql)] == [*tokens(text, replace(mysql, escapes=False))]


@pytest.mark.parametrize("hostile", INJECTIONS)
@pytest.mark.parametrize("quotes", ["", "'"])
def test_w1_injections_find_what_they_spell(users: sqlite3.Connection, hostile: str, quotes: str) -> None:
    """Each is compared as a name, and the table outlives all of them."""
    place = f"{quotes}{{{{ inputs.q }}}}{quotes}"
    expected = [3] if hostile == "' OR '1'='1" else []
    assert ids(users, f"SELECT id FROM users WHERE name = {place}", q=hostile, n=1, col="name") == expected
    assert ids(users, f"SELECT {place}", q=hostile) == [hostile]
    assert ids(users, "SELECT 'a{{ inputs.q }}b'", q=hostile) == [f"a{hostile}b"]
    assert ids(users, "SELECT count(*) FROM users") == [3]


def test_w1_statements_run_on_sqlite(users: sqlite3.Connection) -> None:
    """Comparison, pattern, sorting by an enum, limit."""
    assert ids(users, "SELECT id FROM users WHERE id = {{ inputs.n }}", n=2) == [2]
    assert ids(users, "SELECT id FROM users WHERE id = '{{ inputs.n }}'", n=2) == [2]
    assert ids(users, "SELECT id FROM users WHERE name LIKE '%{{ inputs.q }}%'", q="O'N") == [2]
    ordered = (
        "SELECT id FROM users ORDER BY {{ inputs.col | ident }} {{ inputs.way | ident }} LIMIT {{ inputs.n }}"
    )
    assert ids(users, ordered, col="name", way="DESC", n=2) == [2, 1]
    assert ids(users, "SELECT id FROM {{ env.SCHEMA }}.users WHERE id > {{ inputs.n }};\n-- done", n=2) == [3]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["n", "f", "on", "day", "col", "span"])
@pytest.mark.parametrize("quotes", ["", "'"])
def test_w1_nothing_hostile_is_pasted(dialect: Sql, name: str, quotes: str) -> None:
    """Where ``substitution: textual`` puts values into the text, each is of its input's type or refused."""
    template = f"SELECT {quotes}{{{{ inputs.{name} }}}}{quotes}"
    statement = compile_statement(template, dialect, INPUTS, ENV.get, textual=True)
    for hostile in (
        *INJECTIONS,
        *(f"1{text}" for text in INJECTIONS),
        *(f"2026-01-01{text}" for text in INJECTIONS),
    ):
        with pytest.raises(SubstitutionFailed):
            bind(statement, {name: hostile})


@given(st.sampled_from(["n", "f", "on", "day", "col", "span"]), st.text() | st.integers() | st.floats())
def test_w1_what_is_pasted_is_plain(name: str, value: object) -> None:
    """Whatever is sent: digits, signs, and letters out of an enum; nothing that ends a literal or begins a comment."""
    statement = compile_statement(f"SELECT {{{{ inputs.{name} }}}}", "sqlite", INPUTS, ENV.get, textual=True)
    try:
        text = bind(statement, {name: value}).text
    except SubstitutionFailed:
        return
    assert re.fullmatch(r"SELECT [A-Za-z0-9_.:+ -]+", text) and "--" not in text


def test_w2_a_value_is_not_read_again() -> None:
    """Neither an input's nor a variable's value is searched for placeholders."""
    statement = bound("SELECT {{ inputs.q }}, '{{ env.TENANT }} {{ inputs.q }}'", q="{{ env.EVIL }}", n=1)
    assert statement.text == "SELECT ?, ?"
    assert statement.values == ("{{ env.EVIL }}", "it's {{ inputs.q }} {{ env.EVIL }}")
