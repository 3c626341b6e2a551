"""SQL statements: what is bound, in which order, and what the environment and the inputs give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.inputs import Input
from adapter.rules.statements.statements import EnvironmentFailed, SubstitutionFailed, bind, compile_statement
from tests.rules.sql_statements import DIALECTS, ENV, INPUTS, MARK, Sql, bound, refused

# --- binding --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("place", ["{{ inputs.q }}", "{{inputs.q}}", "'{{ inputs.q }}'", "{{\n inputs.q\t}}"])
def test_w1_a_placeholder_is_one_bind_with_quotes_and_without(dialect: Sql, place: str) -> None:
    """The quotes go, the value is bound."""
    statement = bound(f"SELECT * FROM users WHERE name = {place}", dialect, q="x")
    assert statement.text == f"SELECT * FROM users WHERE name = {MARK[dialect]}"
    assert statement.values == ("x",)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_w1_a_placeholder_inside_a_literal_is_a_bound_concatenation(dialect: Sql) -> None:
    """The whole literal is one bind, its doubled quotes and its words included."""
    statement = bound("SELECT 1 WHERE a LIKE '%it''s {{ inputs.q }}/{{ inputs.n }}%'", dialect, q="x", n=3)
    assert statement.text == f"SELECT 1 WHERE a LIKE {MARK[dialect]}"
    assert statement.values == ("%it's x/3%",)


def test_w1_binds_are_numbered_in_their_order() -> None:
    """PostgreSQL counts; an input that stands twice is bound twice."""
    template = "SELECT {{ inputs.n }}, '{{ inputs.q }}-{{ inputs.n }}', {{ inputs.user-id }}"
    statement = compile_statement(template, "postgres", INPUTS, ENV.get)
    assert statement.text == "SELECT $1, $2, $3"
    assert bind(statement, {"n": 1, "q": "a", "user-id": 9}).values == (1, "a-1", 9)


def test_w1_in_code_a_value_keeps_its_type() -> None:
    """Numbers and booleans are bound as such, texts as texts."""
    statement = bound(
        "SELECT {{ inputs.n }}, {{ inputs.f }}, {{ inputs.on }}, {{ inputs.day }}",
        n=1,
        f=1.0,
        on=True,
        day="2024-01-01",
    )
    assert [(type(value), value) for value in statement.values] == [
        (int, 1),
        (float, 1.0),
        (bool, True),
        (str, "2024-01-01"),
    ]


def test_w1_percent_signs_are_doubled_only_for_a_driver_that_fills_in() -> None:
    """MySQL's drivers use Python's %, and only where there is something to fill in."""
    template = "SELECT 7 % 2, '100%' -- 5%\n, {{ inputs.n }}"
    assert bound(template, "mysql", n=1).text == "SELECT 7 %% 2, '100%%' -- 5%%\n, %s"
    assert bound(template, "mysql", n=1).text % (1,) == template.replace("{{ inputs.n }}", "1")
    assert bound(template, "postgres", n=1).text == template.replace("{{ inputs.n }}", "$1")
    assert bound("SELECT '100%'", "mysql").text == "SELECT '100%'"


@pytest.mark.parametrize(
    ("dialect", "literal", "value"),
    [
        ("sqlite", r"'a\n{{ inputs.q }}'", r"a\nx"),
        ("sqlite", "'{{ inputs.q }}''''{{ inputs.q }}'", "x''x"),
        ("postgres", "$${{ inputs.q }}'$$", "x'"),
        ("postgres", "$tag$ $$ {{ inputs.q }} $tag$", " $$ x "),
        ("postgres", r"'a\{{ inputs.q }}'", r"a\x"),
        ("mysql", '"it\'s {{ inputs.q }}"', "it's x"),
        ("mysql", '"a""{{ inputs.q }}"', 'a"x'),
        ("mysql", r"'a\n\%\_\\{{ inputs.q }}'", "a\n\\%\\_\\x"),
    ],
)
def test_w1_quotes_of_every_style_become_what_they_say(dialect: Sql, literal: str, value: str) -> None:
    """Doubled quotes, dollar quotes and MySQL's escapes are read as the database reads them."""
    statement = bound(f"SELECT {literal}", dialect, q="x")
    assert (statement.text, statement.values) == (f"SELECT {MARK[dialect]}", (value,))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("sqlite", "SELECT 'it''s ?', \"a?b\", `c``'d`, [e'], /* ' */ 1 -- '\n"),
        ("postgres", "SELECT 'a', E'b\\n', $$ ' $1 $$, \"c''\", /* /* ' */ */ a->'x'->>'y', b ? 'k', a::int"),
        ("mysql", "SELECT 'a\\\\', \"b'\", `c'`, 1--1, # '\n /* ' */ 2 -- '\n, @v"),
    ],
)
def test_w1_what_has_no_placeholder_stays_as_it_was_written(dialect: Sql, text: str) -> None:
    """Quotes in comments and names open nothing."""
    assert bound(f"{text}, {{{{ inputs.q }}}}", dialect, q="x").text == f"{text}, {MARK[dialect]}"


