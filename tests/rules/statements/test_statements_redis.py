"""Redis commands: values fill words and never become any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.calls.inputs import Input
from adapter.rules.statements.statements import Bound, StatementRefused, bind, compile_statement

INPUTS = {
    "k": Input("string"),
    "n": Input("int", optional=True),
    "f": Input("float", optional=True),
    "field": Input("string", optional=True, enum=("name", "email")),
}
ENV = {"PREFIX": "app one"}


def bound(template: str, **values: object) -> Bound:
    return bind(compile_statement(template, "redis", INPUTS, ENV.get), values)


def test_h30_a_statement_is_split_at_white_space_and_its_name_written_in_capitals() -> None:
    """The template is split; the values come afterwards."""
    assert bound("  hset user:{{ inputs.k }}\n age {{ inputs.n }} ", k="a b", n=3).argv == (
        "HSET",
        "user:a b",
        "age",
        "3",
    )


@given(st.text())
def test_w1_a_value_is_one_word_whatever_it_holds(value: str) -> None:
    """White space, quotes and line ends of a value stay in its word."""
    command = bound("SET {{ inputs.k }} x{{inputs.k}}y '{{ inputs.k }}' \"{{ inputs.k }}\"", k=value)
    assert command.argv == ("SET", value, f"x{value}y", value, value)
    assert command.values == (value,) * 4


@pytest.mark.parametrize(
    "value", ["x\r\nFLUSHALL", "a b c", "{{ inputs.n }}", "{{ env.PREFIX }}", "' \"", "\\"]
)
def test_w1_hostile_keys_stay_keys(value: str) -> None:
    """A command behind a line end, and a placeholder in a value, are letters."""
    assert bound("GET {{ inputs.k }}", k=value, n=1).argv == ("GET", value)


def test_w1_quotes_hold_white_space() -> None:
    """As on the command line of redis-cli: only around a whole word."""
    assert bound(r'SET k "say \"{{ inputs.k }}\"\n"', k="hi").argv == ("SET", "k", 'say "hi"\n')
    assert bound("""SET k {"a":"b"}""").argv == ("SET", "k", '{"a":"b"}')


@pytest.mark.parametrize(
    "template",
    [
        "",
        "  ",
        "{{ inputs.k }} x",
        "G{{ inputs.k }} x",
        'SET k "open',
        'SET k "a"b',
        r'SET k "\q"',
        r'SET k "\{{ inputs.k }}"',
        "EVAL \"return redis.call('get', '{{ inputs.k }}')\" 0",
        "FCALL {{ inputs.k }} 0",
        "SCRIPT LOAD {{ inputs.k }}",
        "CONFIG {{ inputs.k }} maxmemory",
        '"EVAL " {{ inputs.k }} 0',
        '"SCRIPT LOAD" {{ inputs.k }}',
    ],
)
def test_w1_commands_scripts_and_functions_are_not_the_callers_choice(template: str) -> None:
    """Neither are quotes without an end compiled."""
    with pytest.raises(StatementRefused):
        compile_statement(template, "redis", INPUTS, ENV.get)


def test_w1_a_script_takes_values_as_its_arguments() -> None:
    """Behind the script a value is data."""
    command = bound('EVAL "return KEYS[1]" 1 {{ inputs.k }}', k="'x'")
    assert command.argv == ("EVAL", "return KEYS[1]", "1", "'x'")


def test_w1_a_name_out_of_an_enum_may_stand_for_a_command() -> None:
    """The one who wrote the statement wrote its members."""
    assert bound("OBJECT {{ inputs.field | ident }} k", field="name").argv == ("OBJECT", "name", "k")


def test_h22_environment_stays_in_its_word() -> None:
    """A space in a variable makes no further word."""
    assert bound("GET {{ env.PREFIX }}:{{ inputs.k }}", k="1").argv == ("GET", "app one:1")


def test_h24_numbers_are_spelled_as_texts() -> None:
    """A million has an exponent, three has no fraction."""
    assert bound("ZADD k {{ inputs.f }} x", f=1000000.0).argv == ("ZADD", "k", "1e+06", "x")
    assert bound("ZADD k {{ inputs.f }} x", f=3.0).argv == ("ZADD", "k", "3", "x")


def test_w6_reading_commands_are_known() -> None:
    """Only they may be cached."""
    for template, expected in (("get x", True), ("HGETALL x", True), ("SET x y", False), ("GETDEL x", False)):
        assert compile_statement(template, "redis", INPUTS, ENV.get).reads is expected


def test_textual_substitution_is_for_sql() -> None:
    """A word needs none."""
    with pytest.raises(StatementRefused, match="for SQL"):
        compile_statement("GET {{ inputs.n }}", "redis", INPUTS, ENV.get, textual=True)
