"""What tools return, to results: the texts exactly as users of the pipelines know them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.presenters import ui
from adapter.rules.results.outcomes import (
    NOTHING,
    Result,
    as_result,
    as_rows,
    error,
    payload,
    progress,
    required,
    response,
    success,
    tool_error,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def text_of(result: Result) -> str:
    (block,) = result.content
    assert block["type"] == "text"
    text: str = block["text"]
    return text


# --- plain values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"id": 42, "name": "Jane Doe"}], '[{"id":42,"name":"Jane Doe"}]'),
        ("hello", '"hello"'),
        ("", '""'),
        (None, "null"),
        (True, "true"),
        ([], "[]"),
        ({"at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}, '{"at":"2026-01-02T03:04:05+00:00"}'),
        (
            {"price": Decimal("9.90"), "raw": b"caf\xc3\xa9", "odd": b"\xff"},
            '{"price":"9.90","raw":"café","odd":"/w=="}',
        ),
        ({1: (1, 2), None: {3}}, '{"1":[1,2],"null":[3]}'),
        (2**80, str(2**80)),
        (float("nan"), "null"),
        ({"text": "\ud800"}, '{"text":"\\ud800"}'),
    ],
)
def test_h8_a_plain_value_is_one_text_of_compact_json(value: object, text: str) -> None:
    """Strings too are JSON, there is one block, and no structured content."""
    result = as_result(value)
    assert text_of(result) == text
    assert (result.is_error, result.structured) == (False, None)
    assert result.wire() == {"content": [{"type": "text", "text": text}], "isError": False}


@given(JSON)
def test_h8_any_json_comes_back_from_its_text(value: Any) -> None:
    """What the caller parses is what the tool returned."""
    assert json.loads(text_of(as_result(value))) == value


def test_a_value_that_holds_itself_is_refused() -> None:
    """It would never end; ValueError is what a stage reports."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="contains itself"):
        as_result(endless)


def test_an_object_may_be_structured_content_too() -> None:
    """Where asked for, and only of an object."""
    assert as_result({"a": 1}, structured=True).structured == {"a": 1}
    assert as_result([1], structured=True).structured is None
    assert as_result({"a": 2**80, "b": "\ud800"}, structured=True).structured == {"a": 2**80, "b": "\ud800"}


def test_a_result_stays_what_it_is() -> None:
    """A tool that says exactly what it means is not wrapped again."""
    result = error("no")
    assert as_result(result) is result


# --- success and builder --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [("Done", "Done"), ("", "OK"), (None, "OK"), ({"id": 1}, '{\n  "id": 1\n}'), ([], "[]"), (0, "0")],
)
def test_v7_success_writes_for_a_model(data: object, text: str) -> None:
    """Texts as they are, objects indented by two, nothing as OK; the data stays for presenters."""
    result = success(data)
    assert text_of(result) == text
    assert result.data == data


def test_v12_blocks_have_their_order_whatever_was_said_first() -> None:
    """Data, interface, directives, rules, suggestions: each its own text, with the exact tags."""
    built = (
        response({"id": 1})
        .suggest("billing.pay", "Pay 1")
        .system_rules("A", "B")
        .llm_hint("h")
        .ui_block(ui.summary("3 found"))
        .build()
    )
    assert [block["text"] for block in built.content] == [
        '{\n  "id": 1\n}',
        '<ui_passthrough type="summary">\n📊 **Summary**: 3 found\n</ui_passthrough>',
        "<llm_directives>\n- h\n</llm_directives>",
        "<domain_rules>\n- A\n- B\n</domain_rules>",
        "<action_suggestions>\n- billing.pay: Pay 1\n</action_suggestions>",
    ]


def test_v17_an_unbuilt_response_is_built() -> None:
    """Forgetting build() shows the same as not forgetting it; rules may come as a list."""
    said = response("x").system_rules(["A", "B"])
    assert as_result(said).content == said.build().content
    assert repr(said) == "<Response of str: 1 blocks>"


# --- failures -------------------------------------------------------------------------------------------------


