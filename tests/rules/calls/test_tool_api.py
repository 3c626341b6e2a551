"""The HTTP tool API's answers: which body is which arguments, and how each outcome reads over HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import TextContent, Tool, ToolAnnotations

from adapter.rules.access.host_and_origin_check import is_json_type
from adapter.rules.calls.tool_api import (
    DISABLED,
    NOT_JSON_TYPE,
    UNAUTHORIZED,
    WARNING,
    ApiTool,
    Arguments,
    HttpOutcome,
    InvalidJson,
    arguments_of,
    as_plain,
    continued_arguments,
    continued_in,
    failure_body,
    is_destructive,
    json_object,
    result_body,
    too_large,
    tool_detail,
    tool_list,
    unknown_tool,
    validated_arguments,
    validation,
    value_body,
    value_list,
)
from adapter.rules.text.json_values import NotJson
from adapter.wire.piecewise import at_once

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)
POLICIES = st.sampled_from(["empty", "reject"])
DONE = {"content": [{"type": "text", "text": "done"}]}


def read(answered: HttpOutcome) -> Any:
    return json.loads(answered.body)


# --- refusals -------------------------------------------------------------------------------------------------


def test_e2_refusals_read_as_the_specification_has_them() -> None:
    """Status and body of each precondition, to the letter."""
    assert (DISABLED.status, read(DISABLED)) == (403, {"error": "Tool execution is disabled."})
    unknown = unknown_tool("a/b")
    assert (unknown.status, read(unknown)) == (404, {"error": "Tool not found: a/b"})
    assert (UNAUTHORIZED.status, read(UNAUTHORIZED)) == (401, {"error": "Unauthorized"})
    assert NOT_JSON_TYPE.status == 415
    assert too_large(10).status == 413 and "10 bytes" in read(too_large(10))["error"]


# --- arguments ------------------------------------------------------------------------------------------------


@given(OBJECTS, POLICIES, st.booleans())
def test_an_object_is_the_arguments(value: dict[str, Any], policy: InvalidJson, destructive: bool) -> None:
    """Whatever the policy: JSON that is an object arrives unchanged, long numbers and odd texts among it."""
    arguments = arguments_of(json.dumps(value).encode(), policy, destructive=destructive)
    assert arguments == Arguments(value)


@pytest.mark.parametrize("raw", [b"", b"  \r\n"])
def test_no_body_is_no_arguments_without_a_warning(raw: bytes) -> None:
    """Nobody has to send two braces to a tool that takes nothing, not even where bodies are strict."""
    assert arguments_of(raw, "reject", destructive=True) == Arguments({})


@pytest.mark.parametrize("raw", [b"{", b"not json", b"\xff\xfe", b'{"a":1}x', b"{'a':1}", b"[NaN, }"])
def test_w10_invalid_json_is_no_arguments_with_a_warning_or_refused(raw: bytes) -> None:
    """By policy; and destructive tools never run on a body that nobody could read."""
    assert arguments_of(raw, "empty") == Arguments({}, WARNING)
    for refused in (arguments_of(raw, "reject"), arguments_of(raw, "empty", destructive=True)):
        assert isinstance(refused, HttpOutcome) and refused.status == 400
        assert read(refused)["error"].startswith("The body is not valid JSON")


@pytest.mark.parametrize(
    "raw",
    [
        *(
            b"[]",
            b"null",
            b"1",
            b'"text"',
            b"true",
            b"NaN",
            b'{"a":NaN}',
            b'{"a":[-Infinity]}',
            b'{"a":1e999}',
        ),
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda raw: raw[:10].decode(),
)
@pytest.mark.parametrize("policy", ["empty", "reject"])
def test_w10_what_cannot_be_arguments_is_refused(raw: bytes, policy: InvalidJson) -> None:
    """An array, null or NaN is no slip of the pen that could stand for no arguments."""
    refused = arguments_of(raw, policy)
    assert isinstance(refused, HttpOutcome) and refused.status == 400


@given(st.binary(max_size=60), POLICIES, st.booleans())
def test_any_bytes_get_an_answer(raw: bytes, policy: InvalidJson, destructive: bool) -> None:
    """Nothing that can be sent raises, and a warning is given only where the policy is lenient."""
    read_as = arguments_of(raw, policy, destructive=destructive)
    if isinstance(read_as, HttpOutcome):
        assert read_as.status == 400
    elif policy == "reject" or destructive:
        assert read_as.warning is None


@pytest.mark.parametrize(
    ("said", "json_type"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/mcp+json", True),
        ("text/plain", False),
        ("text/x+json", False),
        ("", False),
        (None, False),
    ],
)
def test_w13_only_json_counts_as_json(said: str | None, json_type: bool) -> None:
    """The types that a form of another site's page can send are none of them."""
    assert is_json_type(said) is json_type


