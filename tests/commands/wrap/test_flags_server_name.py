"""The servers of a command line, and their names, as a person would call them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.commands.wrap.flags import name_of_command, name_of_url, names_of, split_servers

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


def test_servers_have_different_names() -> None:
    """Those that would have one are numbered; none has that of the mount."""
    parts = [["npx", "-y", "all"], ["all"], ["http://all.example/mcp"], ["git"]]
    assert names_of(parts, "All") == ["all-2", "all-3", "all-4", "git"]


LINES = {
    "-- npx -y a -- npx -y b": [["npx", "-y", "a"], ["npx", "-y", "b"]],
    "npx -y a -- https://b.example/mcp --": [["npx", "-y", "a"], ["https://b.example/mcp", "--"]],
    "https://b.example/mcp --port 9 -- npx a": [["https://b.example/mcp", "--port", "9"], ["npx", "a"]],
    "-- npm exec -- a --fast -- uv run -- b": [
        ["npm", "exec", "--", "a", "--fast"],
        ["uv", "run", "--", "b"],
    ],
    "npm run mcp -- --stdio -- b": [["npm", "run", "mcp", "--", "--stdio"], ["b"]],
    "'ssh host -- run' -- b": [["ssh", "host", "--", "run"], ["b"]],
    "-- -- a": [["a"]],
    "": [],
}


@pytest.mark.parametrize("line", LINES)
def test_two_dashes_stand_between_servers(line: str) -> None:
    """Those of a program stay its own: behind one that only runs others, before flags, at the end, and in quotes."""
    assert split_servers(shlex.split(line)) == LINES[line]


def test_a_program_whose_path_has_spaces_is_one_word(tmp_path: Path) -> None:
    """Words in quotes are a command only where no program has this name."""
    program = tmp_path / "my server"
    program.write_text("")
    assert split_servers([str(program)]) == [[str(tmp_path / "my"), "server"]]
    program.chmod(0o755)
    assert split_servers([str(program)]) == [[str(program)]]


WORDS = st.lists(st.from_regex(r"[a-z]{1,5}=?[a-z]{1,5}", fullmatch=True), max_size=3)


@given(st.lists(WORDS, min_size=1, max_size=4))
def test_servers_are_found_as_they_were_joined(commands: list[list[str]]) -> None:
    """In their order, with all their words."""
    servers = [["a-server", *words] for words in commands]
    line = [word for words in servers for word in ("--", *words)]
    assert split_servers(line) == servers
