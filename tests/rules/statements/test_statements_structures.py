"""Arrays and objects in statements: one text of JSON for SQL, values without operators for MongoDB, none for Redis."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.inputs import Input
from adapter.rules.statements.statements import (
    Bound,
    Kind,
    StatementRefused,
    SubstitutionFailed,
    bind,
    compile_statement,
)
from tests.rules.sql_statements import DIALECTS, ENV, MARK, Sql
from tests.rules.statements.test_sql_injections import INJECTIONS

INPUTS = {
    "tags": Input("array", optional=True),
    "who": Input("object", optional=True),
    "any": Input("any", optional=True),
    "q": Input("string", optional=True),
}


def bound(template: str, kind: Kind = "sqlite", **values: Any) -> Bound:
    return bind(compile_statement(template, kind, INPUTS, ENV.get), values)


def refused(template: str, kind: Kind = "sqlite", *, textual: bool = False) -> str:
    with pytest.raises(StatementRefused) as refusal:
        compile_statement(template, kind, INPUTS, ENV.get, textual=textual)
    return str(refusal.value)


# --- SQL ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("value", [[], ["a", 1, None], {"a": {"b": [True]}}, [{"$gt": ""}]])
def test_w1_an_array_is_bound_as_one_text_of_json(dialect: Sql, value: Any) -> None:
    """Whatever is in it, the statement's text stays what it was."""
    name = "tags" if isinstance(value, list) else "who"
    statement = bound(f"SELECT {{{{ inputs.{name} }}}}", dialect, **{name: value})
    assert statement.text == f"SELECT {MARK[dialect]}"
    (text,) = statement.values
    assert isinstance(text, str) and json.loads(text) == value


def test_w1_an_array_that_is_left_out_is_null() -> None:
    """As any other optional input."""
    assert bound("SELECT {{ inputs.tags }}").values == (None,)


def test_w1_what_may_be_anything_is_bound_as_it_is() -> None:
    """A scalar in its own type, all else as JSON."""
    for value, said in ((7, 7), ("x", "x"), ([1], "[1]"), ({"a": 1}, '{"a":1}')):
        assert bound("SELECT {{ inputs.any }}", any=value).values == (said,)
    assert bound("SELECT '<{{ inputs.any }}>'", any=7).values == ("<7>",)
    with pytest.raises(SubstitutionFailed, match="is not a single value"):
        bound("SELECT '<{{ inputs.any }}>'", any=[7])


@pytest.mark.parametrize("value", [["x"], {"x": 1}, ("x",), b"x"])
def test_w1_a_scalars_place_takes_no_array(value: Any) -> None:
    """Also where a middleware has put one there."""
    with pytest.raises(SubstitutionFailed, match="input 'q' is not a single value"):
        bound("SELECT {{ inputs.q }}", q=value)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_w1_an_array_is_no_list_of_in(dialect: Sql) -> None:
    """The text would be compared as one value, so the sentence says what to write instead."""
    said = refused("SELECT 1 WHERE x IN ( {{ inputs.tags }})", dialect)
    assert "is bound as one JSON text: write IN (SELECT" in said
    assert refused("SELECT 1 WHERE x not in({{ inputs.any }})", dialect) == said.replace("tags", "any", 1)


def test_w1_the_members_of_an_array_are_found_in_sqlite() -> None:
    """As the sentence says; hostile members are nothing but members."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE people (name TEXT)")
        database.executemany("INSERT INTO people VALUES (?)", [(name,) for name in ("Ann", *INJECTIONS)])
        template = "SELECT name FROM people WHERE name IN (SELECT value FROM json_each({{ inputs.tags }}))"
        for hostile in INJECTIONS:
            statement = bound(template, tags=[hostile])
            assert database.execute(statement.text, statement.values).fetchall() == [(hostile,)]
        assert len(database.execute("SELECT * FROM people").fetchall()) == len(INJECTIONS) + 1


def test_w1_an_array_is_no_part_of_a_text() -> None:
    """Nor of a name, nor pasted."""
    assert "which cannot be part of a text" in refused("SELECT '%{{ inputs.tags }}%'")
    assert "needs an enum" in refused("SELECT {{ inputs.tags | ident }}")
    assert "textual substitution refuses input 'who'" in refused("SELECT {{ inputs.who }}", textual=True)
    assert "textual substitution refuses input 'any'" in refused("SELECT {{ inputs.any }}", textual=True)


# --- MongoDB --------------------------------------------------------------------------------------------------


def document(command: str, **values: Any) -> Any:
    made = bound(f'{{"command": {command}}}', "mongodb", **values).document
    assert made is not None
    return made["command"]


@pytest.mark.parametrize("written", ["{{ inputs.tags }}", '"{{ inputs.tags }}"'])
def test_w1_mongodb_takes_arrays_as_values(written: str) -> None:
    """Behind an operator of the statement's own, with or without quotes."""
    made = document(f'{{"find": "c", "filter": {{"tag": {{"$in": {written}}}}}}}', tags=["a", 1, {"b": None}])
    assert made["filter"] == {"tag": {"$in": ["a", 1, {"b": None}]}}


