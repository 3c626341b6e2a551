"""``mcp-adapter init``, from an empty folder to settings that can be served."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.commands.running import mcp_adapter

SERVERS = {
    "mcpServers": {
        "web": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer s3cret-s3cret"}},
        "off": {"command": "x", "disabled": True},
    }
}


def test_a_file_to_begin_with(tmp_path: Path) -> None:
    """It is fine as it is, has comments, and the next commands are printed."""
    done = mcp_adapter(tmp_path, "init")
    assert (done.returncode, done.stderr) == (0, "")
    assert "config.yaml is written" in done.stdout and "mcp-adapter serve" in done.stdout
    assert "Next: write your server into it" in done.stdout
    assert (tmp_path / "config.yaml").read_text().count("#") > 5
    checked = mcp_adapter(tmp_path, "check")
    assert (checked.returncode, checked.stdout) == (0, "config.yaml is fine: 1 server.\n")


def test_a_file_that_exists_stays(tmp_path: Path) -> None:
    """Unless ``--force`` is given; then it is replaced as a whole."""
    file = tmp_path / "config.yaml"
    file.write_text("mine")
    done = mcp_adapter(tmp_path, "init")
    assert (done.returncode, file.read_text()) == (1, "mine")
    assert "config.yaml exists: use --force" in done.stderr
    assert mcp_adapter(tmp_path, "init", "--force").returncode == 0
    assert "servers:" in file.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["config.yaml"]


def test_the_servers_of_a_client(tmp_path: Path) -> None:
    """Their secrets stay in their file; each variable that takes their place is named, here and in the new file."""
    (tmp_path / "mcp.json").write_text(json.dumps(SERVERS))
    done = mcp_adapter(tmp_path, "init", "--from", "mcp.json", "mine.yaml")
    text = (tmp_path / "mine.yaml").read_text()
    assert done.returncode == 0
    assert "s3cret" not in done.stdout + text
    assert "set WEB_TOKEN before the start" in done.stdout and "#   WEB_TOKEN  (headers of web)" in text
    assert "off is disabled there" in done.stdout
    assert "mcp-adapter check --config mine.yaml" in done.stdout
    missing = mcp_adapter(tmp_path, "check", "--config", "mine.yaml")
    assert missing.returncode == 2 and "WEB_TOKEN is not set" in missing.stderr
    assert mcp_adapter(tmp_path, "check", "--config", "mine.yaml", WEB_TOKEN="x").returncode == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mcp.json", '// mine\n{"servers": {"a": {"url": "http://u//x" /* y */, "type": "http",},},}'),
        ("mcp.json", '\ufeff{"mcpServers": {"a": {"url": "http://u//x"}}}'),
        ("config.toml", '[mcp_servers.a]\nurl = "http://u//x"\n'),
        ("pasted.yaml", "mcpServers: {a: {url: 'http://u//x'}}"),
    ],
)
def test_the_files_of_clients(tmp_path: Path, name: str, text: str) -> None:
    """JSON as editors write it, TOML and YAML."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = mcp_adapter(tmp_path, "init", "--from", name, "-")
    assert done.returncode == 0
    assert yaml.safe_load(done.stdout)["servers"] == [{"id": "a", "upstream": {"url": "http://u//x"}}]


def test_standard_input_and_output(tmp_path: Path) -> None:
    """A pipe works in both directions; sentences for people go to standard error."""
    done = mcp_adapter(tmp_path, "init", "--from", "-", "-", stdin=json.dumps(SERVERS))
    assert [each["id"] for each in yaml.safe_load(done.stdout)["servers"]] == ["web"]
    assert "set WEB_TOKEN before the start" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_schema_for_editors(tmp_path: Path) -> None:
    """It is written beside the file, which names it in its first line and is valid by it."""
    assert mcp_adapter(tmp_path, "init", "mine.yaml", "--schema").returncode == 0
    first, *_ = (tmp_path / "mine.yaml").read_text().splitlines()
    assert first == "# yaml-language-server: $schema=./mine.schema.json"
    schema = json.loads((tmp_path / "mine.schema.json").read_text())
    jsonschema.validate(yaml.safe_load((tmp_path / "mine.yaml").read_text()), schema)
    assert mcp_adapter(tmp_path, "config", "schema").stdout == (tmp_path / "mine.schema.json").read_text()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "cannot be read: No such file"),
        ('/* a\n b */{"mcpServers":\n {"a" "b"}}', "cannot be parsed: line 3: Expecting ':' delimiter"),
        ("[]", "has no servers"),
        ('{"mcpServers": {"a": {"command": "x", "disabled": true}}}', "every server in mcp.json is disabled"),
        ("[" * 100_000, "cannot be parsed"),
    ],
)
def test_a_source_that_cannot_be_used(tmp_path: Path, text: str | None, why: str) -> None:
    """One sentence, status 2, and no file."""
    if text is not None:
        (tmp_path / "mcp.json").write_text(text)
    done = mcp_adapter(tmp_path, "init", "--from", "mcp.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "config.yaml").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """One sentence, and status 1."""
    done = mcp_adapter(tmp_path, "init", "nowhere/config.yaml")
    assert done.returncode == 1 and "nowhere/config.yaml cannot be written: No such file" in done.stderr
