"""Servers of MCP clients become entries of ``servers``, and no secret of theirs is shown."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.settings.file.host_servers import ConvertedServers, host_servers
from adapter.settings.file.load import load

SECRET = "ghp_abcdefghijklmnop1234"


def entry(server: dict[str, Any], name: str = "one") -> dict[str, Any]:
    """The upstream that one server becomes."""
    (converted,) = ConvertedServers({name: server}).entries
    return dict(converted["upstream"])


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"mcpServers": {"a": {"command": "x"}}}, "mcpServers"),
        ({"servers": {"a": {"url": "http://u"}}, "inputs": []}, "servers"),
        ({"mcp": {"servers": {"a": {"url": "http://u"}}}}, "mcp.servers"),
        ({"mcp_servers": {"a": {"command": "x"}}}, "mcp_servers"),
        ({"context_servers": {"a": {"command": "x"}}}, "context_servers"),
    ],
)
def test_the_shapes_of_clients(tree: dict[str, Any], key: str) -> None:
    """Claude and Cursor, VS Code in both of its files, Codex and Zed."""
    found = host_servers(tree)
    assert found is not None and found[0] == key and list(found[1]) == ["a"]


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"servers": [{"id": "a", "upstream": {"url": "http://u"}}]},
        {"servers": {"a": {"upstream": {"url": "http://u"}}}},
        {"servers": {"a": "text"}},
        {"mcpServers": {}},
        {"mcpServers": None},
    ],
)
def test_what_is_no_list_of_a_client(tree: dict[str, Any]) -> None:
    """The adapter's own settings and mistakes in them are left to the checks of settings."""
    assert host_servers(tree) is None


def test_a_command_becomes_stdio() -> None:
    """With its arguments, environment and directory; values are text."""
    server = {
        "type": "stdio",
        "command": "npx",
        "args": ["-y", "fs", 8],
        "env": {"A": 1, "B": True},
        "cwd": "/w",
    }
    assert entry(server) == {
        "transport": "stdio",
        "command": "npx",
        "args": ["-y", "fs", "8"],
        "env": {"A": "1", "B": "true"},
        "cwd": "/w",
    }


@pytest.mark.parametrize(
    ("server", "transport"),
    [
        ({"url": "http://u/mcp"}, None),
        ({"type": "http", "url": "http://u/sse"}, None),
        ({"type": "streamable-http", "url": "http://u/mcp"}, None),
        ({"httpUrl": "http://u/sse"}, None),
        ({"serverUrl": "http://u/mcp"}, None),
        ({"type": "sse", "url": "http://u/events"}, "sse"),
        ({"transport": "sse", "url": "http://u/events"}, "sse"),
        ({"url": "http://u/sse"}, "sse"),
        ({"url": "http://u/sse/"}, "sse"),
    ],
)
def test_the_transport_of_an_address(server: dict[str, Any], transport: str | None) -> None:
    """The type decides; without one, only an address that ends with /sse is SSE."""
    assert entry(server).get("transport") == transport


@pytest.mark.parametrize(
    ("server", "where", "becomes"),
    [
        ({"command": "x", "env": {"GITHUB_TOKEN": SECRET}}, ("env", "GITHUB_TOKEN"), "${GITHUB_TOKEN}"),
        ({"command": "x", "env": {"BRAVE_KEY": "abc"}}, ("env", "BRAVE_KEY"), "${BRAVE_KEY}"),
        ({"command": "x", "env": {"X": SECRET}}, ("env", "X"), "${X}"),
        ({"command": "x", "env": {"X": "Zx9" * 10}}, ("env", "X"), "${X}"),
        ({"command": "x", "args": ["--api-key=abc"]}, ("args", 0), "--api-key=${ONE_API_KEY}"),
        ({"command": "x", "args": ["--token", "abc"]}, ("args", 1), "${ONE_TOKEN}"),
        ({"command": "x", "args": ["postgresql://me:pw@h/db"]}, ("args", 0), "${ONE_ARGUMENT}"),
        (
            {"url": "http://u/", "headers": {"Authorization": "Bearer abc"}},
            ("static_headers", "Authorization"),
            "Bearer ${ONE_TOKEN}",
        ),
        (
            {"url": "http://u/", "headers": {"X-Api-Key": "abc"}},
            ("static_headers", "X-Api-Key"),
            "${ONE_X_API_KEY}",
        ),
        ({"url": "http://u/mcp?api_key=abc&v=1"}, ("url",), "http://u/mcp?api_key=${ONE_API_KEY}&v=1"),
        ({"url": "http://me:pw@u/mcp"}, ("static_headers", "Authorization"), "Basic ${ONE_BASIC}"),
    ],
)
def test_secrets_become_variables(server: dict[str, Any], where: tuple[Any, ...], becomes: str) -> None:
    """Wherever they stand; the variable is named, and its value is not in the text."""
    converted = ConvertedServers({"one": server})
    found: Any = converted.entries[0]["upstream"]
    for step in where:
        found = found[step]
    assert found == becomes
    (variable,) = converted.variables
    assert f"${{{variable}}}" in becomes and converted.variables[variable].endswith(" of one")