@pytest.mark.parametrize(
    "command",
    [
        '{"find": "c", "filter": {"who": {{ inputs.who }}}}',
        '{"find": "c", "filter": {{ inputs.who }}}',
        '{"insert": "c", "documents": [{{ inputs.who }}]}',
        '{"update": "c", "updates": [{"q": {"id": 1}, "u": {"$set": {"who": {{ inputs.who }}}}}]}',
        '{"aggregate": "c", "pipeline": [{"$match": {"who": {{ inputs.who }}}}], "cursor": {}}',
    ],
)
def test_w1_mongodb_takes_objects_where_there_is_data(command: str) -> None:
    """In filters, documents and behind an update's operator; dollars in their texts are dollars."""
    who = {"name": "Ann", "price": "$5", "in": [{"deep": "$x"}]}
    assert json.dumps(who) in json.dumps(document(command, who=who))


OPERATORS: list[dict[str, Any]] = [
    {"$gt": ""},
    {"$ne": None},
    {"$where": "sleep(1000)"},
    {"$expr": {"$function": {"body": "x", "args": [], "lang": "js"}}},
    {"$regex": ".*"},
    {"$oid": "0" * 24},
    {"a": {"$gt": ""}},
    {"a": [[{"$gt": ""}]]},
    {"a": [{"b": {"$or": [{}]}}]},
    {"role.admin": True},
    {"a": {"b.c": 1}},
    {"a\0b": 1},
    {"$": 1},
    {"": {"$set": {}}},
]


@pytest.mark.parametrize("who", OPERATORS)
@pytest.mark.parametrize("name", ["who", "any", "tags"])
def test_w1_operator_objects_are_refused_at_any_depth(who: dict[str, Any], name: str) -> None:
    """And names with dots, which lead into other members, and with zero bytes."""
    value = [who] if name == "tags" else who
    with pytest.raises(SubstitutionFailed, match="has a member name with"):
        document(f'{{"find": "c", "filter": {{"x": {{{{ inputs.{name} }}}}}}}}', **{name: value})


@pytest.mark.parametrize(
    "command",
    [
        '{"delete": "c", "deletes": {{ inputs.tags }}}',
        '{"update": "c", "updates": {{ inputs.tags }}}',
        '{"update": "c", "updates": [{"q": {}, "u": {{ inputs.who }}}]}',
        '{"aggregate": "c", "pipeline": {{ inputs.tags }}, "cursor": {}}',
        '{"aggregate": "c", "pipeline": [{"$project": {{ inputs.who }}}], "cursor": {}}',
        '{"find": "c", "filter": {"$expr": {{ inputs.who }}}}',
        '{"find": "c", "projection": {{ inputs.who }}}',
        '{"find": "c", "sort": {{ inputs.who }}}',
        '{"find": {{ inputs.who }}}',
    ],
)
def test_w1_the_structure_of_a_command_is_its_authors(command: str) -> None:
    """An array or object there would be part of the command; one that may be anything is refused when it is one."""
    assert "is an" in (said := refused(f'{{"command": {command}}}', "mongodb")) or "is used as a name" in said
    freely = command.replace("inputs.tags", "inputs.any").replace("inputs.who", "inputs.any")
    if '"find": {' not in freely:
        with pytest.raises(SubstitutionFailed, match="must be a single value"):
            document(freely, any=[{"q": {}, "limit": 0}])


def test_w1_mongodb_has_null_for_what_is_left_out() -> None:
    """Of any optional input, also within a text."""
    assert document('{"find": "c", "filter": {"a": {{ inputs.who }}, "b": "x{{ inputs.q }}"}}')["filter"] == {
        "a": None,
        "b": None,
    }


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "$gt", "b.c", "$", "d"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_w1_whatever_is_let_through_holds_no_operator(value: Any) -> None:
    """At no depth, and it is the value that was sent."""
    try:
        made = document('{"find": "c", "filter": {"x": {{ inputs.any }}}}', any=value)
    except SubstitutionFailed:
        return
    assert made["filter"] == {"x": value}
    assert not [name for name in names(value) if "$" in name or "." in name]


def names(value: Any) -> list[str]:
    """Of all members within a value."""
    if isinstance(value, dict):
        return [*value, *(name for member in value.values() for name in names(member))]
    return [name for item in value for name in names(item)] if isinstance(value, list) else []


# --- Redis ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tags", "who"])
def test_w1_redis_takes_single_values(name: str) -> None:
    """Its commands are words; what may be anything is refused when it is no single value, or none at all."""
    assert "Redis only accepts single values" in refused(f"SET k {{{{ inputs.{name} }}}}", "redis")
    assert bound("SET k {{ inputs.any }}", "redis", any=7).argv == ("SET", "k", "7")
    for values, said in (({"any": [1]}, "is not a single value"), ({}, "not found")):
        with pytest.raises(SubstitutionFailed, match=said):
            bound("SET k {{ inputs.any }}", "redis", **values)