# --- results --------------------------------------------------------------------------------------------------


def test_e4_status_goes_by_is_error() -> None:
    """The same shape with 200 or 500, and ``isError`` always said."""
    assert result_body(DONE) == HttpOutcome(
        200, b'{"content":[{"type":"text","text":"done"}],"isError":false}'
    )
    failed = result_body({**DONE, "isError": True})
    assert (failed.status, read(failed)) == (500, {**DONE, "isError": True})


def test_e4_an_exception_is_a_result_with_its_message() -> None:
    """Its content says the message, and nothing else does."""
    failed = failure_body("no such city")
    expected = {"content": [{"type": "text", "text": "no such city"}], "isError": True}
    assert (failed.status, read(failed)) == (500, expected)


@pytest.mark.parametrize("trace", [None, ""])
def test_e5_no_trace_no_meta(trace: str | None) -> None:
    """The member is absent, not null, on results and failures."""
    assert "_meta" not in read(result_body(DONE, trace))
    assert "_meta" not in read(result_body({**DONE, "isError": True, "_meta": {"_trace_id": trace}}))


def test_e5_a_trace_is_told_beside_what_meta_holds() -> None:
    """Also on failures; what is the protocol's own or for MCP's programs stays here."""
    meta = {"adapter/error": {"stage": "handler"}, "io.modelcontextprotocol/serverInfo": {}, "artifact": "a"}
    failed = result_body({**DONE, "isError": True, "_meta": meta, "resultType": "complete"}, "t-1")
    assert read(failed) == {**DONE, "isError": True, "_meta": {"artifact": "a", "_trace_id": "t-1"}}
    assert read(result_body({**DONE, "_meta": {"_trace_id": "t-2"}}))["_meta"] == {"_trace_id": "t-2"}


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=3), st.none() | OBJECTS)
def test_e6_content_passes_as_it_is(content: list[dict[str, Any]], structured: dict[str, Any] | None) -> None:
    """Items of any type, and structured content beside them."""
    result = {"content": content} | ({} if structured is None else {"structuredContent": structured})
    assert read(result_body(result)) == {**result, "isError": False}


def test_a_refusal_of_a_plan_is_one_of_the_door() -> None:
    """Which credential was wrong and why stays here; of a success the stage means nothing."""
    refused = {"content": [], "isError": True, "_meta": {"adapter/error": {"stage": "auth", "code": -32000}}}
    assert result_body(refused) == UNAUTHORIZED
    assert result_body({**refused, "isError": False}).status == 200


def test_a_host_may_answer_with_models() -> None:
    """A pydantic model is said under its names on the wire; what holds itself is refused."""
    assert as_plain(TextContent(type="text", text="x")) == {"type": "text", "text": "x"}
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotJson):
        result_body({"content": loop})


# --- tools ----------------------------------------------------------------------------------------------------


