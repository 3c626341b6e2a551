"""Published servers, surveyed by the clients of other SDKs: key by key what they find directly."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browsers import playwright_argv
from tests.e2e.over_stdio import Command, serving
from tests.e2e.processes import adapter, listens, start
from tests.e2e.sdk_survey import Found, Surveyors
from tests.e2e.web_pages import page_served
from tests.ports import free_port

pytestmark = pytest.mark.e2e


@pytest.fixture
def commands(
    node: Path, chromium: Path, server_packages: Path, servers_python: Path, tmp_path: Path
) -> dict[str, Command]:
    """How each server is started: npm's reference servers, and those of PyPI."""
    folder, repository = tmp_path / "folder", tmp_path / "repository"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello\n")
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    scripts, python = server_packages / "@modelcontextprotocol", str(servers_python)
    browser, *options = playwright_argv(node, chromium, tmp_path)
    fetching = ["--ignore-robots-txt", "--allow-private-ips"]
    return {
        "browser": (browser, options),
        "everything": (str(node), [str(scripts / "server-everything/dist/index.js"), "stdio"]),
        "filesystem": (str(node), [str(scripts / "server-filesystem/dist/index.js"), str(folder)]),
        "clock": (python, ["-m", "mcp_server_time", "--local-timezone", "UTC"]),
        "git": (python, ["-m", "mcp_server_git", "--repository", str(repository)]),
        "fetch": (python, ["-m", "mcp_server_fetch", *fetching]),
    }


@pytest.fixture
async def site() -> AsyncIterator[str]:
    """The address of a page."""
    async with page_served("<title>Page</title><h1>Héllo</h1><button>Go</button>") as url:
        yield url


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


LEGACY = ("python_v1", "ts_v1", "ts_v2 legacy")
CLIENTS = (*LEGACY, "ts_v2 auto")
ONE_OF_EACH = ("python_v1", "ts_v2 auto")
"""Clients of servers at which clients differ in nothing that is said to the server."""

HEARS = {"browser": (1, 2), "everything": (1, 12)}
"""The messages that come by themselves: to the SDK 1.x, which can do nothing for a server, and to each other client,
which has roots, samples and a user."""

MODERN = ("clock", "fetch", "git")
"""Servers that speak 2026-07-28."""


PLAIN: list[Call] = [
    ("echo", {"message": "häh"}),
    ("get-sum", {"a": 1, "b": 2}),
    ("get-tiny-image", {}),
    ("none", {}),
]
"""Calls at which the server asks nobody."""


@pytest.fixture
def surveyors(node: Path, mcp1_python: Path, tmp_path: Path) -> Surveyors:
    """The scripts, installed."""
    return Surveyors(node, mcp1_python, tmp_path)


def compare(direct: dict[str, Found], through: dict[str, Found]) -> None:
    """Find no difference, and name the first."""
    for name, found in direct.items():
        for question, answer in found["answers"].items():
            assert untimed(through[name]["answers"][question]) == untimed(answer), (name, question)
        # A server may ask for the roots once or twice, as its timers have it.
        assert untimed(sorted(set(through[name]["heard"]))) == untimed(sorted(set(found["heard"]))), name


@pytest.mark.parametrize("name", sorted(CALLS))
async def test_every_client_finds_the_process_as_it_is(
    name: str, commands: dict[str, Command], surveyors: Surveyors, site: str, tmp_path: Path
) -> None:
    """Lists, contents, results, refusals, and what the server says and asks, for several clients at once, piped."""
    program, arguments = commands[name]
    calls = at_site(CALLS[name], site)
    clients = CLIENTS if name == "everything" else ONE_OF_EACH
    few, many = HEARS.get(name, (0, 0))
    hears = [few, *(many for _ in clients[1:])]
    direct = await surveyors.surveys(clients, {"command": program, "args": arguments}, calls, hears)
    async with serving(tmp_path, (program, arguments), bridge="never") as front:
        through = await surveyors.surveys(clients, {"url": front.url}, calls, hears)
    compare(direct, through)
    assert (direct["ts_v2 auto"]["answers"]["version"] == "2026-07-28") is (name in MODERN)


@pytest.mark.parametrize("process", ["per_principal", "shared"])
async def test_a_shared_process_is_as_it_is(
    process: str, commands: dict[str, Command], surveyors: Surveyors, tmp_path: Path
) -> None:
    """To a client that can do nothing for a server: a shared process hears of nobody's capabilities."""
    program, arguments = everything = commands["everything"]
    direct = await surveyors.survey(LEGACY[0], {"command": program, "args": arguments}, PLAIN, 0)
    async with serving(tmp_path, everything, process=process) as front:
        through = await surveyors.survey(LEGACY[0], {"url": front.url}, PLAIN, 0)
    assert through["answers"] == direct["answers"]


async def test_every_client_finds_everything_over_sse_as_it_is(
    surveyors: Surveyors, node: Path, server_packages: Path, tmp_path: Path
) -> None:
    """The same for the reference server of the TypeScript SDK over SSE."""
    script = server_packages / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    port, calls, hears = free_port(), CALLS["everything"], (1, 12, 12)
    url = f"http://127.0.0.1:{port}/sse"
    async with await start(
        [node, script, "sse"], tmp_path / "everything.log", {"PORT": str(port)}
    ) as running:
        await listens(port, running)
        direct = await surveyors.surveys(LEGACY, {"sse": url}, calls, hears)
        async with adapter(tmp_path, {"transport": "sse", "url": url}) as front:
            through = await surveyors.surveys(LEGACY, {"url": front.url}, calls, hears)
    compare(direct, through)
