"""Code mode: a call through the third tool is unfolded into the one it stands for, and nothing else of it changes."""

from __future__ import annotations

import orjson
import pytest

from adapter.rules.tools.code_mode import (
    MOST_FOUND,
    CodeModeNames,
    Misasked,
    Query,
    asked_name,
    asked_query,
    definitions,
    told,
    unfold,
)
from adapter.rules.tools.search import SearchHit
from adapter.wire.envelope import Envelope, read_envelope

NAMES = CodeModeNames("one")


def call(params: str) -> Envelope:
    """A call whose params are spelled just so."""
    body = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": ' + params.encode() + b"}"
    envelope = read_envelope(body)
    assert isinstance(envelope, Envelope)
    return envelope


def asking(arguments: object) -> Envelope:
    """A call of one of the three tools with these arguments."""
    return call(orjson.dumps({"name": "one_call_tool", "arguments": arguments}).decode())


def test_a_call_becomes_the_one_it_stands_for() -> None:
    """Name and arguments move out; numbers, escapes, unknown params, _meta and the spaces between keep their bytes."""
    envelope = call(
        '{ "_meta" : {"progressToken": 1e2}, "name":"one_call_tool", "task": {"ttl": 5.0},'
        ' "arguments": {"arguments": {"x": 1.50, "y":"\\u00e9"}, "name": "caf\\u00e9"} }'
    )
    assert unfold(envelope, NAMES) == (
        b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": '
        b'{ "_meta" : {"progressToken": 1e2}, "name":"caf\\u00e9", "task": {"ttl": 5.0},'
        b' "arguments": {"x": 1.50, "y":"\\u00e9"} }}'
    )


@pytest.mark.parametrize("arguments", [{"name": "draw"}, {"name": "draw", "arguments": None}])
def test_a_call_without_arguments_stays_one(arguments: object) -> None:
    """No arguments inside are no arguments outside."""
    message = orjson.loads(unfold(asking(arguments), NAMES))
    assert message["params"] == {"name": "draw"}


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ('{"name": "one_call_tool"}', "name must be"),
        ('{"name": "one_call_tool", "arguments": "draw"}', "must be an object"),
        ('{"name": "one_call_tool", "arguments": {"name": 1}}', "name must be"),
        ('{"name": "one_call_tool", "arguments": {"name": "a", "arguments": "{}"}}', "must be an object"),
        ('{"name": "one_call_tool", "arguments": {"name": "a", "path": "b"}}', "go into arguments"),
        ('{"name": "one_call_tool", "arguments": {"name": "one_call_tool"}}', "cannot call itself"),
        ('{"name": "one_call_tool", "arguments": {"name": "a", "name": "b"}}', "twice"),
        ('{"name": "one_call_tool", "arguments": {"name": "a"}, "arguments": {"name": "b"}}', "twice"),
    ],
)
def test_what_cannot_be_followed_is_told_to_the_model(params: str, why: str) -> None:
    """A sentence says what is wrong; a key that stands twice is never left to the upstream's taste."""
    with pytest.raises(Misasked, match=why):
        unfold(call(params), NAMES)


def test_the_unfolded_call_is_read_like_any_other() -> None:
    """What judges calls finds the inner name, so there is no second way past it."""
    inner = read_envelope(unfold(asking({"name": "draw", "arguments": {"name": "x"}}), NAMES))
    assert isinstance(inner, Envelope) and inner.name == "draw" and inner.id == 7


def test_questions_have_defaults_and_bounds() -> None:
    """Ten tools unless another number is asked for, a hundred at most."""
    assert asked_query(asking({"query": "draw"})) == Query("draw", 10)
    assert asked_query(asking({"query": "", "limit": 3})) == Query("", 3)
    assert asked_name(asking({"name": "draw"}), NAMES) == "draw"
    for limit in (0, MOST_FOUND + 1, True, 2.5, "3"):
        with pytest.raises(Misasked, match="limit"):
            asked_query(asking({"query": "draw", "limit": limit}))
    with pytest.raises(Misasked, match="query"):
        asked_query(asking({}))


def test_answers_name_what_was_found_and_the_way_on() -> None:
    """The text has a line for each tool, and the data fits the output schema's members."""
    text, data = told([SearchHit("draw", "Draw", "Draws a chart.", 8.25)], 3, NAMES)
    assert text.splitlines() == [
        "draw (8.25): Draws a chart.",
        "2 more were found; ask for more with limit.",
        "Arguments: one_get_tool_schema. Call: one_call_tool.",
    ]
    assert data == {
        "tools": [{"name": "draw", "title": "Draw", "description": "Draws a chart.", "score": 8.25}],
        "total": 3,
    }
    assert told([], 0, NAMES)[1] == {"tools": [], "total": 0}


def test_the_three_tools_are_named_after_their_server() -> None:
    """Two servers in one client do not collide."""
    assert [tool["name"] for tool in definitions(NAMES)] == [
        "one_search_tools",
        "one_get_tool_schema",
        "one_call_tool",
    ]
    assert NAMES.every == {tool["name"] for tool in definitions(NAMES)}
