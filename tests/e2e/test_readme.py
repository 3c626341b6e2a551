"""The README, done as a new user does it: its settings in an empty folder, its commands typed as they stand there."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.file_form import choose, form_page
from tests.e2e.filing import artifact, content_of, python_host, said
from tests.e2e.pasted import Machine, blocks, machine
from tests.e2e.provision import ROOT
from tests.ports import free_port

pytestmark = pytest.mark.e2e

README = ROOT / "README.md"

COMMAND_TIMEOUT = 60
"""Seconds one command of the README may take: npx and a browser start."""


@dataclass(frozen=True)
class Reader:
    """Somebody who pastes what the README shows; ``port`` is theirs where it says 8932."""

    machine: Machine
    port: int

    async def types(self, command: str) -> str:
        """The output of a command of the README, which must succeed."""
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            command.replace("8932", str(self.port)),
            cwd=self.machine.folder,
            env={**os.environ, **self.machine.variables, "ADAPTER_CORE__PORT": str(self.port)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(COMMAND_TIMEOUT):
            printed, _ = await process.communicate()
        assert process.returncode == 0, f"{command}\n{printed.decode()}"
        return printed.decode()


def commands(beginning: str) -> list[str]:
    """The commands of the README's shell blocks that begin so, without their comments."""
    lines = [line for block in blocks(README, "sh") for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    found = [re.sub(r"\s{2,}#.*", "", line) for line in lines if line.startswith(beginning)]
    assert found, f"the README has no command {beginning}"
    return found


@pytest.fixture
def reader(node: Path, chromium: Path, tmp_path: Path) -> Reader:
    """A reader who has pasted all of the README's YAML into one file, in its order."""
    pasted = machine(tmp_path, node, chromium)
    (pasted.folder / "config.yaml").write_text("".join(blocks(README, "yaml")))
    return Reader(pasted, free_port())


@pytest.fixture
async def mount(reader: Reader) -> AsyncIterator[str]:
    """The address of the browser, as the README says it, while the adapter runs."""
    (shown,) = set(re.findall(r"http://127\.0\.0\.1:8932/mcp/\w+", README.read_text()))
    async with reader.machine.serving(reader.port):
        yield shown.replace("8932", str(reader.port))


@pytest.fixture
async def form() -> AsyncIterator[str]:
    """The address of a page with a form for files."""
    async with form_page() as address:
        yield address


async def test_the_settings_are_fine(reader: Reader) -> None:
    """The README's own check finds nothing wrong with the README's settings."""
    (check,) = commands("mcp-adapter check")
    assert "config.yaml is fine: 1 server." in await reader.types(check)


async def test_files_go_through_the_browser_as_pasted(reader: Reader, mount: str, form: str) -> None:
    """A file goes into a page by its handle, and a screenshot comes back as an artifact."""
    assert "`mcp-adapter upload FILE --url URL`" in README.read_text()
    (reader.machine.folder / "letter.txt").write_text("Dear reader")
    async with python_host(mount) as host:
        url = (await host.call("browser_get_upload_url"))["structuredContent"]["upload_url"]
        handle = (await reader.types(f"mcp-adapter upload letter.txt --url '{url}' 2>/dev/null")).strip()
        said(await host.call("browser_navigate", url=form))
        (seen,) = await choose(host, handle)
        assert (seen["name"], seen["size"]) == ("letter.txt", len("Dear reader"))
        shot = artifact(await host.call("browser_take_screenshot"))
        assert content_of(await host.read(shot["artifact_uri"])).startswith(b"\x89PNG\r\n")


async def test_one_request_calls_a_tool(reader: Reader, mount: str, form: str) -> None:
    """The README's curl command opens a page."""
    (curl,) = commands("curl")
    assert "Page Title: Form" in await reader.types(curl.replace("https://example.com", form))


async def test_clients_find_the_server(reader: Reader, mount: str) -> None:
    """The Inspector lists the tools, the Python snippet too, and Cursor's file gets the entry of the JSON block."""
    (inspector,) = commands("npx -y @modelcontextprotocol/inspector")
    # Without the tag npx takes the installed one, whose version the tests have fixed.
    assert "browser_navigate" in await reader.types(inspector.replace("@latest", ""))
    (snippet,) = blocks(README, "python")
    body = snippet.replace("async with", "async def main():\n  async with").replace(
        "    print", "      print"
    )
    script = reader.machine.folder / "client.py"
    script.write_text(f"import asyncio\n{body}\nasyncio.run(main())\n".replace("8932", str(reader.port)))
    assert "browser_navigate" in await reader.types("python client.py")
    (install,) = commands("mcp-adapter install cursor")
    await reader.types(f"{install} --yes")
    (entry,) = blocks(README, "json")
    shown = json.loads(entry.replace("8932", str(reader.port)))["mcpServers"]["browser"]
    written = json.loads((reader.machine.home / ".cursor" / "mcp.json").read_text())
    assert written["mcpServers"]["browser"]["url"] == shown["url"]
