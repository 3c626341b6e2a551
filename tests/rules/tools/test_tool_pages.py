"""Pages of tools, read piece by piece: what is shaped, what is left out, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import BadJson
from adapter.rules.tools.drift import Change, Drift
from adapter.rules.tools.lists import LONGEST_REST, ListRefused
from adapter.rules.tools.tool_pages import (
    BOUNDS,
    DEEPEST,
    ListLimits,
    NoTools,
    PageRules,
    ToolPage,
    allowed_texts,
    read_page,
    warned_texts,
    with_warning,
    write_page,
)
from adapter.rules.tools.visibility import ShapedDefinition
from adapter.wire.piecewise import LARGE, at_once
from tests.wire.pieces import timed
from tests.wire.test_spans import documents

PLAIN = b'{"name":"plain","description":"Does."}'


def keeps(_: str, raw: bytes) -> ShapedDefinition:
    return ShapedDefinition(raw)


def response(*entries: bytes, more: bytes = b"") -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":{"tools":[%b]%b}}' % (b", ".join(entries), more)


def read(*entries: bytes, more: bytes = b"", first: bool = True, **rules: Any) -> ToolPage:
    page = timed(
        read_page(response(*entries, more=more), PageRules(**{"shape": keeps, **rules}), first=first)
    )
    assert isinstance(page, ToolPage)
    return page


def written(page: ToolPage, texts: Sequence[bytes | None] | None = None, *, private: bool = False) -> bytes:
    return at_once(write_page(page, page.entries.texts if texts is None else texts, private=private))


def tools(text: bytes) -> list[Any]:
    found: list[Any] = json.loads(text)["result"]["tools"]
    return found


@given(st.lists(documents, max_size=5), documents)
def test_what_nobody_touches_keeps_its_bytes(entries: list[bytes], other: bytes) -> None:
    """Whatever is listed, and whatever stands beside the list."""
    page = read(*entries, more=b',"x":' + other)
    assert written(page) is page.response


@given(st.lists(st.sampled_from(["keep", "change", "hide", "odd"]), max_size=8), st.booleans(), st.booleans())
def test_entries_are_kept_changed_and_left_out(fates: list[str], own: bool, private: bool) -> None:
    """In any order; the rest of the response stays, but for whom it is made."""

    def shape(name: str, raw: bytes) -> ShapedDefinition:
        fate = name.partition("-")[0]
        if fate == "hide":
            return ShapedDefinition(None)
        return (
            ShapedDefinition(raw.replace(b"Does", b"Did"), frozenset({"description"}))
            if fate == "change"
            else ShapedDefinition(raw)
        )

    entries = [
        b" 7" if fate == "odd" else b'{"name":"%b-%d", "description":"Does"}' % (fate.encode(), place)
        for place, fate in enumerate(fates)
    ]
    page = read(*entries, more=b',"nextCursor":"c"', shape=shape, own=[b'{"name":"own"}'] if own else ())
    found = json.loads(written(page, private=private))
    expected: list[Any] = [{"name": "own"}] if own else []
    for place, fate in enumerate(fates):
        if fate == "odd":
            expected.append(7)
        elif fate != "hide":
            expected.append({"name": f"{fate}-{place}", "description": "Did" if fate == "change" else "Does"})
    assert found["result"]["tools"] == expected
    assert found["result"]["nextCursor"] == page.cursor == "c"
    touched = own or "hide" in fates or "change" in fates
    assert ("cacheScope" in found["result"]) is (private and touched)
    assert [note.event for note in page.entries.notes] == ["policy changed a tool"] * fates.count("change")


def test_what_stands_where_makes_no_difference() -> None:
    """Members in any order, spaces, and escapes in keys; another list deeper within is none."""
    text = b'{ "result" : { "x":{"tools":[8]},"too\\u006cs" : [ %b ] , "y":1 }, "id":1 }' % PLAIN
    page = at_once(
        read_page(text, PageRules(lambda *_: ShapedDefinition(None), [b'{"name":"own"}']), first=True)
    )
    assert isinstance(page, ToolPage)
    assert written(page, private=True) == (
        b'{ "result" : { "x":{"tools":[8]},"too\\u006cs" : [{"name":"own"} ] , "y":1'
        b',"cacheScope":"private" }, "id":1 }'
    )


@pytest.mark.parametrize(
    "text",
    [
        b'{"result":{"tools":[7],"tools":[%b]}}',
        b'{"result":{"Tools":[7],"tools":[%b]}}',
        b'{"Result":{"tools":[7]},"result":{"tools":[%b]}}',
        b'{"error":{"code":-32601},"RESULT":{"tools":[%b]}}',
        b'{"result":{"tools":[7],"tool\\u017f":[%b]}}',
        b'{"result":{"tools":[7]},"result":{"tools":[%b]}}',
        b'{"result":{"x":[7],"TOOLS":[%b]}}',
        b'{"result":{"tools":[]},"error":{"message":"no","data":%b}}',
    ],
)
def test_a_list_that_can_be_read_in_two_ways_is_refused(text: bytes) -> None:
    """Nobody knows which of them a client reads."""
    with pytest.raises(ListRefused, match="can be read in two ways: "):
        at_once(read_page(text % PLAIN, PageRules(keeps), first=True))


@pytest.mark.parametrize("changes", [False, True])
def test_a_tool_that_can_be_read_in_two_ways_is_left_out(changes: bool) -> None:
    """And cannot be called, whatever policy would have made of it; so is what only some client takes for a tool.

    What stands twice deep in its schema hides none.
    """

    def shape(_: str, raw: bytes) -> ShapedDefinition:
        return ShapedDefinition(b'{"name":"new"}') if changes and raw != PLAIN else ShapedDefinition(raw)

    twice = b'{"name":"twice","description":"Does.","description":"Did."}'
    odd = (
        b'{"name":"second","Description":"Did."}',
        b'{"Name":"other"}',
        b'{"name":"third","input_schema":{}}',
    )
    page = read(PLAIN, twice, *odd, b'{"name":"evil","na\\u006de":"good"}', shape=shape)
    assert tools(written(page)) == [json.loads(PLAIN)] and {"twice", "second", "third"} <= page.entries.hidden
    deep = b'{"name":"deep","inputSchema":{"type":"object","type":"object"}}'
    assert tools(written(read(deep))) == [json.loads(deep)]
    assert all(
        note.unread and note.what == "its definition can be read in two ways" for note in page.entries.notes
    )


def test_what_is_hidden_for_what_it_says_is_known() -> None:
    """By how its name reads; what is hidden for its name is not told of."""

    def shape(name: str, raw: bytes) -> ShapedDefinition:
        return ShapedDefinition(None, blocked=name == "Bad")

    page = read(b'{"name":"Bad"}', PLAIN, shape=shape)
    assert page.entries.hidden == {"bad"} and [note.name for note in page.entries.notes] == ["Bad"]
    assert not page.entries.notes[0].unread


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (
            b'{"description":"%b","name":"B\\u0069g"}' % (b"x" * 2000),
            "its definition is larger than 1000 bytes",
        ),
        (b'{"name":"Big","x":' + b"[" * 1100 + b"]" * 1100 + b"}", f"more than {DEEPEST} levels deep"),
        (
            b'{"name":"Big","x":' + b'{"a":' * 1100 + b"1" + b"}" * 1100 + b"}",
            f"more than {DEEPEST} levels deep",
        ),
    ],
)
def test_a_definition_that_nobody_looks_into_is_left_out(entry: bytes, why: str) -> None:
    """It is known by its name, and its neighbours are shown."""
    longest = 1000 if b"xxx" in entry else 1 << 20
    page = read(PLAIN, entry, limits=ListLimits(definition=longest))
    assert tools(written(page)) == [json.loads(PLAIN)] and page.entries.hidden == {"big"}
    (note,) = page.entries.notes
    assert note.unread and note.name == "Big" and why in str(note.what)


@pytest.mark.parametrize(
    "entry", [b"[" * 3000 + b"]" * 3000, b'{"name":7,"x":"%b"}' % (b"x" * 2000), b'"%b"' % (b"x" * 2000)]
)
def test_what_has_no_name_may_be_too_large_as_well(entry: bytes) -> None:
    """It is left out like a tool."""
    page = read(PLAIN, entry, limits=ListLimits(definition=1000))
    assert tools(written(page)) == [json.loads(PLAIN)] and page.entries.notes[0].name == ""


@pytest.mark.parametrize(
    "text",
    [
        response(b'{"name":}'),
        response(b'{"name":"a"'),
        response(b'{"name":"a"} {"name":"b"}'),
        response(PLAIN) + b"x",
        response(PLAIN)[:-1],
        b'{"result":{"tools":[]},"x":}',
        b'{"result":7,}',
        b"",
        response(b'{"name":"' + b"[" * 1100 + b'","x":}'),
    ],
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    """Wherever it is none."""
    with pytest.raises(BadJson):
        at_once(read_page(text, PageRules(keeps), first=True))


@pytest.mark.parametrize(
    "text", [b"[]", b"7", b'{"id":1,"error":{"code":-32000}}', b'{"id":1,"result":{"tools":{}}}']
)
def test_what_is_no_list_is_none(text: bytes) -> None:
    """Another error than that of an unknown method says nothing of the server's tools."""
    assert at_once(read_page(text, PageRules(keeps), first=True)) == NoTools()


