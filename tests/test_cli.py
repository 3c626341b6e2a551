"""``mcp-adapter check`` and ``config reference``, run as a user runs them, and the examples in config/."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from adapter.extras import install_line
from adapter.settings.file.load import load
from adapter.settings.reference_page import reference

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "config").glob("*.yaml"))


def mcp_adapter(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.upper().startswith("ADAPTER_")}
    environ |= variables
    command = [sys.executable, "-m", "adapter", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_loads(example: Path) -> None:
    """What config/ shows can be used as it is, without any variable set."""
    assert load(example, environ={}).servers


def test_the_reference_page_is_up_to_date() -> None:
    """docs/settings.md is what ``config reference`` prints; `make reference` writes it anew."""
    printed = mcp_adapter("config", "reference").stdout
    assert printed == reference() == (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


def test_check_shows_effective_settings_without_secrets(tmp_path: Path) -> None:
    """Tokens, passwords, header values, users and queries of URLs are masked; all else is shown."""
    file = tmp_path / "config.yaml"
    file.write_text(
        "core: {auth: {enabled: true, token: s3cret-s3cret-s3cret, signing_secret: s3cret-s3cret-s3cret, "
        "tokens: [{name: ci, token: s3cret-of-the-ci-job}]}}\n"
        "state_persistence: {redis: {host: r, password: s3cret}}\n"
        "telemetry: {headers: {key: s3cret}, endpoint: 'http://u:s3cret@h/'}\n"
        "servers: [{id: a, upstream: {url: 'http://me:s3cret@u:1/mcp?key=s3cret', "
        "static_headers: {Authorization: s3cret}}}]\n"
    )
    overrides = ("--port", "9000", "--set", "sessions.max_active=3")
    done = mcp_adapter("check", "--effective", "--config", file, *overrides)
    assert (done.returncode, done.stderr) == (0, "")
    assert "s3cret" not in done.stdout
    shown = yaml.safe_load(done.stdout)
    assert (shown["core"]["port"], shown["sessions"]["max_active"]) == (9000, 3)
    assert shown["servers"][0]["upstream"]["url"] == "http://***@u:1/mcp?key=***"
    assert shown["servers"][0]["upstream"]["static_headers"] == {"Authorization": "***"}
    assert shown["core"]["auth"]["tokens"] == [{"name": "ci", "token": "***", "sha256": None}]
    assert shown["state_persistence"]["disk"]["local_path"] == "data/state/adapter.sqlite3"


def test_check_warns_where_strangers_would_share_a_session(tmp_path: Path) -> None:
    """Without tokens everybody is one principal; with them nothing is said."""
    file = tmp_path / "config.yaml"
    shared = "sessions: {upstream: principal, missing_id: principal}\n"
    servers = "servers: [{id: a, upstream: {url: 'http://u:1/mcp'}}]\n"
    file.write_text(shared + servers)
    done = mcp_adapter("check", "--config", file)
    assert done.returncode == 0
    told = [line.split(":")[:2] for line in done.stderr.splitlines()]
    assert told == [["warning", " sessions.upstream"], ["warning", " sessions.missing_id"]]
    file.write_text(shared + servers + "core: {auth: {enabled: true, token: s3cret-s3cret-s3cret}}\n")
    assert mcp_adapter("check", "--config", file).stderr == ""


@pytest.mark.parametrize("command", ["check", "serve"])
def test_bad_settings_are_sentences(tmp_path: Path, command: str) -> None:
    """Exit status 2 and what is wrong on stderr, without a traceback."""
    file = tmp_path / "config.yaml"
    file.write_text("servers: [{id: a, upstream: {url: 'gopher://u'}}]")
    done = mcp_adapter(command, "--config", file, "--log-level", "loud")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "mcp-adapter: the settings cannot be used:",
        "core.log_level (from the command line): must be debug, info, warning, error or critical",
        "servers[0].upstream.url: must be an http:// or https:// URL with a host",
    ]


WITHOUT_THE_EXTRA = """
import sys
sys.modules["opentelemetry"] = None
"""


@pytest.mark.parametrize("command", ["check", "serve"])
@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_telemetry_without_its_extra_is_a_sentence(tmp_path: Path, command: str, transport: str) -> None:
    """Exit status 2 and what to install, before anything listens."""
    file = tmp_path / "config.yaml"
    file.write_text("servers: [{id: a, upstream: {url: 'http://127.0.0.1:9/mcp'}}]\n")
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_THE_EXTRA)
    said: tuple[str, ...] = ("--set", "telemetry.enabled=true", "--set", f"telemetry.transport={transport}")
    said += ("--set", f"storage.root={tmp_path / 'data'}")
    done = mcp_adapter(command, "--config", file, *said, "--port", "0", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "mcp-adapter: the settings cannot be used:",
        "telemetry.enabled: needs the extra telemetry (opentelemetry.sdk is not installed): "
        f"{install_line('telemetry')}",
    ]


def test_a_store_of_files_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    """Exit status 1, with the reason and the setting to look at in the log, without a traceback."""
    file, root = tmp_path / "config.yaml", tmp_path / "data"
    root.write_text("no directory")
    file.write_text(
        f"storage: {{root: {root}}}\n"
        "state_persistence: {type: memory}\n"
        "servers: [{id: a, upstream: {url: 'http://127.0.0.1:9/mcp'}, adapters: "
        "[{type: upload_consumer, tools: [read], file_path_argument: path}]}]\n"
    )
    done = mcp_adapter("serve", "--config", file, "--port", "0")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    line = next(line for line in done.stderr.splitlines() if "the store of files cannot be used" in line)
    assert "storage.root cannot be created or opened" in line and '"setting"' in line


@pytest.mark.parametrize("flag", ["core.port", "=1"])
def test_a_flag_without_key_or_value(flag: str) -> None:
    """``--set`` wants both."""
    done = mcp_adapter("check", "--set", flag)
    assert (done.returncode, "write KEY=VALUE" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_without_a_command_the_help_is_shown() -> None:
    """On standard error, with the status of wrong arguments."""
    done = mcp_adapter()
    assert (done.returncode, done.stdout) == (2, "")
    assert "New here? mcp-adapter demo" in done.stderr


def test_a_reader_that_leaves_is_no_failure() -> None:
    """``mcp-adapter config schema | head -1``: nobody reads a traceback."""
    command = [sys.executable, "-m", "adapter", "config", "schema"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 0)


async def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path: Path) -> None:
    """With the status that shells know, here while ``check --connect`` waits for a server that says nothing."""
    asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set_result(None)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        file = tmp_path / "config.yaml"
        file.write_text(f"servers: [{{id: a, upstream: {{url: 'http://127.0.0.1:{port}/mcp'}}}}]\n")
        command = (sys.executable, "-m", "adapter", "check", "--connect", "--config", str(file))
        # A shell that runs the tests in the background lets them ignore the signal.
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        async with asyncio.timeout(60):
            await asked
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")
