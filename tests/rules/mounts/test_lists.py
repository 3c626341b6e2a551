"""Merged lists: entries keep their bytes, but for names and URIs."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from adapter.rules.access.access_rules import ListShape, read_entries, read_page
from adapter.rules.mounts.lists import (
    MISSING,
    PAGE,
    PAGE_BYTES,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    TOOLS,
    MergedList,
    ServerList,
    change_of,
    cursor_of,
    list_response,
    merged,
    read_cursor,
    stored_entries,
)
from adapter.rules.mounts.names import NameTable, NamingRules, ServerNames
from adapter.rules.mounts.uris import ServerUris, UriTable
from adapter.wire.piecewise import at_once


def listed(server: str, kind: ListShape, *items: bytes) -> ServerList:
    return ServerList.of(server, at_once(read_entries(kind, items)))


def names_of(*lists: ServerList) -> NameTable:
    return NameTable(
        NamingRules(), [at_once(ServerNames.of(NamingRules(), each.server, each.names)) for each in lists]
    )


def test_a_tool_keeps_its_bytes_but_for_its_name_and_its_widget() -> None:
    """Spaces, escapes and the order of members stay, and names in other places too."""
    tool = b'{"inputSchema" : {"name":"go"}, "n\\u0061me":  "go", "_meta":{"ui":{"resourceUri":"ui://w"}}}'
    one = listed("a", TOOLS, b'{"name":"go"}', b'{"title":"nameless"}')
    two = listed("b", TOOLS, tool)
    uris = UriTable([ServerUris("a", ["ui://w"], []), ServerUris("b", ["ui://w"], [])])
    (array,) = at_once(merged([one, two], change_of(TOOLS, names_of(one, two), uris))).pages
    changed = tool.replace(b'  "go"', b'  "b_go"').replace(b"ui://w", b"ui://mount/b/w")
    assert array == b'[{"name":"a_go"},' + changed + b"]"


def test_prompts_are_named_like_tools() -> None:
    """With the same prefix."""
    one = listed("a", PROMPTS, b'{"name":"go"}')
    change = change_of(PROMPTS, names_of(one), UriTable([ServerUris("a", [], [])]))
    assert at_once(merged([one], change)).pages == [b'[{"name":"a_go"}]']


def test_the_adapters_own_resources_are_listed_once() -> None:
    """All servers have the same; what else two of them list is told apart."""
    lists = [listed(server, RESOURCES, b'{"uri":"own:g"}', b'{"uri":"x:1"}') for server in "ab"]
    uris = UriTable([ServerUris(each.server, each.names, []) for each in lists])
    (array,) = at_once(merged(lists, change_of(RESOURCES, None, uris), frozenset({"own:g"}))).pages
    assert [each["uri"] for each in json.loads(array)] == ["own:g", "x:1", "mount://b/x:1"]


def test_templates_of_two_servers_are_told_apart() -> None:
    """What fits one of them leads to its server."""
    lists = [listed(server, TEMPLATES, b'{"uriTemplate":"x:{id}"}') for server in "ab"]
    uris = UriTable([ServerUris(each.server, [], each.names) for each in lists])
    (array,) = at_once(merged(lists, change_of(TEMPLATES, None, uris))).pages
    assert [each["uriTemplate"] for each in json.loads(array)] == ["x:{id}", "mount://b/x:{id}"]


def test_a_list_says_which_servers_are_missing() -> None:
    """In its ``_meta``, and only where one is."""
    assert json.loads(list_response(b"7", "tools", b"[]", {}, modern=False)) == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {"tools": []},
    }
    result = json.loads(list_response(b'"x"', "tools", b"[1]", {"a": "is down"}, modern=True))["result"]
    assert result["_meta"] == {MISSING: {"a": "is down"}}
    assert (result["resultType"], result["cacheScope"]) == ("complete", "private")


def test_a_page_is_read_with_its_cursor() -> None:
    """What is no entry, has no name or two, is left out."""
    tools = b'[{"name":"a"}, 3,{"title":"x"},{"name":"b","name":"c"} , {"name":"d"},{"n\\u0061me":"\\u0061"}]'
    page = at_once(read_page(b'{"id":1,"result":{"tools":' + tools + b',"nextCursor":"x"}}', TOOLS))
    assert page is not None
    spelled = b'{"n\\u0061me":"\\u0061"}'
    assert page.entries == [("a", b'{"name":"a"}'), ("d", b'{"name":"d"}'), ("a", spelled)]
    assert page.cursor == "x"
    stored = b"[" + b",".join(item for _, item in page.entries) + b"]"
    assert at_once(stored_entries(stored, TOOLS)) == page.entries


def test_a_server_without_such_a_list_has_an_empty_one() -> None:
    """Any other answer is no list."""
    absent = at_once(read_page(b'{"id":1,"error":{"code":-32601,"message":""}}', PROMPTS))
    assert absent == ([], None)
    assert at_once(read_page(b'{"id":1,"error":{"code":-32603,"message":""}}', PROMPTS)) is None
    assert at_once(read_page(b'{"id":1,"result":{}}', PROMPTS)) is None


def as_they_are(_server: str, _name: str, entry: bytes) -> bytes:
    """A change that changes nothing."""
    return entry


@given(st.lists(st.sampled_from([1, PAGE_BYTES // 2, PAGE_BYTES]), max_size=4), st.integers(0, 2 * PAGE))
@example([PAGE_BYTES, 1], PAGE)
def test_pages_have_all_entries_in_their_order(sizes: list[int], more: int) -> None:
    """None is above the bounds, and there is one page of nothing."""
    texts = [b"1" * size for size in [*sizes, *[1] * more]]
    pages = at_once(merged([ServerList("a", [(str(n), t) for n, t in enumerate(texts)])], as_they_are)).pages
    rows = [page[1:-1].split(b",") if page != b"[]" else [] for page in pages]
    assert [text for row in rows for text in row] == texts
    assert all(len(row) <= PAGE and sum(map(len, row)) <= PAGE_BYTES for row in rows)
    assert len(pages) == 1 or all(rows)


def test_an_entry_above_the_bound_has_a_page_of_its_own() -> None:
    """It is listed all the same."""
    entries = [("a", b"1"), ("b", b"2" * (PAGE_BYTES + 1)), ("c", b"3")]
    pages = at_once(merged([ServerList("a", entries)], as_they_are)).pages
    assert pages == [b"[" + text + b"]" for _, text in entries]


def test_a_seal_is_of_one_list_and_one_caller() -> None:
    """It is the same wherever the list is, and another for each other caller, method and list."""
    lists = [at_once(merged([ServerList("a", [("x", text)])], as_they_are)) for text in (b"1", b"1", b"2")]
    one, same, other = lists
    assert one.seal("me", "tools/list") == same.seal("me", "tools/list")
    others = {one.seal("you", "tools/list"), one.seal("me", "prompts/list"), other.seal("me", "tools/list")}
    assert len(others | {one.seal("me", "tools/list")}) == 4


def test_a_cursor_leads_to_its_page() -> None:
    """Any other text leads nowhere."""
    seal = MergedList([], b"", 0).seal("me", "tools/list")
    assert read_cursor(cursor_of(seal, 12)) == (seal, 12)
    foreign = (
        "",
        "2",
        "adapter-artifacts:1",
        seal,
        f"{seal}-",
        f"{seal}--1",
        f"{seal}-{'9' * 5000}",
        f"{seal}-1\n",
    )
    assert [read_cursor(text) for text in foreign] == [None] * len(foreign)
