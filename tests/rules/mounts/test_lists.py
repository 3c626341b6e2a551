"""Merged lists: entries keep their bytes, but for names and URIs."""

from __future__ import annotations

import json

from adapter.rules.access.visible_lists import ListShape
from adapter.rules.mounts.lists import (
    MISSING,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    TOOLS,
    ServerList,
    asks_for_page,
    change_of,
    list_response,
    merged,
    read_entries,
    read_page,
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
    uris = UriTable([ServerUris.of("a", ["ui://w"], []), ServerUris.of("b", ["ui://w"], [])])
    array = at_once(merged([one, two], change_of(TOOLS, names_of(one, two), uris)))
    changed = tool.replace(b'  "go"', b'  "b_go"').replace(b"ui://w", b"ui://mount/b/w")
    assert array == b'[{"name":"a_go"},' + changed + b"]"


def test_prompts_are_named_like_tools() -> None:
    """With the same prefix."""
    one = listed("a", PROMPTS, b'{"name":"go"}')
    change = change_of(PROMPTS, names_of(one), UriTable([ServerUris.of("a", [], [])]))
    assert at_once(merged([one], change)) == b'[{"name":"a_go"}]'


def test_the_adapters_own_resources_are_listed_once() -> None:
    """All servers have the same; what else two of them list is told apart."""
    lists = [listed(server, RESOURCES, b'{"uri":"own:g"}', b'{"uri":"x:1"}') for server in "ab"]
    uris = UriTable([ServerUris.of(each.server, each.names, []) for each in lists])
    array = at_once(merged(lists, change_of(RESOURCES, None, uris), frozenset({"own:g"})))
    assert [each["uri"] for each in json.loads(array)] == ["own:g", "x:1", "mount://b/x:1"]


def test_templates_of_two_servers_are_told_apart() -> None:
    """What fits one of them leads to its server."""
    lists = [listed(server, TEMPLATES, b'{"uriTemplate":"x:{id}"}') for server in "ab"]
    uris = UriTable([ServerUris.of(each.server, [], each.names) for each in lists])
    array = at_once(merged(lists, change_of(TEMPLATES, None, uris)))
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
    tools = b'[{"name":"a"}, 3,{"title":"x"},{"name":"b","name":"c"} , {"name":"d"}]'
    page = at_once(read_page(b'{"id":1,"result":{"tools":' + tools + b',"nextCursor":"x"}}', TOOLS))
    assert page is not None
    assert page.entries == [("a", b'{"name":"a"}'), ("d", b'{"name":"d"}')]
    assert page.cursor == "x"
    stored = b"[" + b",".join(item for _, item in page.entries) + b"]"
    assert at_once(stored_entries(stored, TOOLS)) == page.entries


def test_a_server_without_such_a_list_has_an_empty_one() -> None:
    """Any other answer is no list."""
    absent = at_once(read_page(b'{"id":1,"error":{"code":-32601,"message":""}}', PROMPTS))
    assert absent == ([], None)
    assert at_once(read_page(b'{"id":1,"error":{"code":-32603,"message":""}}', PROMPTS)) is None
    assert at_once(read_page(b'{"id":1,"result":{}}', PROMPTS)) is None


def test_a_cursor_is_seen_in_any_spelling() -> None:
    """The merged list has one page."""
    assert asks_for_page(b'{"params":{"cursor":"x"}}')
    assert asks_for_page(b'{"params":{"c\\u0075rsor":"x"}}')
    assert not asks_for_page(b'{"params":{"cursor":null}}')
    assert not asks_for_page(b'{"params":{"_meta":{"cursor":"x"}}}')
