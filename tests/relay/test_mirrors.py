"""Which headers follow an argument that a stage rewrites."""

from __future__ import annotations

import pytest

from adapter.relay.mirrors import Mirrors
from adapter.relay.stages import Call
from adapter.rules.scopes import principal_scope
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
    return Call("one", scope, envelope, body, era, headers=list(headers))


def rewritten(
    made: Call, *argument: str | int, schema: object = SCHEMA, new: str = "new"
) -> list[tuple[str, str]]:
    mirrors = Mirrors()
    if schema is not None:
        mirrors.learn("read", schema)
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