def test_a_server_may_know_no_tools() -> None:
    """Then it does not know the method."""
    text = b'{"id":1,"error":{"code":-32601,"message":"no"}}'
    assert at_once(read_page(text, PageRules(keeps), first=True)) == NoTools(absent=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (response(b" " * BOUNDS.page), "has a page of more than 33554432 bytes"),
        (response(*[b"7"] * (BOUNDS.tools + 1)), "has more than 20000 tools"),
        (
            response(more=b',"x":"%b"' % (b"x" * LONGEST_REST)),
            f"has more than {LONGEST_REST} bytes besides its tools",
        ),
        (b'{"error":{"message":"%b"}}' % (b"x" * LONGEST_REST), f"has more than {LONGEST_REST} bytes"),
    ],
)
def test_pages_have_bounds(text: bytes, why: str) -> None:
    """What is beyond them is refused with the reason, before any tool is looked into."""
    with pytest.raises(ListRefused, match=re.escape(why)):
        timed(read_page(text, PageRules(keeps), first=True))


def test_large_definitions_are_looked_into_apart() -> None:
    """What they become is the same."""
    big = b'{"name":"big","description":"%b","inputSchema":{"properties":{"a":{"x-mcp-header":"A"}}}}' % (
        b"x" * LARGE
    )
    page = read(big, PLAIN, shape=lambda _, raw: ShapedDefinition(raw.replace(b"xx", b"yy")))
    assert [tool.name for tool in page.entries.tools if tool] == ["big", "plain"]
    assert page.entries.headers == {"big": {("a",): "Mcp-Param-A"}}
    assert b"yyyy" in written(page)


