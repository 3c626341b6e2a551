"""Files and a real browser: Playwright MCP, the system's chromium and a form, with the adapter in between."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from tests.e2e.filing import (
    HELPER,
    MIB,
    Host,
    Json,
    Unreadable,
    artifact,
    content_of,
    curl,
    python_host,
    said,
    sha256,
    texts,
    uploaded,
)
from tests.e2e.processes import Adapter, adapter, listens, start
from tests.e2e.provision import packages
from tests.e2e.test_playwright import QUIET
from tests.ports import free_port

pytestmark = pytest.mark.e2e

FORM = """<!doctype html><meta charset=utf-8><title>Form</title><h1>Form</h1>
<form><input type=file multiple></form><ul></ul><a href=report.csv>Report</a>
<script>
const hex = (digest) => [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
window.shown = new Promise((resolve) => {
  document.querySelector('input').onchange = async ({ target }) => {
    for (const file of target.files) {
      const item = document.createElement('li');
      const digest = hex(await crypto.subtle.digest('SHA-256', await file.arrayBuffer()));
      [item.textContent, item.dataset.size, item.dataset.digest] = [file.name, file.size, digest];
      document.querySelector('ul').append(item);
    }
    resolve();
  };
});
</script>"""

REPORT = b"a,b\n1,2\n"

READ_BACK = """async () => {
  await window.shown;
  return [...document.querySelectorAll('li')].map((item) => [item.textContent, item.dataset.size, item.dataset.digest]);
}"""

NAME = "Jahresübersicht 名前 – Ελλάδα.tar.gz"

ADAPTERS: list[Json] = [
    {"type": "upload_consumer", "tools": ["browser_file_upload"], "file_path_argument": "paths"},
    {
        "type": "artifact_producer",
        "tools": ["browser_take_screenshot", "browser_pdf_save"],
        "output_path_argument": "filename",
        "output_locator": {"mode": "regex"},
    },
]


@pytest.fixture
async def form() -> AsyncIterator[str]:
    """The address of the form."""
    async with form_page() as address:
        yield address


@asynccontextmanager
async def form_page() -> AsyncIterator[str]:
    """The address of a page that shows name, size and digest of the files chosen in its form. Below it, at
    ``report.csv``, is a file that a browser downloads."""

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/report.csv":
            return web.Response(body=REPORT, headers={"Content-Disposition": "attachment"})
        return web.Response(text=FORM, content_type="text/html")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{port}/"
    await runner.cleanup()


@asynccontextmanager
async def browsers(node: Path, chromium: Path, place: Path) -> AsyncIterator[Adapter]:
    """The adapter in front of Playwright MCP, which may use the adapter's store and nothing else of the disk."""
    store = place / "store"
    store.mkdir()
    config = place / "playwright.json"
    config.write_text(json.dumps({"browser": {"launchOptions": {"args": QUIET}}}))
    port = free_port()
    where = ["--host", "127.0.0.1", "--port", str(port), "--allowed-hosts", f"127.0.0.1:{port}"]
    browser: list[str | Path] = ["--headless", "--no-sandbox", "--isolated", "--executable-path", chromium]
    # Paths of its output directory are the only absolute ones that it takes from a client with roots of its own;
    # it names them relative to its workspace, as it does unless told otherwise.
    files: list[str | Path] = ["--caps", "pdf", "--output-dir", store]
    script = packages() / "@playwright" / "mcp" / "cli.js"
    running = await start(
        [node, script, *where, *browser, *files, "--config", config], place / "playwright.log"
    )
    settings: dict[str, Any] = {
        "storage": {"root": str(store)},
        # Beside the store: what the browser's server may read are files, not the sessions of everybody.
        "state_persistence": {"disk": {"local_path": str(place / "state" / "adapter.sqlite3")}},
        "core": {"allow_artifacts_download": True},
    }
    try:
        await listens(port, running)
        async with adapter(place, f"http://127.0.0.1:{port}/mcp", adapters=ADAPTERS, **settings) as front:
            yield front
    finally:
        await running.stop()


async def choose(host: Host, *handles: str) -> list[Json]:
    """Chooses files in the form by their handles; what the page found out of them, as it stands in its DOM."""
    assert "File chooser" in said(await host.call("browser_click", element="the file input", target="input"))
    said(await host.call("browser_file_upload", paths=list(handles)))
    told = said(await host.call("browser_evaluate", function=READ_BACK))
    rows = json.loads(told.partition("### Result\n")[2].partition("\n### ")[0])
    return [{"name": name, "size": int(size), "sha256": digest} for name, size, digest in rows]


async def fetched(host: Host, told: Json) -> bytes:
    """An artifact as a resource and as a download, which are the same bytes: those it says it has."""
    listed = [resource["uri"] for resource in await host.resources()]
    assert told["artifact_uri"] in listed
    content = content_of(await host.read(told["artifact_uri"]))
    downloaded = await curl(told["download_url"])
    assert downloaded.status == 200
    assert downloaded.body == content
    assert (len(content), sha256(content)) == (told["size_bytes"], told["sha256"])
    return content


async def test_a_file_goes_into_a_form_and_pictures_come_out(
    node: Path, chromium: Path, form: str, tmp_path: Path
) -> None:
    """A file of some MiB is chosen in a form by its handle; a screenshot and a PDF come back byte by byte, and the
    screenshot goes into the form without the client's touching it. No other session reaches any of it."""
    file = tmp_path / NAME
    file.write_bytes(random.Random(5).randbytes(5 * MIB + 1))
    async with browsers(node, chromium, tmp_path) as front, python_host(front.url) as ada:
        (upload,) = await uploaded(ada, file)
        said(await ada.call("browser_navigate", url=form))
        whole = {"name": NAME, "size": 5 * MIB + 1, "sha256": sha256(file.read_bytes())}
        assert await choose(ada, upload["upload_handle"]) == [whole]

        shot = await ada.call("browser_take_screenshot", filename="Bildschirm 画面.png")
        picture, printed = artifact(shot), artifact(await ada.call("browser_pdf_save"))
        assert (picture["filename"], picture["mime_type"]) == ("Bildschirm 画面.png", "image/png")
        assert printed["mime_type"] == "application/pdf"
        assert str(tmp_path) not in texts(shot)
        assert picture["artifact_uri"] in texts(shot)
        assert (await fetched(ada, picture)).startswith(b"\x89PNG\r\n")
        assert (await fetched(ada, printed)).startswith(b"%PDF-")

        said(await ada.call("browser_navigate", url=form))
        handed = [picture["artifact_uri"], upload["upload_handle"]]
        seen = {"name": "Bildschirm 画面.png", "size": picture["size_bytes"], "sha256": picture["sha256"]}
        assert await choose(ada, *handed) == [seen, whole]

        async with python_host(front.url) as eve:
            said(await eve.call("browser_navigate", url=form))
            await reaches_nothing(eve, front, handed, [picture, printed])
        assert await fetched(ada, picture)


async def reaches_nothing(host: Host, front: Adapter, handles: list[str], artifacts: list[Json]) -> None:
    """Not by handle, not by URI, not by an URL without its signature, and not by the store's path."""
    assert not [resource for resource in await host.resources() if resource["uri"].startswith("artifact:")]
    said(await host.call("browser_click", element="the file input", target="input"))
    for handle in handles:
        refused = await host.call("browser_file_upload", paths=[handle])
        assert refused.get("isError"), refused
        assert HELPER in texts(refused)
    for told in artifacts:
        with pytest.raises(Unreadable, match="Resource not found"):
            await host.read(told["artifact_uri"])
        unsigned = urlsplit(told["download_url"])._replace(query="").geturl()
        assert (await curl(unsigned)).status == 401
        assert (
            await curl("-H", f"Mcp-Session-Id: {told['artifact_uri'].split('/')[3]}", unsigned)
        ).status == 401
    for path in Path(front.settings["storage"]["root"]).glob("*/*/*/*"):
        refused = await host.call("browser_file_upload", paths=[str(path)])
        assert refused.get("isError"), refused
