"""Which headers follow an argument that a stage rewrites."""

from __future__ import annotations

import pytest

from adapter.relay.param_headers import KNOWN, ParamHeaders, headers_on
from adapter.relay.stages import Call, CallOrigin
from adapter.rules.access.principals import principal_scope
from adapter.rules.calls.arguments import annotated
from adapter.rules.tools.lists import MOST_ITEMS
from adapter.wire.envelope import Envelope, read_envelope
from adapter.wire.eras import Era

SCHEMA = {
    "type": "object",
    "properties": {
        "form": {"type": "object", "properties": {"file": {"type": "string", "x-mcp-header": "File"}}},
        "files": {"type": "array", "items": {"properties": {"path": {"x-mcp-header": "Never"}}}},
        "odd": {"x-mcp-header": 7},
    },
}


def call(*headers: tuple[str, str], era: Era = Era.MODERN) -> Call:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}'
    envelope = read_envelope(body)
    assert isinstance(envelope, Envelope)
    scope = principal_scope(b"", "anonymous")
    return Call(CallOrigin("one", era), scope, envelope, body, list(headers))


def rewritten(
    made: Call, *argument: str | int, schema: object = SCHEMA, new: str = "new"
) -> list[tuple[str, str]]:
    mirrors = ParamHeaders()
    if schema is not None:
        mirrors.learn(["read"], {"read": dict(annotated(schema))})
    mirrors.rewrite(made, argument, "old", new)
    return made.headers


def test_header_of_a_nested_argument_follows() -> None:
    """Whatever it said and however it was spelled, it is there once."""
    came = call(("MCP-PARAM-FILE", "x"), ("Mcp-Param-File", "old"), ("Accept", "old"))
    assert rewritten(came, "form", "file") == [("Accept", "old"), ("Mcp-Param-File", "new")]


def test_what_plain_text_cannot_say_is_encoded() -> None:
    """As the specification encodes it."""
    assert rewritten(call(), "form", "file", new="名") == [("Mcp-Param-File", "=?base64?5ZCN?=")]


@pytest.mark.parametrize("argument", [("files", 0, "path"), ("odd",), ("other",)])
def test_argument_without_a_header_changes_none(argument: tuple[str | int, ...]) -> None:
    """One in a list has none, whatever its schema says; nor has one whose annotation is no name."""
    assert rewritten(call(("Mcp-Param-Never", "old")), *argument) == [("Mcp-Param-Never", "old")]


def test_unknown_schema_goes_by_what_headers_say() -> None:
    """Also where one says it in base64; one that is damaged is left to the upstream."""
    came = call(("Mcp-Param-A", "=?base64?b2xk?="), ("Mcp-Param-B", "=?base64?!?="), ("X-C", "old"))
    expected = [("Mcp-Param-A", "new"), ("Mcp-Param-B", "=?base64?!?="), ("X-C", "old")]
    assert rewritten(came, "form", "file", schema=None) == expected


def test_legacy_calls_have_no_mirrors() -> None:
    """A header of that name is some client's own."""
    came = call(("Mcp-Param-File", "old"), era=Era.LEGACY)
    assert rewritten(came, "form", "file") == [("Mcp-Param-File", "old")]


def test_headers_follow_arguments_that_were_made_anew() -> None:
    """One that changed, one that is new and one that is gone, of any plain type; what stayed keeps its spelling."""
    named = ("kept", "size", "deep", "new", "gone")
    properties = {name: {"x-mcp-header": name.title()} for name in named}
    mirrors = ParamHeaders()
    mirrors.learn(["read"], {"read": dict(annotated({"properties": properties}))})
    made = call(
        ("Mcp-Param-Kept", "=?base64?a2VwdA==?="),
        ("mcp-param-size", "1"),
        ("Mcp-Param-Deep", "true"),
        ("Mcp-Param-Gone", "x"),
    )
    mirrors.renew(
        made,
        {"kept": "kept", "size": 1, "deep": True, "gone": "x"},
        {"kept": "kept", "size": 2, "deep": False, "new": "n"},
    )
    assert made.headers == [
        ("Mcp-Param-Kept", "=?base64?a2VwdA==?="),
        ("Mcp-Param-Size", "2"),
        ("Mcp-Param-Deep", "false"),
        ("Mcp-Param-New", "n"),
    ]


def test_headers_of_an_unknown_schema_follow_texts() -> None:
    """While nobody has read the list, a header is found by the text that it said."""
    made = call(("Mcp-Param-A", "old"), ("Mcp-Param-B", "1"))
    ParamHeaders().renew(made, {"a": "old", "b": 1}, {"a": "new", "b": 2})
    assert made.headers == [("Mcp-Param-A", "new"), ("Mcp-Param-B", "1")]


def test_tools_that_are_listed_no_more_are_forgotten_in_the_end() -> None:
    """A server that names its tools anew each time does not fill the memory."""
    mirrors = ParamHeaders()
    mirrors.learn(["read"], {"read": {("file",): "Mcp-Param-File"}})
    mirrors.learn((f"tool_{number}" for number in range(KNOWN)), {})
    made = call(("Mcp-Param-Other", "old"))
    mirrors.rewrite(made, ("file",), "old", "new")
    # As of a schema that nobody has read.
    assert made.headers == [("Mcp-Param-Other", "new")]


async def test_headers_of_a_tool_on_a_page() -> None:
    """Of the first of its name, in any spelling; else where the list goes on."""
    tool = b'{%b,"inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"%b"}}}}'
    tools = tool % (b'"n\\u0061me":"\\u0061"', b"One"), tool % (b'"name":"a"', b"Two")
    page = b'{"result":{"tools":[{"x":{"name":"a"}},7,%b,%b],"nextCursor":"c"}}' % tools
    assert await headers_on(page, "a") == ({("a",): "Mcp-Param-One"}, None)
    assert await headers_on(page, "b") == (None, "c")
    assert await headers_on(b'{"result":{"tools":[],"nextCursor":7}}', "a") == (None, None)
    endless = b'{"id":1,"result":{"tools":[%b7]}}' % (b"7," * MOST_ITEMS)
    for other in (None, b"[]", b"{", b'{"error":{"code":-32000}}', endless):
        assert await headers_on(other, "a") == (None, None)
