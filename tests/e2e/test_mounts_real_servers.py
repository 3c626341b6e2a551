"""Many servers that nobody here wrote, and names that hosts do not accept, at one address."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from adapter.rules.mounts.names import accepted
from tests.e2e.members import members, merged
from tests.e2e.processes import Adapter
from tests.e2e.talk import Command, connected

pytestmark = [pytest.mark.e2e, pytest.mark.timed]

EACH = 4
"""Processes of each server, with arguments of their own."""

CLIENTS = ("python_v2 legacy", "ts_v2 legacy", "python_v2 2026-07-28", "ts_v2 2026-07-28")
LONG = ("x" * 200, "files.read all", "é" * 100 + " .")


@pytest.fixture
def programs(node: Path, servers_python: Path, server_packages: Path, tmp_path: Path) -> dict[str, list[str]]:
    """The commands of twenty servers of five kinds, by their ids."""
    found: dict[str, list[str]] = {}
    scripts = server_packages / "@modelcontextprotocol"
    python = str(servers_python)
    for number in range(EACH):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
        found |= {
            f"everything{number}": [str(node), str(scripts / "server-everything/dist/index.js"), "stdio"],
            f"files{number}": [str(node), str(scripts / "server-filesystem/dist/index.js"), str(folder)],
            f"time{number}": [python, "-m", "mcp_server_time", "--local-timezone", f"Etc/GMT+{number}"],
            f"git{number}": [python, "-m", "mcp_server_git", "--repository", str(folder)],
            f"fetch{number}": [python, "-m", "mcp_server_fetch", "--user-agent", f"client{number}"],
        }
    return found


def calls(place: Path, number: int) -> dict[str, tuple[dict[str, Any], str]]:
    """One call of each kind of server that has that number: its arguments, and what its text has."""
    folder = str(place / f"folder{number}")
    return {
        f"everything{number}_echo": ({"message": f"to {number}"}, f"to {number}"),
        f"files{number}_list_allowed_directories": ({}, folder),
        f"time{number}_get_current_time": ({"timezone": f"Etc/GMT+{number}"}, f"Etc/GMT+{number}"),
        f"git{number}_git_status": ({"repo_path": folder}, "Repository status"),
        f"fetch{number}_fetch": ({"url": "http://127.0.0.1:9/"}, "127.0.0.1"),
    }


@pytest.mark.parametrize("name", CLIENTS)
async def test_twenty_real_servers_are_one_server_for_official_clients(
    name: str, command: Command, programs: dict[str, list[str]], tmp_path: Path
) -> None:
    """All their tools are listed, and a call of one of each reaches that server and no other of its kind."""
    servers = [
        {
            "id": server,
            "mount_path": f"/mcp/{server}",
            "upstream": {"transport": "stdio", "command": argv[0], "args": argv[1:]},
        }
        for server, argv in programs.items()
    ]
    mount = {"id": "all", "servers": ["*"], "list_timeout_seconds": 120}
    settings = {"storage": {"root": str(tmp_path / "data")}, "servers": servers, "mounts": [mount]}
    async with (
        Adapter(tmp_path, settings) as front,
        connected(command, name, f"{front.base}/mcp/all", tmp_path, within=240) as client,
    ):
        listed = (await client.ask("list", timeout=240))["text"].split()
        for number in range(EACH):
            for tool, (arguments, said) in calls(tmp_path, number).items():
                assert tool in listed
                called = await client.ask("call", timeout=120, tool=tool, arguments=arguments)
                assert said in called["text"], (tool, called)


@pytest.mark.parametrize("workers", [1, 2])
async def test_names_that_hosts_refuse_are_called_by_stable_names(
    workers: int, command: Command, tmp_path: Path
) -> None:
    """Names of 200 characters, with dots, spaces and other letters: each client calls them by the same short ones."""
    shown = {accepted(f"a_{name}"): name for name in LONG}
    async with (
        members(tmp_path, a=LONG) as servers,
        merged(tmp_path, servers, {"list_timeout_seconds": 60}, core={"workers": workers}) as front,
    ):
        for name in CLIENTS:
            async with connected(command, name, f"{front.base}/mcp/all", tmp_path) as client:
                assert (await client.ask("list"))["text"].split() == [*shown], name
                for short, long in shown.items():
                    called = await client.ask("call", tool=short, arguments={"text": "hi"})
                    assert called["text"] == f"a ran {long} hi", name