def test_v8_error_is_the_golden_string() -> None:
    """& and < are escaped in the body, > stays readable, a code is an attribute."""
    assert text_of(error("bad <thing>")) == "<tool_error>\n<message>bad &lt;thing></message>\n</tool_error>"
    assert text_of(error("no", "NOT_FOUND")).startswith('<tool_error code="NOT_FOUND">\n')
    assert error("no").is_error
    assert "<message>no</message>" in text_of(error("no", "X"))


def test_v8_tool_error_in_full_is_the_golden_string() -> None:
    """Every part stands in its place."""
    failure = tool_error(
        "InvoiceNotFound",
        message="No invoice 7 & no <b>",
        suggestion="List them first",
        available_actions=["billing.list"],
        details={"id": 7},
        retry_after=30,
    )
    assert text_of(failure) == (
        '<tool_error code="InvoiceNotFound" severity="error">\n'
        "<message>No invoice 7 &amp; no &lt;b></message>\n"
        "<recovery>List them first</recovery>\n"
        "<available_actions>\n  <action>billing.list</action>\n</available_actions>\n"
        '<details>\n  <detail key="id">7</detail>\n</details>\n'
        "<retry_after>30 seconds</retry_after>\n"
        "</tool_error>"
    )
    assert failure.is_error


def test_v8_a_warning_is_no_error() -> None:
    """The model reads it, the call succeeded; it has no data to present."""
    warned = tool_error("DEPRECATED", severity="warning")
    assert not warned.is_error
    assert warned.data is NOTHING
    assert '<tool_error code="DEPRECATED" severity="warning">\n<message>DEPRECATED</message>' in text_of(
        warned
    )


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_v8_a_wait_that_is_none_is_left_out(seconds: float) -> None:
    """Nobody is told to wait for infinity."""
    failure = tool_error("X", retry_after=seconds)
    assert "retry_after" not in text_of(failure)


def test_w14_attributes_cannot_be_left() -> None:
    """All five characters are escaped in a code and in a detail's key."""
    text = text_of(tool_error("""<'&">""", details={'"><x a="': "v"}))
    assert 'code="&lt;&apos;&amp;&quot;&gt;"' in text
    assert 'key="&quot;&gt;&lt;x a=&quot;"' in text


def test_required_names_the_field() -> None:
    """A missing field is a failure with its own code and recovery."""
    assert text_of(required("id")) == (
        '<tool_error code="MISSING_REQUIRED_FIELD">\n<message>Required field "id" is missing.</message>\n'
        '<recovery>Provide the "id" parameter and retry.</recovery>\n</tool_error>'
    )


# --- progress and payloads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("percent", [-1, 101, float("nan")])
def test_v7_progress_outside_is_refused(percent: float) -> None:
    """A script learns of its mistake where it makes it."""
    with pytest.raises(ValueError, match="0 to 100"):
        progress(percent)


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        ({"structuredContent": {"a": 1}, "content": [{"type": "text", "text": "2"}]}, {"a": 1}),
        ({"content": [{"type": "text", "text": '{"a":1}'}]}, {"a": 1}),
        ({"content": [{"type": "text", "text": "plain"}]}, [{"type": "text", "text": "plain"}]),
        ({"content": [{"type": "image", "data": "="}]}, [{"type": "image", "data": "="}]),
        ({"content": []}, []),
        ({}, None),
    ],
)
def test_payload_is_what_a_mapper_sees_of_a_proxied_result(result: dict[str, Any], seen: object) -> None:
    """Structured content, else the JSON of a single text, else the content."""
    assert payload(result) == seen


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (None, []),
        ([], []),
        ({"a": 1}, [{"a": 1}]),
        ([{"a": 1}, 2], [{"a": 1}, {"value": 2}]),
        ("x", [{"value": "x"}]),
    ],
)
def test_h31_any_value_can_be_forced_to_rows(value: object, rows: list[object]) -> None:
    """For tools that ask for it; nobody else's value changes its shape."""
    assert as_rows(value) == rows
