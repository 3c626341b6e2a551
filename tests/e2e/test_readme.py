"""The README, done as a new user does it: its settings in an empty folder, its commands typed as they stand there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doc_blocks import Block, blocks_of
from tests.e2e.file_form import choose, form
from tests.e2e.filing import artifact, content_of, python_host, said
from tests.e2e.pasted import SHOWN_PORT, Beginner, lines, newcomer_with_npx
from tests.e2e.provision import ROOT

pytestmark = pytest.mark.e2e

__all__ = ["form"]

README = ROOT / "README.md"


def commands(beginning: str) -> list[str]:
    """The commands of the README's shell blocks that begin so, without their comments."""
    found = [line for block in shown("sh") for line in lines(block) if line.startswith(beginning)]
    assert found, f"the README has no command {beginning}"
    return found


def shown(language: str) -> list[Block]:
    """The README's blocks of a language, in order."""
    return [block for block in blocks_of(README) if block.language == language]


@pytest.fixture
def reader(node: Path, chromium: Path, tmp_path: Path) -> Beginner:
    """A reader who has pasted all of the README's YAML into one file, in its order."""
    found = newcomer_with_npx(tmp_path, node, chromium)
    (found.folder / "config.yaml").write_text("".join(block.text for block in shown("yaml")))
    return found


@pytest.fixture
def mount(reader: Beginner) -> Iterator[str]:
    """The address of the browser, as the README says it, while the adapter runs."""
    (address,) = set(re.findall(r"http://127\.0\.0\.1:8932/mcp/b\w+", README.read_text()))
    with reader.runs("mcp-adapter serve", ready="serving"):
        yield address.replace(SHOWN_PORT, str(reader.port))


def test_the_settings_are_fine(reader: Beginner) -> None:
    """The README's own check finds nothing wrong with the README's settings."""
    (check,) = commands("mcp-adapter check")
    assert "config.yaml is fine: 1 server." in reader.types(check)


def test_a_browser_is_wrapped_saved_and_served(node: Path, chromium: Path, tmp_path: Path) -> None:
    """The three commands of *Use it*: each finds what the one before has written."""
    reader = newcomer_with_npx(tmp_path, node, chromium)
    wrap, install, serve = commands("mcp-adapter ")[:3]
    with reader.runs(wrap, ready="Stop with Ctrl-C") as printed:
        assert f"http://127.0.0.1:{reader.port}/mcp/browser" in printed
        assert "browser_file_upload may change the file in paths" in printed
        reader.types(install)
    assert f":{reader.port}/mcp/browser" in (reader.folder / ".mcp.json").read_text()
    with reader.runs(serve, ready="serving") as printed:
        assert '"/mcp/browser"' in printed


async def test_files_go_through_the_browser_as_pasted(reader: Beginner, mount: str, form: str) -> None:
    """A file goes into a page by its handle, and a screenshot comes back as an artifact."""
    assert "`mcp-adapter upload FILE --url URL`" in README.read_text()
    (reader.folder / "letter.txt").write_text("Dear reader")
    async with python_host(mount) as host:
        url = (await host.call("browser_get_upload_url"))["structuredContent"]["upload_url"]
        handle = (
            await asyncio.to_thread(reader.types, f"mcp-adapter upload letter.txt --url '{url}' 2>/dev/null")
        ).strip()
        said(await host.call("browser_navigate", url=form))
        (seen,) = await choose(host, handle)
        assert (seen["name"], seen["size"]) == ("letter.txt", len("Dear reader"))
        shot = artifact(await host.call("browser_take_screenshot"))
        assert content_of(await host.read(shot["artifact_uri"])).startswith(b"\x89PNG\r\n")


async def test_one_request_calls_a_tool(reader: Beginner, mount: str, form: str) -> None:
    """The README's curl command opens a page."""
    (curl,) = commands("curl")
    assert "Page Title: Form" in await asyncio.to_thread(
        reader.types, curl.replace("https://example.com", form)
    )


async def test_clients_find_the_server(reader: Beginner, mount: str) -> None:
    """The Inspector lists the tools, the Python snippet too, and Cursor's file gets the entry of the JSON block."""
    (inspector,) = commands("npx -y @modelcontextprotocol/inspector")
    # Without the tag npx takes the installed one, whose version the tests have fixed.
    assert "browser_navigate" in await asyncio.to_thread(reader.types, inspector.replace("@latest", ""))
    (snippet,) = shown("python")
    body = snippet.text.replace("async with", "async def main():\n  async with").replace(
        "    print", "      print"
    )
    script = reader.folder / "client.py"
    script.write_text(f"import asyncio\n{body}\nasyncio.run(main())\n".replace(SHOWN_PORT, str(reader.port)))
    assert "browser_navigate" in await asyncio.to_thread(reader.types, "python client.py")
    (install,) = commands("mcp-adapter install cursor")
    await asyncio.to_thread(reader.types, f"{install} --yes")
    (entry,) = shown("json")
    told = json.loads(entry.text.replace(SHOWN_PORT, str(reader.port)))["mcpServers"]["browser"]
    written = json.loads((reader.home / ".cursor" / "mcp.json").read_text())
    assert written["mcpServers"]["browser"]["url"] == told["url"]