def test_warnings_stand_first_in_what_changed() -> None:
    """Tools that did not, and entries that are no tools, keep their bytes."""
    big = b'{"name":"big","description":"%b"}' % (b"x" * LARGE)
    page = read(PLAIN, b'{"name":"other"}', b"7", big)
    found = Drift(added=("plain",), changed=(Change("big", ("description",)),))
    texts = at_once(warned_texts(page, found))
    assert texts[1:3] == [b'{"name":"other"}', b"7"]
    assert texts[0] == with_warning(PLAIN, "plain", found) and b"was not there" in texts[0]
    assert texts[3] is not None and b"is not as it was first seen" in texts[3]


def test_a_subset_has_no_entries_that_are_no_tools() -> None:
    """Who may use some tools is shown those and nothing else."""
    page = read(PLAIN, b'{"name":"other"}', b"7", own=[b'{"name":"own"}'])
    assert tools(written(page, at_once(allowed_texts(page, {"other"})))) == [
        {"name": "own"},
        {"name": "other"},
    ]


def test_a_page_of_many_tools_is_read_piece_by_piece() -> None:
    """And written so: no piece is long, however it is spelled."""
    entries = [
        json.dumps(
            {"name": f"tool_{n}", "description": "Dœs it. " * 20, "inputSchema": {"a": {"b": [1.0, {}]}}},
            indent=n % 3 or None,
            ensure_ascii=n % 2 == 0,
        ).encode()
        for n in range(3000)
    ]
    page = read(*entries)
    assert len([tool for tool in page.entries.tools if tool]) == 3000
    found = Drift(added=tuple(f"tool_{n}" for n in range(3000)))
    warned = timed(write_page(page, timed(warned_texts(page, found)), private=True))
    assert warned.count(b"[Warning") == 3000
