"""The quick start of the chart with a real browser: both containers of its pod, as processes of this machine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.browsers import QUIET
from tests.e2e.charts import Rendered
from tests.e2e.file_form import choose, fetched, form
from tests.e2e.filing import artifact, python_host, said, sha256, uploaded
from tests.e2e.pods import local, moved, serving
from tests.e2e.processes import listens, start
from tests.e2e.provision import packages
from tests.ports import free_port

pytestmark = pytest.mark.e2e

__all__ = ["form"]


@asynccontextmanager
async def browser(
    release: Rendered, node: Path, chromium: Path, place: Path, port: int
) -> AsyncIterator[None]:
    """The server beside the adapter, with the arguments of its container after those of the image's entry point."""
    config = place / "playwright.json"
    config.write_text(json.dumps({"browser": {"launchOptions": {"args": QUIET}}}))
    script = packages() / "@playwright" / "mcp" / "cli.js"
    machine: list[str | Path] = ["--executable-path", chromium, "--config", config]
    entry: list[str | Path] = [node, script, "--headless", "--browser", "chromium", "--no-sandbox", *machine]
    given = moved(release.container("playwright")["args"], {"8931": port, "/data": place / "files"})
    async with await start([*entry, *given], place / "playwright.log") as running:
        await listens(port, running)
        yield


async def test_the_quick_start_moves_files_both_ways(
    node: Path, chromium: Path, form: str, tmp_path: Path
) -> None:
    """A file goes into a form by its handle, and a screenshot comes back by its link, as the chart has set it up."""
    port, beside = free_port(), free_port()
    release = local("quickstart", place=tmp_path, port=port, upstream=f"http://127.0.0.1:{beside}/mcp")
    file = tmp_path / "a.txt"
    file.write_text("hello")
    async with (
        browser(release, node, chromium, tmp_path, beside),
        serving(release, tmp_path, port),
        python_host(f"http://127.0.0.1:{port}/mcp/playwright") as host,
    ):
        (upload,) = await uploaded(host, file, helper="playwright_get_upload_url")
        said(await host.call("browser_navigate", url=form))
        chosen = await choose(host, upload["upload_handle"])
        assert chosen == [{"name": "a.txt", "size": 5, "sha256": sha256(b"hello")}]
        picture = artifact(await host.call("browser_take_screenshot", filename="shot.png"))
        assert (await fetched(host, picture)).startswith(b"\x89PNG")
