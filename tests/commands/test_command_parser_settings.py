"""The settings file that a command uses where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import ONE_SERVER, mcp_adapter

OTHER = ONE_SERVER.replace("id: a", "id: other")
HERE = "mcp-adapter: using config.yaml in this folder\n"


def test_the_file_in_this_folder_is_used(tmp_path: Path) -> None:
    """Standard error says so, and standard output is that of a file that is named."""
    (tmp_path / "config.yaml").write_text(ONE_SERVER)
    done = mcp_adapter(tmp_path, "check")
    assert (done.returncode, done.stderr) == (0, HERE)
    named = mcp_adapter(tmp_path, "check", "--config", "config.yaml")
    assert (named.returncode, named.stderr, named.stdout) == (0, "", done.stdout)


def test_the_environment_names_a_file(tmp_path: Path) -> None:
    """It wins over the file in this folder, and the flag over both; an empty variable names nothing."""
    (tmp_path / "config.yaml").write_text(ONE_SERVER)
    (tmp_path / "mine.yaml").write_text(OTHER)
    done = mcp_adapter(tmp_path, "check", "--json", MCP_ADAPTER_CONFIG="mine.yaml")
    assert '"id": "other"' in done.stdout
    assert done.stderr == "mcp-adapter: using mine.yaml, which MCP_ADAPTER_CONFIG names\n"
    done = mcp_adapter(tmp_path, "check", "--json", "--config", "config.yaml", MCP_ADAPTER_CONFIG="mine.yaml")
    assert '"id": "a"' in done.stdout and done.stderr == ""
    assert mcp_adapter(tmp_path, "check", MCP_ADAPTER_CONFIG="").stderr == HERE


def test_a_missing_file_of_the_environment_is_an_error(tmp_path: Path) -> None:
    """Nothing else is used in its place."""
    (tmp_path / "config.yaml").write_text(ONE_SERVER)
    done = mcp_adapter(tmp_path, "check", MCP_ADAPTER_CONFIG="gone.yaml")
    assert done.returncode == 2 and "gone.yaml: there is no such file" in done.stderr


@pytest.mark.parametrize("command", ["check", "serve"])
def test_without_a_file_the_way_to_one_is_shown(tmp_path: Path, command: str) -> None:
    """The sentence names the command that writes a file, and the flag and the variable that name one."""
    done = mcp_adapter(tmp_path, command)
    assert (done.returncode, done.stdout) == (2, "")
    for word in ("mcp-adapter init", "--config", "MCP_ADAPTER_CONFIG", "no server is configured"):
        assert word in done.stderr


def test_the_environment_alone_needs_no_file(tmp_path: Path) -> None:
    """Servers in variables are enough, as in a container."""
    done = mcp_adapter(tmp_path, "check", ADAPTER_SERVERS='[{id: a, upstream: {url: "http://u/mcp"}}]')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The configuration is fine: 1 server.\n"
