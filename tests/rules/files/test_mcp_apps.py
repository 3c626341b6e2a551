"""Widgets of MCP Apps: who is told of them, where, and what a host may let them do."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.mcp_apps import (
    EXTENSION,
    MEDIA_TYPE,
    UPLOAD_WIDGET,
    shows_widgets,
    widget_contents,
    with_widget,
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


def test_the_tool_names_its_widget_twice() -> None:
    """By the nested key and by the flat one; all other bytes stay."""
    before = b'{"jsonrpc": "2.0", "id": 1,"result":{"tools":[{"name":"other"}, {"name":"get","x":1.0}]}}'
    after = with_widget(before, "get", UPLOAD_WIDGET)
    assert orjson.loads(after)["result"]["tools"][1] == {"name": "get", "x": 1.0, "_meta": NAMED}
    assert after.startswith(
        b'{"jsonrpc": "2.0", "id": 1,"result":{"tools":[{"name":"other"}, {"name":"get","x":1.0'
    )


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
    assert with_widget(response, "get", UPLOAD_WIDGET) == response


def test_a_widget_connects_to_the_adapter_alone() -> None:
    """By the origin of its address; where that is not known, to nothing."""
    told = widget_contents(UPLOAD_WIDGET, "<p>", "https://host.example:8443/a")
    assert told["_meta"]["ui"]["csp"] == {"connectDomains": ["https://host.example:8443"]}
    assert (told["uri"], told["mimeType"], told["text"]) == (UPLOAD_WIDGET, MEDIA_TYPE, "<p>")
    assert widget_contents(UPLOAD_WIDGET, "", "")["_meta"]["ui"]["csp"] == {"connectDomains": []}
