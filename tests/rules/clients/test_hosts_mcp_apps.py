"""Widgets of MCP Apps: who is told of them, where, and what a host may let them do."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.clients.hosts import (
    EXTENSION,
    FILES_WIDGET,
    MEDIA_TYPE,
    UPLOAD_WIDGET,
    shows_widgets,
    widget_contents,
    with_widgets,
)

ANNOUNCED = {"extensions": {EXTENSION: {"mimeTypes": [MEDIA_TYPE]}}}
NAMED = {"ui": {"resourceUri": UPLOAD_WIDGET}, "ui/resourceUri": UPLOAD_WIDGET}


@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        [],
        {},
        {"extensions": {EXTENSION: {}}},
        {"extensions": [EXTENSION]},
        {"extensions": {EXTENSION: {"mimeTypes": MEDIA_TYPE}}},
        {"extensions": {EXTENSION: {"mimeTypes": ["text/html"]}}},
    ],
)
def test_only_clients_that_announce_html_show_widgets(capabilities: object) -> None:
    """Whatever else stands in their capabilities means no."""
    assert shows_widgets(ANNOUNCED) and not shows_widgets(capabilities)


def named(response: bytes) -> bytes:
    return with_widgets(response, orjson.loads(response), {"get": UPLOAD_WIDGET, "draw": FILES_WIDGET})


def test_tools_name_their_widgets_twice() -> None:
    """By the nested key and by the flat one; all other bytes stay, and so does a widget of the tool's own."""
    own = b'{"name":"draw","_meta":{"ui":{"resourceUri":"ui://own"}}}'
    before = (
        b'{"jsonrpc": "2.0", "id": 1,"result":{"tools":[{"name":"x"}, %s, {"name":"get","x":1.0}]}}' % own
    )
    after = named(before)
    assert orjson.loads(after)["result"]["tools"][2] == {"name": "get", "x": 1.0, "_meta": NAMED}
    assert after.startswith(before[: before.index(b"1.0") + 3])
    tools = orjson.loads(
        named(b'{"result":{"tools":[{"_meta":{"a":1},"name":"draw"},{"name":"get","_meta":3}]}}')
    )
    assert tools["result"]["tools"] == [
        {
            "name": "draw",
            "_meta": {"a": 1, "ui": {"resourceUri": FILES_WIDGET}, "ui/resourceUri": FILES_WIDGET},
        },
        {"name": "get", "_meta": 3},
    ]


def test_one_tool_of_a_name_names_its_widget() -> None:
    """A list that repeats a name a thousand times becomes no longer for that than one that does not."""
    tools = orjson.loads(named(b'{"result":{"tools":[%s{"name":"x"}]}}' % (b'{"name":"get"},' * 1000)))
    assert [tool.get("_meta") for tool in tools["result"]["tools"]] == [NAMED, *[None] * 1000]


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["result", "tools", "name", "x"]), inner)
        ),
        max_leaves=12,
    )
)
def test_what_is_no_such_list_stays_as_it_is(value: object) -> None:
    """Whatever comes in the place of a list of tools."""
    response = orjson.dumps(value)
    assert named(response) == response


def test_a_widget_connects_to_the_adapter_alone() -> None:
    """By the origin of its address; where that is not known, to nothing."""
    told = widget_contents(UPLOAD_WIDGET, "<p>", "https://host.example:8443/a")
    assert told["_meta"]["ui"]["csp"] == {"connectDomains": ["https://host.example:8443"]}
    assert (told["uri"], told["mimeType"], told["text"]) == (UPLOAD_WIDGET, MEDIA_TYPE, "<p>")
    shows = widget_contents(FILES_WIDGET, "", "http://a:1")["_meta"]["ui"]["csp"]
    assert shows == {"connectDomains": ["http://a:1"], "resourceDomains": ["http://a:1"]}
    assert widget_contents(UPLOAD_WIDGET, "", "")["_meta"]["ui"]["csp"] == {"connectDomains": []}
