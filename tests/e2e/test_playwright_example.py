"""``config/playwright.yaml`` as it stands, with a real browser: all that Playwright MCP writes reaches its client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.file_form import REPORT, choose, form
from tests.e2e.filing import Host, Json, content_of, curl, python_host, said, sha256, texts
from tests.e2e.pasted import newcomer_with_npx
from tests.e2e.provision import ROOT

pytestmark = pytest.mark.e2e

__all__ = ["form"]

EXAMPLE = ROOT / "config" / "playwright.yaml"

DOWNLOAD = """async () => {
  document.querySelector('a').click();
  await new Promise((resolve) => setTimeout(resolve, 2000));
}"""
"""A download that begins and ends during one call, which then tells of it."""


@pytest.fixture
def mount(node: Path, chromium: Path, tmp_path: Path) -> Iterator[str]:
    """The address of the example's browser."""
    reader = newcomer_with_npx(tmp_path, node, chromium)
    with reader.runs(f"mcp-adapter serve --config {EXAMPLE}", ready="serving"):
        yield f"http://127.0.0.1:{reader.port}/mcp/playwright"


def kept(result: Json) -> dict[str, Json]:
    """The artifacts of a result that is no error, each under the extension of its name."""
    said(result)
    assert "artifact_error" not in result.get("_meta", {}), result
    meta = result.get("_meta", {})
    found = meta.get("artifacts", [meta["artifact"]] if "artifact" in meta else [])
    return {told["filename"].rpartition(".")[2]: told for told in found}


async def content(host: Host, told: Json) -> bytes:
    """The bytes of an artifact, the same as a resource and by its link."""
    assert told["artifact_uri"] in [resource["uri"] for resource in await host.resources()]
    read = content_of(await host.read(told["artifact_uri"]))
    assert sha256(read) == told["sha256"]
    assert (await curl(told["download_url"])).body == read
    return read


async def test_what_the_browser_writes_reaches_its_client(mount: str, form: str) -> None:
    """Snapshots, a download, a screenshot, a PDF and a trace come back as artifacts; their bytes are the files'."""
    async with python_host(mount) as host:
        opened = await host.call("browser_navigate", url=form)
        assert b"Report" in await content(host, kept(opened)["yml"])
        clicked = kept(await host.call("browser_click", element="the heading", target="h1"))
        assert b"Report" in await content(host, clicked["yml"])
        downloaded = kept(await host.call("browser_evaluate", function=DOWNLOAD))
        assert await content(host, downloaded["csv"]) == REPORT
        shot = kept(await host.call("browser_take_screenshot"))
        assert (await content(host, shot["png"])).startswith(b"\x89PNG\r\n")
        printed = kept(await host.call("browser_pdf_save", filename="page.pdf"))
        assert (await content(host, printed["pdf"])).startswith(b"%PDF-")
        said(await host.call("browser_start_tracing"))
        said(await host.call("browser_navigate", url=form))
        traced = kept(await host.call("browser_stop_tracing"))
        assert b"context-options" in await content(host, traced["trace"])


async def test_what_a_client_has_goes_into_the_page(mount: str, form: str, tmp_path: Path) -> None:
    """An upload and a screenshot are chosen in a form by their handles; a path of the store is no handle."""
    letter = tmp_path / "letter.txt"
    letter.write_bytes(b"Dear page")
    async with python_host(mount) as host:
        told = (await host.call("playwright_get_upload_url"))["structuredContent"]
        sent = await curl("-F", f"file=@{letter}", told["upload_url"])
        said(await host.call("browser_navigate", url=form))
        shot = kept(await host.call("browser_take_screenshot"))["png"]
        seen = await choose(host, sent.json["upload_handle"], shot["artifact_uri"])
        assert [file["sha256"] for file in seen] == [sha256(b"Dear page"), shot["sha256"]]
        (stored,) = tmp_path.glob("folder/data/files/uploads/*/*/letter.txt")
        said(await host.call("browser_click", element="the input", target="input"))
        refused = await host.call("browser_file_upload", paths=[str(stored)])
        assert refused["isError"]
        assert "playwright_get_upload_url" in texts(refused)
