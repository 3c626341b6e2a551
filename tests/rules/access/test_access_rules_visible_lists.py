"""Lists that are reduced to what one caller may see."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import BadJson
from adapter.rules.access.access_rules import (
    LARGEST_ENTRY,
    SHAPES,
    ListPage,
    OfferKind,
    read_page,
    unknown_prompt,
    unknown_resource,
    unknown_tool,
    visible_list,
)
from adapter.rules.tools.lists import LONGEST_REST, MOST_ITEMS, ListRefused
from adapter.wire.piecewise import at_once

PROMPT, RESOURCE = OfferKind.PROMPT, OfferKind.RESOURCE
TOOLS = SHAPES[OfferKind.TOOL]


def seen(
    response: bytes, shows: Callable[[str], bool], kind: OfferKind = PROMPT, *, modern: bool = False
) -> bytes:
    return at_once(visible_list(response, kind, shows, modern=modern))


def names_on(response: bytes, kind: OfferKind) -> list[str]:
    page = at_once(read_page(response, SHAPES[kind]))
    assert page is not None
    return [name for name, _ in page.entries]


def listing(entries: bytes, rest: bytes = b"") -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":{ "prompts" : [' + entries + b"]" + rest + b"}}"


def test_what_may_be_seen_keeps_its_bytes() -> None:
    """Spaces, unknown members and the cursor stay as they came; a list of which all may be seen is the very object."""
    response = listing(b'{"name": "a", "x": 1.0} , {"name":"b"},\n{"name":"c"}', b',"nextCursor":"n"')
    assert seen(response, lambda _: True) is response
    left = seen(response, lambda name: name != "b")
    assert b'"prompts" : [{"name": "a", "x": 1.0}' in left and b'"b"' not in left
    assert orjson.loads(left)["result"]["prompts"] == [{"name": "a", "x": 1.0}, {"name": "c"}]
    assert orjson.loads(seen(response, lambda _: False))["result"] == {"prompts": [], "nextCursor": "n"}


def test_a_modern_list_is_nobody_elses() -> None:
    """Whoever may see all of it shares it with nobody: others may not."""
    response = listing(b'{"name":"a"}', b',"cacheScope":"public"')
    assert orjson.loads(seen(response, lambda _: True, modern=True))["result"]["cacheScope"] == "private"


@pytest.mark.parametrize(
    "entry",
    [
        b'{"name":"a","name":"b"}',
        b'{"name":"b","name":"a"}',
        b'{"name":"a","Name":"b"}',
        b'{"n\\u0061me":"a","name":"b"}',
        b'{"name":1}',
        b'{"title":"a"}',
        b'"a"',
        b"null",
        b'{"name":"a","x":"' + b"x" * LARGEST_ENTRY + b'"}',
        b'{"name":"a","x":' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
def test_an_entry_without_one_certain_name_is_left_out(entry: bytes) -> None:
    """Some reader could find in it the name of something hidden."""
    found = orjson.loads(seen(listing(entry + b',{"name":"z"}'), lambda _: True))
    assert found["result"]["prompts"] == [{"name": "z"}]


@pytest.mark.parametrize(
    "response",
    [
        listing(b'{"name":"a"}', b',"prompts":[]'),
        listing(b'{"name":"a"}', b',"Prompts":[{"name":"b"}]'),
        listing(b"", b',"x":"' + b"x" * LONGEST_REST + b'"'),
        listing(b",".join([b"0"] * (MOST_ITEMS + 1))),
        b"[]",
    ],
)
def test_a_list_that_can_be_read_in_two_ways_is_refused(response: bytes) -> None:
    """Or that is too long to be looked at, or no response."""
    with pytest.raises(ListRefused):
        seen(response, lambda _: True)


def test_what_is_no_json_is_refused() -> None:
    """A part of it might be found by some client."""
    with pytest.raises(BadJson):
        seen(b'{"jsonrpc":"2.0","id":1,"result":{"prompts":[}', lambda _: True)


@pytest.mark.parametrize(
    ("response", "page"),
    [
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}', ListPage([])),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', None),
    ],
)
def test_an_answer_without_a_list_stays(response: bytes, page: ListPage | None) -> None:
    """An error is the upstream's word, and a result without a list shows nothing."""
    assert seen(response, lambda _: False) is response
    assert at_once(read_page(response, SHAPES[PROMPT])) == page


def test_every_kind_has_its_own_member() -> None:
    """Resources go by their URIs, templates by theirs."""
    for kind, shape in SHAPES.items():
        entries = [{"name": "shown", shape.name: "a"}, {"name": "shown", shape.name: "b"}]
        response = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {shape.key: entries}})
        assert names_on(response, kind) == ["a", "b"]
        (left,) = orjson.loads(seen(response, lambda name: name == "a", kind))["result"][shape.key]
        assert left[shape.name] == "a"


def test_names_are_certain_ones_only() -> None:
    """An entry that could have another name counts for none."""
    assert names_on(listing(b'{"name":"a"},{"name":"b","name":"c"},1'), PROMPT) == ["a"]


@pytest.mark.parametrize("page", [b"[]", b'{"error":{"code":-32000}}', b'{"result":{"tools":{}}}'])
def test_what_is_no_list_has_no_page(page: bytes) -> None:
    """Nor has one that nobody reads to its end."""
    assert at_once(read_page(page, TOOLS)) is None
    with pytest.raises(ListRefused):
        at_once(read_page(b'{"id":1,"result":{"tools":[%b7]}}' % (b"7," * MOST_ITEMS), TOOLS))


@given(st.lists(st.sampled_from("abcdef"), max_size=8), st.sets(st.sampled_from("abcdef")))
def test_what_is_left_is_what_may_be_seen(names: list[str], allowed: set[str]) -> None:
    """In the order of the upstream, as often as it has it."""
    response = orjson.dumps(
        {"jsonrpc": "2.0", "id": 1, "result": {"prompts": [{"name": name} for name in names]}}
    )
    left = orjson.loads(seen(response, allowed.__contains__))["result"]["prompts"]
    assert [each["name"] for each in left] == [name for name in names if name in allowed]


def test_the_answers_for_what_is_not_there() -> None:
    """In one line, cut, and with the code of the era."""
    assert str(unknown_tool("a\nb")) == "Unknown tool: a\\u000ab"
    assert orjson.loads(unknown_prompt(b'"x"', "p" * 200))["error"]["message"].endswith("…")
    for modern, code in ((False, -32002), (True, -32602)):
        error = orjson.loads(unknown_resource(b"1", "file:///x", modern=modern))["error"]
        assert error == {"code": code, "message": "Resource not found", "data": {"uri": "file:///x"}}
