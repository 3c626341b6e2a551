"""Names of servers, as a person would call them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.commands.wrap.flags import name_of_command, name_of_url

COMMANDS = {
    "npx -y @playwright/mcp --headless": "playwright",
    "npx @playwright/mcp@latest": "playwright",
    "npx --yes --package @scope/tool-mcp@1.2 tool-mcp": "tool",
    "npx -y @modelcontextprotocol/server-filesystem /srv/files": "filesystem",
    "node /x/node_modules/@modelcontextprotocol/server-everything/dist/index.js stdio": "everything",
    "uvx mcp-server-git==1.0 --repository .": "git",
    "uvx --from git+https://example.com/a/weather-mcp.git weather-mcp": "weather",
    "uv run --with mcp[cli] --directory /srv/notes server.py": "server",
    "uv run mcp-server-time": "time",
    "python -m mcp_server_time --local-timezone UTC": "time",
    "python3.12 ./my_tools.py": "my-tools",
    "python -c pass": "python",
    "docker run -i --rm -e TOKEN mcp/github:latest": "github",
    "env KEY=1 npx chart-mcp-server": "chart",
    "./server": "server",
    "npx": "npx",
    "-": "server",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_name_of_the_program_that_it_runs(command: str) -> None:
    """Runners, their flags, scopes, versions and endings are not part of it."""
    assert name_of_command(command.split()) == COMMANDS[command]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://mcp.example.com/mcp", "example"),
        ("https://example.com", "example"),
        ("http://localhost:8931/mcp", "localhost"),
        ("http://127.0.0.1:8931/mcp", "127-0-0-1"),
        ("http://[::1]:8931/mcp", "1"),
        ("http://[", "server"),
    ],
)
def test_a_url_has_the_name_of_its_host(url: str, name: str) -> None:
    """Without the words that hosts of this kind have in common."""
    assert name_of_url(url) == name


@given(st.lists(st.text(max_size=30), max_size=5))
def test_every_command_has_a_name_that_an_id_may_be(words: list[str]) -> None:
    """It begins with a letter or digit, and has nothing that a URL would have to escape."""
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}", name_of_command(words))
