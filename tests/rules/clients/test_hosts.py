"""Hosts by the names of their clients."""

from __future__ import annotations

import orjson
import pytest

from adapter.rules.clients.hosts import (
    IN_INITIALIZE,
    IN_REQUEST,
    LONGEST_NAME,
    Path,
    attaches_files,
    client_info,
)


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