@dataclass
class Plain:
    """A tool as some host has it."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: list[Any] = [
    {
        "name": "dict",
        "title": "T",
        "description": "D",
        "annotations": {"readOnlyHint": True, "title": None},
        "inputSchema": SCHEMA,
    },
    {"name": "bare", "title": 5, "annotations": {"title": None}},
    {"description": "nameless"},
    Plain("object", "O", SCHEMA),
    Tool(name="sdk", input_schema=SCHEMA, annotations=ToolAnnotations(destructive_hint=True)),
]


def test_e9_tools_are_a_bare_array_without_nulls() -> None:
    """Mappings, objects and models alike; annotations are absent where they say nothing."""
    assert read(at_once(tool_list(TOOLS))) == [
        {"name": "dict", "description": "D", "title": "T", "annotations": {"readOnlyHint": True}},
        {"name": "bare", "description": ""},
        {"name": "object", "description": "O"},
        {"name": "sdk", "description": "", "annotations": {"destructiveHint": True}},
    ]


def test_e9_a_tool_by_itself_has_its_schema() -> None:
    """Whatever attribute a host keeps it in; no schema is one that allows everything."""
    for number in (0, 3, 4):
        tool = ApiTool.of(TOOLS[number])
        assert tool is not None and read(tool_detail(tool))["inputSchema"] == SCHEMA
    bare = ApiTool.of(TOOLS[1])
    assert bare is not None and read(tool_detail(bare))["inputSchema"] == {}
    assert ApiTool.of(object()) is None


def test_a_tool_says_that_it_may_destroy_something() -> None:
    """However a host has it; silence is no such word."""
    assert [is_destructive(tool) for tool in TOOLS] == [False, False, False, False, True]
    assert is_destructive({"annotations": {"destructiveHint": True}})
    assert not is_destructive({"annotations": {"destructiveHint": "true"}})


# --- validation -----------------------------------------------------------------------------------------------


def test_e15_answers_of_validation() -> None:
    """Valid without a list of errors, invalid with one, and 400 only for what is no JSON."""
    wrong = {"path": "/city", "message": "'city' is a required property", "keyword": "required"}
    assert validation([]) == HttpOutcome(200, b'{"valid":true}')
    invalid = validation([wrong])
    assert (invalid.status, read(invalid)) == (200, {"valid": False, "errors": [wrong]})
    assert validated_arguments(b'{"city":1}') == {"city": 1}
    assert validated_arguments(b"") == {}
    other = validated_arguments(b"[1]")
    assert isinstance(other, HttpOutcome) and other.status == 200
    assert read(other)["valid"] is False and read(other)["errors"][0]["keyword"] == "type"


@pytest.mark.parametrize("raw", [b"{", b"\xff", b'{"a":NaN}'])
def test_e15_invalid_json_is_400(raw: bytes) -> None:
    """With one error of the keyword ``format`` at the root."""
    answered = validated_arguments(raw)
    assert isinstance(answered, HttpOutcome)
    (error,) = read(answered)["errors"]
    assert answered.status == 400 and read(answered)["valid"] is False
    assert error["path"] == "" and error["keyword"] == "format"
    assert error["message"].startswith("Invalid JSON: ")


# --- requests that go on, and answers of MCP as they are --------------------------------------------------------


def test_a_call_goes_on_with_answers() -> None:
    """Arguments, and the answers with the state that belongs to them."""
    raw = json.dumps(
        {"arguments": {"n": 1}, "inputResponses": {"k": {}}, "requestState": "s", "other": 1}
    ).encode()
    assert continued_arguments(raw) == Arguments(
        {"n": 1}, None, {"inputResponses": {"k": {}}, "requestState": "s"}
    )
    assert continued_in({"name": "x"}) == {}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        b'{"arguments":[],"requestState":"s"}',
        b'{"inputResponses":[]}',
        b'{"requestState":1}',
    ],
)
def test_what_is_no_continuation_is_refused(raw: bytes) -> None:
    """With 400 and a reason."""
    refusal = continued_arguments(raw)
    assert isinstance(refusal, HttpOutcome) and refusal.status == 400 and read(refusal)["error"]


def test_answers_of_mcp_are_passed_as_they_are() -> None:
    """Without the protocol's own member; a list member by member."""
    assert value_body({"resultType": "complete", "messages": []}) == HttpOutcome(200, b'{"messages":[]}')
    assert at_once(value_list([{"name": "a"}, {"name": "b"}])) == HttpOutcome(
        200, b'[{"name":"a"},{"name":"b"}]'
    )
    assert json_object(b'{"a":1}') == {"a": 1}