# --- inputs and environment -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template", ["SELECT {{ inputs.q }}", "SELECT '{{ inputs.q }}'", "SELECT '%{{ inputs.q }}%'"]
)
@pytest.mark.parametrize("values", [{}, {"q": None}])
def test_h20_an_optional_input_that_is_left_out_is_null(template: str, values: dict[str, Any]) -> None:
    """Also within a text, as a database has it of a text that NULL is joined to."""
    statement = bound(template, **values)
    assert (statement.text, statement.values) == ("SELECT ?", (None,))


def test_h20_a_pasted_input_that_is_left_out_is_null() -> None:
    """By its word."""
    assert bound("SELECT {{ inputs.n }} + 1", textual=True).text == "SELECT NULL + 1"


def test_h10_an_input_without_a_value_is_named() -> None:
    """A name cannot be NULL, nor can an input that has to be there, whoever took it away."""
    with pytest.raises(SubstitutionFailed, match=r"template substitution failed: input 'col' not found"):
        bound("SELECT {{ inputs.col | ident }}")
    for template in ("SELECT {{ inputs.must }}", "SELECT '{{ inputs.must }}'"):
        statement = compile_statement(template, "sqlite", {"must": Input("string")}, ENV.get)
        with pytest.raises(SubstitutionFailed, match=r"template substitution failed: input 'must' not found"):
            bind(statement, {})


@pytest.mark.parametrize("value", [["a"], {"a": 1}, b"x", object()])
def test_w1_only_single_values_are_bound(value: object) -> None:
    """Also where whoever calls did not coerce them."""
    with pytest.raises(SubstitutionFailed, match="is not a single value"):
        bound("SELECT {{ inputs.q }}", q=value)


def test_h10_a_missing_variable_is_named_before_a_missing_input() -> None:
    """The environment comes first, at every call."""
    variables: dict[str, str] = {}
    statement = compile_statement(
        "SELECT {{ inputs.q }}, '{{ env.TENANT }}'", "sqlite", INPUTS, variables.get
    )
    assert statement.environment == {"TENANT"}
    with pytest.raises(EnvironmentFailed) as failure:
        bind(statement, {})
    assert str(failure.value) == (
        "failed to substitute environment variables in statement: "
        "environment variable 'TENANT' not found (required at server startup)"
    )
    variables["TENANT"] = "a"
    assert bind(statement, {"q": "x"}).values == ("x", "a")


def test_h22_a_variable_in_code_is_a_name_or_a_number() -> None:
    """It is pasted there, so it may not be more."""
    assert bound("SELECT * FROM {{ env.SCHEMA }}_users").text == "SELECT * FROM main_users"
    assert bound('SELECT * FROM "{{ env.SCHEMA }}"').text == 'SELECT * FROM "main"'
    for template in ("SELECT * FROM {{ env.EVIL }}", 'SELECT * FROM "{{ env.QUOTE }}"'):
        with pytest.raises(EnvironmentFailed, match=r"EVIL|QUOTE"):
            bound(template)
    for template in ("SELECT {{ env.SCHEMA }}'{{ inputs.q }}'", "SELECT ${{ env.SCHEMA }} $"):
        assert "is directly next to" in refused(template, "postgres")
    assert "is directly next to" in refused("SELECT 1 --{{ env.SCHEMA }}", "mysql")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (1000000.0, "1e+06"),
        (1.5, "1.5"),
        (3.0, "3"),
        (1e-7, "1e-07"),
        (12, "12"),
    ],
)
def test_h24_a_value_inside_a_literal_is_spelled(value: object, text: str) -> None:
    """Booleans as words, numbers with the fewest digits."""
    assert bound("SELECT 'a {{ inputs.f }}'", f=value).values == (f"a {text}",)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_h24_no_number_loses_a_digit(value: float) -> None:
    """What is spelled is the same number again."""
    (text,) = bound("SELECT 'a{{ inputs.f }}'", f=value).values
    assert float(str(text)[1:]) == value


