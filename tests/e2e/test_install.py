"""``mcp-adapter install``: a client's file is changed when its user agrees, and never without a way back."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.commands.running import mcp_adapter

pytestmark = pytest.mark.e2e

URL = "http://127.0.0.1:8932/mcp/demo"
SETTINGS = """
core: {port: 8932, auth: {enabled: true, token: "${A_TOKEN}"}}
servers:
  - {id: one, upstream: {url: "http://127.0.0.1:9/mcp"}}
  - {id: two, mount_path: /second, upstream: {url: "http://127.0.0.1:9/mcp"}}
"""


def install(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as a user whose home, working directory and settings are ``home``."""
    variables = {"HOME": str(home), "XDG_CONFIG_HOME": "", "A_TOKEN": "a-token-of-sixteen-letters"}
    return mcp_adapter(home, "install", *arguments, **variables)


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "XDG_CONFIG_HOME"}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(Path.cwd()), "A_TOKEN": "a-token-of-sixteen-letters"}


@pytest.mark.parametrize(
    ("client", "file"),
    [
        ("claude-code", ".mcp.json"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("codex", ".codex/config.toml"),
        ("goose", ".config/goose/config.yaml"),
        ("gemini-cli", ".gemini/settings.json"),
    ],
)
def test_a_client_that_has_no_file_gets_one(client: str, file: str, tmp_path: Path) -> None:
    """It holds the server; a second time there is nothing to do."""
    ran = install(tmp_path, client, "--url", URL, "--yes")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    text = (tmp_path / file).read_text()
    assert URL in text and "knows demo now" in ran.stdout
    again = install(tmp_path, client, "--url", URL, "--yes")
    assert again.returncode == 0 and "up to date" in again.stdout
    assert (tmp_path / file).read_text() == text


def test_an_entry_is_taken_out_again(tmp_path: Path) -> None:
    """By its name, or all servers of the settings; everything else is as it was, to the byte."""
    before = b'{\r\n  // mine\r\n  "servers": {\r\n    "old": {"n": 1e999},\r\n  },\r\n}\r\n'
    file = tmp_path / "mcp.json"
    file.write_bytes(before)
    there = ("vscode", "--file", str(file), "--yes")
    assert install(tmp_path, *there, "--url", URL).returncode == 0
    assert b"// mine" in file.read_bytes() and URL.encode() in file.read_bytes()
    removed = install(tmp_path, *there, "--remove", "--name", "demo")
    assert removed.returncode == 0 and "no longer knows demo" in removed.stdout
    assert file.read_bytes() == before
    again = install(tmp_path, *there, "--remove", "--name", "demo")
    assert again.returncode == 0 and "has no such entry" in again.stdout
    assert len(list(tmp_path.glob("mcp.json.*.bak"))) == 2


def test_the_servers_of_the_settings_with_their_token(tmp_path: Path) -> None:
    """Each one, or one of them; the file names the variable of the token and never the token."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(SETTINGS)
    ran = install(tmp_path, "codex", "--config", str(settings), "--yes")
    assert ran.returncode == 0, ran.stderr
    assert tomllib.loads((tmp_path / ".codex/config.toml").read_text())["mcp_servers"] == {
        "one": {"url": "http://127.0.0.1:8932/mcp/one", "bearer_token_env_var": "MCP_ADAPTER_TOKEN"},
        "two": {"url": "http://127.0.0.1:8932/second", "bearer_token_env_var": "MCP_ADAPTER_TOKEN"},
    }
    one = ("--config", str(settings), "--server", "two", "--token-variable", "MINE", "--yes")
    assert install(tmp_path, "goose", *one).returncode == 0
    ((name, entry),) = yaml.safe_load((tmp_path / ".config/goose/config.yaml").read_text())[
        "extensions"
    ].items()
    assert (name, entry["headers"]) == ("two", {"Authorization": "Bearer ${MINE}"})
    desktop = install(tmp_path, "claude-desktop", *one)
    assert "Put the adapter's token in place of REPLACE-WITH-MINE" in desktop.stdout
    unknown = install(tmp_path, "goose", "--config", str(settings), "--server", "three")
    assert unknown.returncode == 2 and "no server has the id three; there are one, two" in unknown.stderr


def test_where_people_sign_in_no_token_is_written(tmp_path: Path) -> None:
    """Clients find out where by themselves; a variable that is named holds an access token."""
    auth = {"oauth": {"issuers": [{"issuer": "http://localhost:9"}]}}
    settings = {**yaml.safe_load(SETTINGS), "core": {"public_base_url": "http://localhost", "auth": auth}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    for server, arguments in (("one", ()), ("two", ("--token-variable", "MINE"))):
        ran = install(tmp_path, "codex", "--config", "config.yaml", "--server", server, *arguments, "--yes")
        assert ran.returncode == 0, ran.stderr
    assert tomllib.loads((tmp_path / ".codex/config.toml").read_text())["mcp_servers"] == {
        "one": {"url": "http://localhost/mcp/one"},
        "two": {"url": "http://localhost/second", "bearer_token_env_var": "MINE"},
    }


def test_nothing_is_written_unasked(tmp_path: Path) -> None:
    """Neither with ``--print``, nor where nobody can be asked, nor over a file of another layout."""
    shown = install(tmp_path, "vscode", "--url", URL, "--print")
    assert shown.returncode == 0 and f'+      "url": "{URL}"' in shown.stdout
    silent = install(tmp_path, "vscode", "--url", URL)
    assert silent.returncode == 1 and "pass --yes" in silent.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "mcp.json").write_text('{"servers": []}')
    refused = install(tmp_path, "vscode", "--url", URL, "--yes")
    assert refused.returncode == 1 and "servers holds no servers in it. Add this yourself" in refused.stderr
    assert json.loads(refused.stdout) == {"servers": {"demo": {"type": "http", "url": URL}}}
    assert (tmp_path / ".vscode" / "mcp.json").read_text() == '{"servers": []}'


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked(answer: str, tmp_path: Path) -> None:
    """The change is shown first, and written if they agree."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "adapter", "install", "gemini-cli", "--url", URL]
    with subprocess.Popen(
        argv, cwd=tmp_path, env=environment(tmp_path), stdin=theirs, stdout=subprocess.PIPE, text=True
    ) as process:
        os.write(ours, answer.encode() + b"\n")
        output, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert f'+      "httpUrl": "{URL}"' in output
    assert output.index("httpUrl") < output.index("[y/N]")
    assert (process.returncode == 0) == (tmp_path / ".gemini/settings.json").exists() == (answer == "y")


def test_what_a_client_writes_meanwhile_stays(tmp_path: Path) -> None:
    """It may do so while a person reads the question; nothing is written over it."""
    file = tmp_path / ".mcp.json"
    file.write_text('{"mine": 1}')
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "adapter", "install", "claude-code", "--url", URL]
    with subprocess.Popen(
        argv,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        shown = b""
        while b"[y/N]" not in shown:
            shown += (letter := process.stdout.read(1))
            assert letter, shown
        file.write_text('{"mine": 2}')
        os.write(ours, b"y\n")
        _, said = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1 and b"has just been changed" in said
    assert file.read_text() == '{"mine": 2}'


def test_what_is_no_client_s_file_is_not_read(tmp_path: Path) -> None:
    """A pipe would keep the command for ever, and an endless file take all memory."""
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(1 << 40)
    for name, why in (("pipe", "no regular file"), ("large", "more than 67108864 bytes")):
        refused = install(tmp_path, "claude-code", "--file", name, "--url", URL, "--yes")
        assert refused.returncode == 1 and why in refused.stderr


def test_a_client_is_told_to_start_connect(tmp_path: Path) -> None:
    """By the whole path of the program, as the client has another working folder, with whole paths of folders."""
    (tmp_path / "Shared").mkdir()
    flags = ("--stdio", "--folder", "Shared", "--folder", "/usr", "--deny", "*.key", "--save-to", "saved")
    ran = install(tmp_path, "claude-desktop", "--url", URL, *flags, "--yes")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    entry = json.loads((tmp_path / ".config/Claude/claude_desktop_config.json").read_text())["mcpServers"][
        "demo"
    ]
    assert Path(entry["command"]).is_absolute()
    at = entry["args"].index("connect")
    assert entry["args"][at:] == [
        *("connect", URL, "--folder", str(tmp_path / "Shared"), "--folder", "/usr"),
        *("--deny", "*.key", "--save-to", str(tmp_path / "saved")),
    ]


def test_a_client_that_opens_no_url_starts_connect(tmp_path: Path) -> None:
    """Unasked, as it needs no other program, and with the token where it looks for one."""
    ran = install(
        tmp_path, "claude-desktop", "--url", URL, "--token-variable", "T", "--save-to", "saved", "--yes"
    )
    assert ran.returncode == 0, ran.stderr
    file = tmp_path / ".config/Claude/claude_desktop_config.json"
    entry = json.loads(file.read_text())["mcpServers"]["demo"]
    assert entry["args"][-4:] == ["connect", URL, "--save-to", str(tmp_path / "saved")]
    assert (
        entry["env"] == {"MCP_ADAPTER_TOKEN": "REPLACE-WITH-T"} and "REPLACE-WITH-T in the file" in ran.stdout
    )


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--url", URL, "--folder", "/usr"), "--folder and --save-to belong to --stdio"),
        (("--url", URL, "--stdio", "--folder", "x"), "--folder x is no folder"),
        (("--url", URL, "--stdio", "--deny", "*.key"), "--deny belongs to --folder"),
        (("--url", "mcp.example.com/mcp/demo"), "begins with https:// or http://"),
    ],
)
def test_what_would_not_start_is_not_written(flags: tuple[str, ...], says: str, tmp_path: Path) -> None:
    """The client would only say that the server failed, somewhere in its log."""
    ran = install(tmp_path, "cursor", *flags, "--yes")
    assert ran.returncode == 1 and says in ran.stderr and not (tmp_path / ".cursor").exists()
