"""A host that is a program of others: the command line of the MCP Inspector.

It reaches a mount of one server, a merged mount, and a mount with a sign-in through ``mcp-adapter connect``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.filing import ADAPTERS
from tests.e2e.members import members, merged
from tests.e2e.oauth.authorization_server import authorization_server
from tests.e2e.oauth.front import browser_of, protected_adapter
from tests.e2e.processes import Server, adapter
from tests.e2e.provision import ROOT, packages

pytestmark = [pytest.mark.e2e, pytest.mark.timed]

UPSTREAM, FILES = "tests.e2e.upstream_server", "tests.e2e.files_server"
WHY = {"legacy": "The upstream server cannot be reached: it refused the connection", "modern": "HTTP 502"}
"""What it prints in each era of a server that is away: of what answers its first modern request it tells the status."""

ERAS = tuple(WHY)

TIMEOUT = 60.0
"""Seconds that one program may take, with what it starts."""


async def printed(place: Path, *argv: str | Path, **variables: str) -> str:
    """What a program prints to its end, as a user whose home is ``place``."""
    ran = await asyncio.to_thread(
        subprocess.run,
        argv,
        cwd=place,
        env={**os.environ, "HOME": str(place), "XDG_DATA_HOME": "", "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT,
        text=True,
    )
    return str(ran.stdout)


@dataclass(frozen=True)
class Inspector:
    """The Inspector of ``node``, used in ``place`` for what is at an address or behind a command."""

    node: Path
    place: Path
    era: str
    target: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)

    async def tools(self) -> list[str]:
        """The names of the tools."""
        listed = await self._asked("tools/list")
        assert '"tools"' in listed, listed
        return [tool["name"] for tool in json.loads(listed)["tools"]]

    async def call(self, tool: str, **arguments: str) -> str:
        """What it prints of a call."""
        words = [word for name, value in arguments.items() for word in ("--tool-arg", f"{name}={value}")]
        return await self._asked("tools/call", "--tool-name", tool, *words)

    async def _asked(self, method: str, *words: str) -> str:
        script = packages() / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        # A command gets few variables of this process, so it is told them.
        told = [word for name, value in self.variables.items() for word in ("-e", f"{name}={value}")]
        argv = ["--cli", *self.target, *told, "--method", method, *words, "--protocol-era", self.era]
        return await printed(self.place, self.node, script, *argv)


@pytest.mark.parametrize("era", ERAS)
async def test_the_inspector_calls_and_reads_why_it_cannot(era: str, node: Path, tmp_path: Path) -> None:
    """It lists and calls; with the upstream away it ends in time, with the sentence or the status."""
    async with Server(UPSTREAM, tmp_path) as upstream, adapter(tmp_path, upstream.url) as front:
        inspector = Inspector(node, tmp_path, era, [front.url, "--transport", "http"])
        assert await inspector.tools() == ["echo", "wait"]
        assert "you said hi" in await inspector.call("echo", text="hi")
        await upstream.kill()
        assert WHY[era] in await inspector.call("echo", text="hi")
        await upstream.start()
        assert "you said hi" in await inspector.call("echo", text="hi")


@pytest.mark.parametrize("era", ERAS)
async def test_the_inspector_uses_a_merged_mount(era: str, node: Path, tmp_path: Path) -> None:
    """The tools of both servers are listed, and a call reaches the one that its name begins with."""
    async with members(tmp_path, a=["say"], b=["say"]) as servers, merged(tmp_path, servers, {}) as front:
        inspector = Inspector(node, tmp_path, era, [f"{front.base}/mcp/all", "--transport", "http"])
        assert await inspector.tools() == ["a_say", "b_say"]
        assert "b ran say hi" in await inspector.call("b_say", text="hi")


@pytest.mark.parametrize("era", ERAS)
async def test_the_inspector_uses_a_mount_with_a_sign_in_over_stdio(
    era: str, oauth_programs: None, node: Path, tmp_path: Path
) -> None:
    """A person signs in once, a file of the folder goes up by its path, no other does, and one comes back."""
    (tmp_path / "Shared").mkdir()
    (tmp_path / "Shared" / "a.txt").write_text("hi")
    (tmp_path / "key").write_text("secret")
    async with (
        authorization_server(tmp_path) as issuer,
        Server(FILES, tmp_path) as upstream,
        protected_adapter(tmp_path, upstream.url, issuer, server={"adapters": ADAPTERS}) as front,
    ):
        flags = ("--folder", "Shared", "--save-to", "saved")
        target = [sys.executable, "-m", "adapter", "connect", front.url, *flags]
        variables = {"BROWSER": browser_of(tmp_path, "ada"), "PYTHONPATH": str(ROOT)}
        inspector = Inspector(node, tmp_path, era, target, variables)
        assert " 2 a.txt" in await inspector.call("digest", path="Shared/a.txt")
        assert "go up only from" in await inspector.call("digest", path=str(tmp_path / "key"))
        assert "Saved on this machine" in await inspector.call("draw", seed="1", size="10", filename="a.bin")
        assert (tmp_path / "saved" / "a.bin").stat().st_size == 10
        assert (tmp_path / "opened").read_text() == "x"