# --- reading --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("SELECT * FROM users", True),
        ("  -- all\n (select 1) UNION (select 2);", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("SELECT replace(name, 'a', 'b') FROM users", True),
        ("SELECT 'delete', \"update\" FROM users /* insert */", True),
        ("VALUES (1)", True),
        ("EXPLAIN SELECT 1", True),
        ("SELECT * FROM {{ env.SCHEMA }}.users WHERE id = {{ inputs.n }}", True),
        ("WITH a AS (DELETE FROM users RETURNING *) SELECT * FROM a", False),
        ("SELECT * INTO copies FROM users", False),
        ("SELECT * FROM users FOR UPDATE", False),
        ("EXPLAIN ANALYZE DELETE FROM users", False),
        ("INSERT INTO users (name) VALUES ({{ inputs.q }}) RETURNING id", False),
        ("UPDATE users SET name = 'x'", False),
        ("PRAGMA journal_mode = WAL", False),
        ("CALL work()", False),
        ("{{ env.SCHEMA }} SELECT 1", False),
    ],
)
def test_w6_only_what_reads_by_its_words_is_called_reading(template: str, expected: bool) -> None:
    """Words in quotes and comments do not count; where it cannot be told the answer is no."""
    for dialect in DIALECTS:
        statement = compile_statement(template, dialect, INPUTS, ENV.get)
        assert statement.reads is expected


# --- statements that are not compiled, because something in them cannot be bound ---------------------------------


# --- names ----------------------------------------------------------------------------------------------------


def test_w1_a_name_is_one_of_an_enum() -> None:
    """It becomes text, so nothing else may."""
    template = 'SELECT "{{ inputs.col | ident }}" FROM users ORDER BY {{ inputs.col|ident }}'
    assert bound(template, col="email").text == 'SELECT "email" FROM users ORDER BY email'
    for value in ("email, (SELECT 1)", "", "NAME", 1):
        with pytest.raises(SubstitutionFailed, match="not one of the allowed names"):
            bound(template, col=value)


def test_w1_a_name_needs_an_enum_of_plain_names() -> None:
    """An enum with spaces and semicolons is none."""
    for name in ("q", "n", "raw", "span"):
        assert "needs an enum" in refused(f"SELECT 1 ORDER BY {{{{ inputs.{name} | ident }}}}")


@pytest.mark.parametrize(
    "template",
    [
        'SELECT "{{ inputs.q }}"',
        "SELECT `{{ inputs.q }}`",
        "SELECT [{{ inputs.q }}]",
        "SELECT 1 ORDER BY {{ inputs.q }}",
        "SELECT 1 GROUP  by\n{{ inputs.q }}",
        "SELECT u.{{ inputs.q }}",
        "SELECT * FROM {{ inputs.q }}.users",
        "SELECT * FROM users_{{ inputs.q }}",
    ],
)
def test_w1_a_free_text_is_no_name(template: str) -> None:
    """The sentence says how a name is asked for."""
    assert "{{ inputs.x | ident }}" in refused(template)


# --- what cannot be bound -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("comment", ["-- {{ inputs.q }}", "/* {{ inputs.q }} */", "-- {{ env.SCHEMA }}\n"])
def test_w1_a_placeholder_in_a_comment_is_refused(dialect: Sql, comment: str) -> None:
    """A line end in the value would end the comment."""
    assert "is in a comment" in refused(f"SELECT 1 {comment}", dialect)


