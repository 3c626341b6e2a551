"""Servers in the settings, most over stdio: defaults, paths, secrets, and keys that belong to another transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings.cautions import cautions
from adapter.settings.file.load import SettingsError, load
from adapter.settings.reference_page import masked
from adapter.settings.servers.server import UpstreamSettings


def upstream(place: Path, environ: dict[str, str] | None = None, **keys: Any) -> UpstreamSettings:
    """The upstream of a file in ``place``."""
    file = place / "config.yaml"
    server = {"id": "a", "upstream": {"transport": "stdio", **keys}}
    file.write_text(yaml.safe_dump({"servers": [server]}))
    return load(file, environ=environ or {}).servers[0].upstream


def test_a_command_is_all_that_is_needed(tmp_path: Path) -> None:
    """The defaults keep sessions apart and stop processes that nobody uses."""
    found = upstream(tmp_path, command="npx", args=["-y", "server"])
    assert (found.command, found.args, found.cwd) == ("npx", ["-y", "server"], None)
    assert (found.process, found.max_processes, found.idle_ttl_seconds) == ("per_session", 100, 1800)
    assert (found.start_timeout_seconds, found.stop_grace_seconds) == (60, 5)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """Only a name is left as it is: it is searched in PATH."""
    found = upstream(tmp_path, command="bin/server", cwd="work")
    assert (found.command, found.cwd) == (str(tmp_path / "bin/server"), tmp_path / "work")
    assert upstream(tmp_path, command="/usr/bin/env").command == "/usr/bin/env"


def test_secrets_come_from_the_environment_and_are_not_shown(tmp_path: Path) -> None:
    """The program gets the value of a variable; whoever prints the settings gets none."""
    found = upstream(tmp_path, {"KEY": "s3cret"}, command="x", env={"API_KEY": "${KEY}"})
    assert found.env == {"API_KEY": "s3cret"}
    assert "s3cret" not in repr(found)
    settings = load(tmp_path / "config.yaml", environ={"KEY": "s3cret"})
    assert masked(settings)["servers"][0]["upstream"]["env"] == {"API_KEY": "***"}


def test_an_idle_process_may_live_for_ever(tmp_path: Path) -> None:
    """Null is a value of its own."""
    assert upstream(tmp_path, command="x", idle_ttl_seconds=None).idle_ttl_seconds is None


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "servers[0].upstream.command: is required for the transport stdio"),
        ({"command": " "}, "servers[0].upstream.command: is required for the transport stdio"),
        ({"command": "x", "url": "http://u/"}, "servers[0].upstream.url: is not for stdio servers"),
        ({"command": "x", "static_headers": {"A": "b"}}, "upstream.static_headers: is not for stdio servers"),
        ({"command": "x", "process": "each"}, "process: must be per_session, per_principal or shared"),
        ({"command": "x", "max_processes": 0}, "upstream.max_processes: "),
        (
            {"command": "x", "env": {"A=B": "c"}},
            "upstream.env: 'A=B' is not the name of an environment variable",
        ),
        ({"command": "x", "args": "one two"}, "upstream.args: must be a list"),
        (
            {"transport": "http", "url": "http://u/", "command": "x"},
            "servers[0].upstream.command: is only for stdio servers",
        ),
        (
            {"transport": "http", "url": "http://u/", "process": "shared"},
            "servers[0].upstream.process: is only for stdio servers",
        ),
    ],
)
def test_a_mistake_is_told_at_its_place(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    """A key of another transport would be ignored, so it is refused."""
    with pytest.raises(SettingsError) as refused:
        upstream(tmp_path, **keys)
    assert said in str(refused.value)


def test_one_process_for_everybody_is_warned_of(tmp_path: Path) -> None:
    """Without authentication all callers are one principal."""
    upstream(tmp_path, command="x", process="per_principal")
    (caution,) = cautions(load(tmp_path / "config.yaml", environ={}))
    assert caution.path == "servers[0].upstream.process"
    upstream(tmp_path, command="x")
    assert list(cautions(load(tmp_path / "config.yaml", environ={}))) == []


@pytest.mark.parametrize("name", ["https://files.example.com", "*.example.com"])
def test_hosts_of_files_are_exact_names(tmp_path: Path, name: str) -> None:
    """Others would match nothing, and nobody would know why."""
    file = tmp_path / "config.yaml"
    server = {"id": "a", "upstream": {"url": "http://a.test/mcp"}, "hosts": {"file_url_allow": [name]}}
    file.write_text(yaml.safe_dump({"servers": [server]}))
    with pytest.raises(SettingsError, match=r"not a host: write files\.example\.com"):
        load(file, environ={})
