"""Answers for what a caller may not see, or what is not there."""

from __future__ import annotations

import orjson

from adapter.rules.access.unknown_names import unknown_method, unknown_prompt, unknown_resource, unknown_tool


def test_answers_name_what_was_asked_for() -> None:
    """In one line, cut where it is long, with the code of MCP for each era."""
    assert orjson.loads(unknown_prompt(b"1", "a\nb"))["error"]["message"] == "Unknown prompt: a\\u000ab"
    assert str(unknown_tool("x" * 200)) == f"Unknown tool: {'x' * 99}…"
    for modern, code in ((False, -32002), (True, -32602)):
        error = orjson.loads(unknown_resource(b"1", "file:///a", modern=modern))["error"]
        assert error == {"code": code, "message": "Resource not found", "data": {"uri": "file:///a"}}


def test_a_method_that_is_not_served() -> None:
    """As JSON-RPC has it, with the id of the request as it came."""
    answer = orjson.loads(unknown_method(b'"a"', "tasks/list"))
    assert answer["id"] == "a"
    assert answer["error"] == {"code": -32601, "message": "Method not found: tasks/list"}