@pytest.mark.parametrize(
    "server",
    [
        {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/documents"]},
        {
            "command": "x",
            "env": {"LOG_LEVEL": "debug", "MAX_TOKENS": "4096", "DEBUG": "true", "HOME": "/srv/me"},
        },
        {"url": "http://u/mcp?version=1", "headers": {"Accept-Language": "de"}},
        {"command": "x", "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "A_KEY": "${OTHER:-none}"}},
    ],
)
def test_what_is_no_secret_stays(server: dict[str, Any]) -> None:
    """Plain values and variables are as they were."""
    converted = ConvertedServers({"one": server})
    assert converted.variables == {}
    text = converted.as_yaml()
    for value in [*server.get("args", []), *server.get("env", {}).values()]:
        assert value in text


def test_references_of_editors() -> None:
    """What VS Code and Cursor fill in is filled in by the environment here, and a note says so."""
    converted = ConvertedServers(
        {
            "one": {
                "command": "${userHome}/bin/x",
                "args": ["${workspaceFolder}/docs", "${input:api-key}"],
                "env": {"TOKEN": "${env:MY_TOKEN}"},
            }
        }
    )
    assert converted.entries[0]["upstream"] == {
        "transport": "stdio",
        "command": "${HOME}/bin/x",
        "args": ["./docs", "${API_KEY}"],
        "env": {"TOKEN": "${MY_TOKEN}"},
    }
    assert len(converted.notes) == 2 and any("API_KEY" in note for note in converted.notes)


def test_two_servers_with_one_variable() -> None:
    """The same secret is one variable; another one gets the id of its server."""
    tokens = {"a": "tok-1", "b": "tok-1", "c": "tok-2"}
    converted = ConvertedServers(
        {id_: {"command": "x", "env": {"TOKEN": token}} for id_, token in tokens.items()}
    )
    found = [each["upstream"]["env"]["TOKEN"] for each in converted.entries]
    assert found == ["${TOKEN}", "${TOKEN}", "${C_TOKEN}"]


def test_names_become_ids() -> None:
    """Names that differ stay different, and a note says what became of them."""
    converted = ConvertedServers(
        {name: {"url": "http://u/"} for name in ("My Files!", "my-files", "ok", "…")}
    )
    assert [each["id"] for each in converted.entries] == ["My-Files", "my-files-2", "ok", "server"]
    assert len(converted.notes) == 3


def test_what_is_left_out_is_named() -> None:
    """Disabled servers, and keys without a meaning here."""
    converted = ConvertedServers(
        {
            "off": {"command": "x", "disabled": True},
            "not": {"command": "x", "enabled": False},
            "on": {"url": "http://u/", "autoApprove": ["a"], "timeout": 5},
        }
    )
    assert [each["id"] for each in converted.entries] == ["on"]
    assert "on: not taken over: autoApprove, timeout" in converted.notes
    assert sum("is disabled there" in note for note in converted.notes) == 2


def test_the_text_loads(tmp_path: Any) -> None:
    """Servers with addresses can be used as they come out."""
    converted = ConvertedServers(
        {
            "a": {"url": "http://u/mcp", "headers": {"Authorization": "Bearer abc"}},
            "b": {"url": "https://v/mcp?key=abc"},
        }
    )
    file = tmp_path / "config.yaml"
    file.write_text(converted.as_yaml())
    settings = load(file, environ=dict.fromkeys(converted.variables, "value"))
    assert settings.servers[0].upstream.static_headers == {"Authorization": "Bearer value"}
    assert settings.servers[1].upstream.url == "https://v/mcp?key=value"


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)


@given(st.text() | st.sampled_from(["http://[", "http://a@[::1/mcp", "//", "http://u:p@h/?a=b&a=${x}"]))
def test_any_url_becomes_an_entry(url: str) -> None:
    """The checks of settings judge it."""
    assert len(ConvertedServers({"a": {"url": url}}).entries) == 1


@given(
    st.dictionaries(
        WORDS,
        st.fixed_dictionaries(
            {"command": WORDS, "args": st.lists(WORDS), "env": st.dictionaries(WORDS, WORDS)}
        ),
        min_size=1,
    )
)
def test_any_servers_become_yaml(servers: dict[str, Any]) -> None:
    """Whatever their names and values are, the text is read as the entries, and ids are unique and valid."""
    converted = ConvertedServers(servers)
    assert yaml.safe_load(converted.as_yaml()) == {"servers": converted.entries}
    ids = [each["id"].lower() for each in converted.entries]
    assert len(set(ids)) == len(servers) and all(id_[0].isascii() and id_[0].isalnum() for id_ in ids)
