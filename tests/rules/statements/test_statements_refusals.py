"""SQL statements that are not compiled, because something in them cannot be bound."""

from __future__ import annotations

import pytest

from adapter.rules.statements.statements import SubstitutionFailed
from tests.rules.sql_statements import DIALECTS, Sql, bound, refused

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