@pytest.mark.parametrize(
    ("dialect", "template", "sentence"),
    [
        ("sqlite", "SELECT 'open", "without an end"),
        ("sqlite", 'SELECT "open', "without an end"),
        ("sqlite", "SELECT 1 /* open", "without an end"),
        ("postgres", "SELECT $a$ x $b$", "without an end"),
        ("postgres", "SELECT /* /* */ 1", "without an end"),
        ("mysql", "SELECT 1 /*!50000 + 1 */", "is executed"),
        ("mysql", "SELECT 1 /*M! + 1 */", "is executed"),
        ("mysql", r"SELECT 'it\'s', {{ inputs.q }}", "a literal twice"),
        ("mysql", r"SELECT '\{{ inputs.q }}'", "backslash"),
        ("postgres", r"SELECT E'it\'s', {{ inputs.q }}", "a literal twice"),
        ("postgres", "SELECT E'{{ inputs.q }}'", "escape literal"),
        ("postgres", "SELECT N'{{ inputs.q }}'", "longer word"),
        ("postgres", "SELECT U&'{{ inputs.q }}'", "longer word"),
        ("postgres", "SELECT x'{{ inputs.q }}'", "longer word"),
        ("mysql", "SELECT _utf8mb4'{{ inputs.q }}'", "longer word"),
        ("mysql", "SELECT @{{ inputs.q }}", "longer word"),
        ("mysql", "SELECT 'a'{{ inputs.q }}", "longer word"),
        ("sqlite", "SELECT {{ inputs.n }}1", "longer word"),
        ("sqlite", "SELECT {{ inputs.n }}{{ inputs.n }}", "longer word"),
        ("sqlite", "SELECT '{{ inputs.n }}'{{ inputs.n }}", "longer word"),
        ("postgres", "SELECT INTERVAL '{{ inputs.n }} days'", "write CAST("),
        ("postgres", "SELECT date '{{ inputs.day }}'", "write CAST("),
        ("mysql", "SELECT TIMESTAMP '{{ inputs.day }}'", "write CAST("),
        ("sqlite", "SELECT ?, {{ inputs.q }}", "parameter of the database"),
        ("sqlite", "SELECT ?1", "parameter of the database"),
        ("sqlite", "SELECT :name", "parameter of the database"),
        ("sqlite", "SELECT @name", "parameter of the database"),
        ("sqlite", "SELECT $name", "parameter of the database"),
        ("postgres", "SELECT $1", "parameter of the database"),
        ("sqlite", "SELECT 1; DELETE FROM users", "several statements"),
        ("sqlite", "SELECT 1; 'x'", "several statements"),
        ("sqlite", " -- nothing\n", "empty"),
        ("sqlite", "", "empty"),
        ("sqlite", "SELECT {{ inputs.nobody }}", "input 'nobody' not found for substitution"),
        ("sqlite", "SELECT {{ inputs.q | upper }}", "is not a placeholder"),
        ("sqlite", "SELECT {{ input.q }}", "is not a placeholder"),
        ("sqlite", "SELECT {{ inputs.q }", "is not a placeholder"),
        ("sqlite", "SELECT {{ env.X | ident }}", "only an input"),
        ("sqlite", "SELECT '\U000f0000'", "private-use"),
    ],
)
def test_w1_what_cannot_be_bound_is_refused_when_it_is_compiled(
    dialect: Sql, template: str, sentence: str
) -> None:
    """Not at the first call, and in a sentence for the one who wrote it."""
    assert sentence in refused(template, dialect)


def test_braces_that_are_no_placeholder_stay() -> None:
    """PostgreSQL's arrays of arrays are written so."""
    assert bound("SELECT '{{1,2},{3,4}}'::int[]", "postgres").text == "SELECT '{{1,2},{3,4}}'::int[]"


# --- textual substitution -------------------------------------------------------------------------------------


def test_w1_textual_substitution_pastes_what_is_no_free_text() -> None:
    """Where nothing can be bound: numbers, booleans, times and the members of an enum."""
    statement = bound(
        "SELECT INTERVAL '{{ inputs.span }}' + {{ inputs.n }}", "postgres", textual=True, span="7 days", n=1
    )
    assert (statement.text, statement.values) == ("SELECT INTERVAL '7 days' + 1", ())
    assert bound("SELECT 5 -{{ inputs.n }}", textual=True, n=-3).text == "SELECT 5 - -3"
    assert bound("SELECT '{{ inputs.day }}'", textual=True, day="2024-01-01").text == "SELECT '2024-01-01'"


def test_w1_textual_substitution_refuses_free_texts() -> None:
    """Also an enum whose members are more than words, and any comment."""
    assert "textual substitution refuses input 'q'" in refused("SELECT '{{ inputs.q }}'", textual=True)
    assert "textual substitution refuses input 'raw'" in refused("SELECT '{{ inputs.raw }}'", textual=True)
    assert "comment" in refused("SELECT 1 /* {{ inputs.n }} */", textual=True)
    assert "is directly next to" in refused("SELECT 1 --{{ inputs.n }}", "mysql", textual=True)


@pytest.mark.parametrize("value", ["1; DROP TABLE users", 1.5, [1]])
def test_w1_textual_substitution_takes_only_the_inputs_type(value: object) -> None:
    """Nobody has to have coerced the value before."""
    with pytest.raises(SubstitutionFailed):
        bound("SELECT {{ inputs.n }}", textual=True, n=value)
