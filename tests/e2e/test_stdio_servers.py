"""Servers that nobody here wrote, over stdio: through the adapter they are as they are directly."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.browsers import playwright_argv
from tests.e2e.filing import ADAPTERS, artifact, content_of, python_host, texts, uploaded
from tests.e2e.over_stdio import PATIENCE, Command, serving
from tests.e2e.web_pages import page_served

pytestmark = pytest.mark.e2e


@pytest.fixture
def everything(node: Path, server_packages: Path) -> Command:
    """``@modelcontextprotocol/server-everything``."""
    script = server_packages / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    return str(node), [str(script), "stdio"]


@pytest.fixture
def filesystem(node: Path, server_packages: Path, tmp_path: Path) -> Command:
    """``@modelcontextprotocol/server-filesystem`` with one folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello\n")
    script = server_packages / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
    return str(node), [str(script), str(folder)]


@pytest.fixture
def clock(servers_python: Path) -> Command:
    """``mcp-server-time``."""
    return str(servers_python), ["-m", "mcp_server_time", "--local-timezone", "UTC"]


@pytest.fixture
def git(servers_python: Path, tmp_path: Path) -> Command:
    """``mcp-server-git`` with an empty repository."""
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "repository")], check=True)
    return str(servers_python), ["-m", "mcp_server_git", "--repository", str(tmp_path / "repository")]


@pytest.fixture
async def site() -> AsyncIterator[str]:
    """The address of a page."""

    async with page_served("<title>Page</title><h1>Héllo</h1><button>Go</button>") as url:
        yield url


@pytest.fixture
def fetch(servers_python: Path) -> Command:
    """``mcp-server-fetch``."""
    options = ["--ignore-robots-txt", "--allow-private-ips"]
    return str(servers_python), ["-m", "mcp_server_fetch", *options]


@pytest.fixture
def browser(node: Path, chromium: Path, tmp_path: Path) -> Command:
    """``@playwright/mcp`` with the browser of the system."""
    program, *arguments = playwright_argv(node, chromium, tmp_path)
    return program, arguments


@pytest.fixture
def files() -> Command:
    """The server of the file tests, on the SDK 2.x, which speaks both eras."""
    return sys.executable, ["-c", "from tests.e2e.files_server import server; server.run('stdio')"]


Call = tuple[str, dict[str, Any]]
"""A tool and its arguments."""

PAGE = "data:text/html,<title>T</title><button>Go</button>"

TIMED = re.compile(r"page-[\dTZ-]+\.yml")

SITE = "the site"
"""Stands for the address of ``site`` in arguments."""

CALLS: Mapping[str, list[Call]] = {
    "browser": [
        ("browser_navigate", {"url": PAGE}),
        ("browser_snapshot", {}),
        ("browser_click", {"element": "the button", "target": "button"}),
        ("browser_evaluate", {"function": "() => document.title"}),
        ("browser_console_messages", {}),
        ("browser_click", {}),
        ("browser_close", {}),
    ],
    "everything": [
        ("echo", {"message": "häh"}),
        ("get-sum", {"a": 1, "b": 2}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
        ("get-tiny-image", {}),
        ("get-structured-content", {"location": "Chicago"}),
        ("get-resource-links", {"count": 3}),
        ("get-roots-list", {}),
        ("trigger-long-running-operation", {"duration": 0.2, "steps": 4}),
        ("trigger-sampling-request", {"prompt": "p", "maxTokens": 5}),
        ("trigger-elicitation-request", {}),
        ("get-sum", {"a": "no"}),
        ("none", {}),
    ],
    "filesystem": [("list_allowed_directories", {}), ("list_allowed_directories", {"x": 1})],
    "clock": [
        ("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
        ("convert_time", {"source_timezone": "Nowhere", "time": "12:00", "target_timezone": "UTC"}),
    ],
    "fetch": [
        # Raw: for anything else a library of the server installs npm packages of its own into its environment.
        ("fetch", {"url": SITE, "raw": True}),
        ("fetch", {"url": SITE, "raw": True, "max_length": 20}),
        ("fetch", {"url": "http://127.0.0.1:1/"}),
        ("fetch", {"url": "no address"}),
        ("fetch", {}),
    ],
    "git": [("git_status", {"repo_path": "/nowhere"})],
}


def at_site(calls: list[Call], site: str) -> list[Call]:
    """The calls with the address of the page where SITE stands."""
    return [
        (tool, {key: site if value == SITE else value for key, value in arguments.items()})
        for tool, arguments in calls
    ]


def untimed(found: Any) -> Any:
    """The same without the time, which the browser puts into names of snapshots."""
    return json.loads(TIMED.sub("page.yml", json.dumps(found, default=repr)))


async def test_everything_that_a_server_can_say_arrives(everything: Command, tmp_path: Path) -> None:
    """Progress, log messages, sampling and updates of subscribed resources reach the client that they are for."""
    steps: list[float] = []
    logged: list[Any] = []
    heard = asyncio.Event()

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params)
        heard.set()

    async def sample(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        text = types.TextContent(type="text", text="a sampled answer")
        return types.CreateMessageResult(role="assistant", content=text, model="none")

    async def told(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async with serving(tmp_path, everything) as front, asyncio.timeout(PATIENCE):
        transport = streamable_http_client(front.url)
        async with Client(transport, mode="legacy", sampling_callback=sample, logging_callback=log) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "trigger-sampling-request" in names, names
            long = {"duration": 0.2, "steps": 4}
            await client.call_tool("trigger-long-running-operation", long, progress_callback=told)
            assert steps == [1, 2, 3, 4]
            sampled = await client.call_tool("trigger-sampling-request", {"prompt": "x", "maxTokens": 5})
            assert "a sampled answer" in str(sampled.content)
            await client.call_tool("toggle-simulated-logging", {})
            await heard.wait()


@pytest.mark.parametrize("process", ["per_session", "shared"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_files_go_into_a_process_and_out_of_it(
    files: Command, mode: str, process: str, tmp_path: Path
) -> None:
    """It sees the paths below storage.root, and what it writes there is the client's artifact."""
    sent = tmp_path / "sent.bin"
    sent.write_bytes(b"\0sent" * 999)
    more = {"adapters": list(ADAPTERS)}
    async with (
        serving(tmp_path, files, entry=more, process=process) as front,
        asyncio.timeout(PATIENCE),
        python_host(front.url, mode) as host,
    ):
        (upload,) = await uploaded(host, sent)
        turned = await host.call("turn_round", path=upload["upload_handle"], filename="turned.bin")
        assert content_of(await host.read(artifact(turned)["artifact_uri"])) == sent.read_bytes()[::-1]
        assert str(tmp_path) not in texts(turned)
