"""Hosts by the names of their clients."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.clients.hosts import (
    EXTENSION,
    FILES_WIDGET,
    HOST_LIMITS,
    IN_INITIALIZE,
    IN_REQUEST,
    LONGEST_NAME,
    MEDIA_TYPE,
    MOST_CHARACTERS,
    SMALLEST,
    UPLOAD_WIDGET,
    Path,
    attaches_files,
    client_info,
    host_limit,
    shows_widgets,
    widget_contents,
    with_widgets,
)
from adapter.wire.envelope import dump


@pytest.mark.parametrize("name", ["openai-mcp", "openai-mcp (ChatGPT)", "OpenAI-MCP (Codex)", " openai-mcp "])
def test_chatgpt_attaches_files(name: str) -> None:
    """Under each name that it has introduced itself with."""
    assert attaches_files({"name": name})


@pytest.mark.parametrize(
    "name", ["", "claude-code", "openai-mcp (Responses API)", "openai-mcp-proxy", "chatgpt"]
)
def test_other_hosts_attach_none(name: str) -> None:
    """Also those of the same maker that have no conversation with files."""
    assert not attaches_files({"name": name})


@pytest.mark.parametrize("place", [IN_INITIALIZE, IN_REQUEST])
def test_the_name_is_read_where_it_stands(place: Path) -> None:
    """In the request that opens a session, or in each."""
    message: object = {"name": "openai-mcp", "version": "1"}
    for key in reversed(place):
        message = {"other": 1, key: message}
    assert client_info(orjson.dumps(message), place) == {"name": "openai-mcp", "version": "1"}


@pytest.mark.parametrize("name", [None, 1, ["openai-mcp"], {"name": "openai-mcp"}, "x" * (LONGEST_NAME + 1)])
def test_what_is_no_name_is_none(name: object) -> None:
    """A client writes what it wants there."""
    assert client_info(orjson.dumps({"params": {"clientInfo": {"name": name}}}), IN_INITIALIZE) == {}


@pytest.mark.parametrize(
    "message", [b"{}", b"[]", b'{"params":{"clientInfo":"openai-mcp"}}', b'{"params":1}']
)
def test_a_message_without_a_client_has_no_name(message: bytes) -> None:
    """Nothing is raised for it."""
    assert client_info(message, IN_INITIALIZE) == {}


# --- what hosts show of a result, by the name that they give themselves -------------------------------------------


@pytest.mark.parametrize(
    ("client", "most"),
    [
        ({"name": "claude-code", "version": "2.1.91"}, 50_000),
        ({"name": "claude-ai"}, 150_000),
        ({"name": "Anthropic/ClaudeAI", "version": "1.0.0"}, 150_000),
        ({"name": "copilot-cli", "version": "0.0.401"}, 10 << 10),
        ({"name": "copilot-cli", "version": "1.0.25"}, 30_000),
        ({"name": "copilot-cli", "version": "next"}, 30_000),
        ({"name": "github-copilot-developer", "version": "0.0.401"}, None),
        ({"name": "inspector"}, None),
        ({"name": 1}, None),
        ({"name": "copilot-cli", "version": {"no": "text"}}, 30_000),
        (None, None),
        ("claude-code", None),
    ],
)
def test_host_is_known_by_its_name(client: object, most: int | None) -> None:
    """A name that several hosts share says nothing."""
    opened = dump({"params": {"clientInfo": client}})
    assert host_limit(client_info(opened, IN_INITIALIZE)) == most


@pytest.mark.parametrize(
    ("declared", "most"),
    [(120_000, 120_000), (10**9, 500_000), (1000, 50_000), (True, 50_000), ("9", 50_000)],
)
def test_tool_may_declare_more_to_one_host(declared: Any, most: int) -> None:
    """Claude Code shows as much as the tool says, up to its own bound."""
    definition = {"_meta": {MOST_CHARACTERS: declared}}
    assert host_limit({"name": "claude-code"}, definition) == most
    assert host_limit({"name": "claude-ai"}, definition) == 150_000


def test_smallest_limit_is_below_all_others() -> None:
    """A result of so many bytes is shown by every host."""
    assert all(each.most >= SMALLEST for each in HOST_LIMITS) and SMALLEST >= 8192


# --- widgets of MCP Apps: who is told of them, where, and what a host may let them do -----------------------------


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
