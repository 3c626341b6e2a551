"""A page with a form of files, for a browser behind the adapter, and what a host finds out there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.e2e.filing import Host, Json, content_of, curl, said, sha256
from tests.e2e.web_pages import any_of, served

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


@pytest.fixture
async def form() -> AsyncIterator[str]:
    """The address of the form."""
    async with form_page() as address:
        yield address


@asynccontextmanager
async def form_page() -> AsyncIterator[str]:
    """The address of a page that shows name, size and digest of the files chosen in its form. Below it, at
    ``report.csv``, is a file that a browser downloads."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/report.csv":
            return web.Response(body=REPORT, headers={"Content-Disposition": "attachment"})
        return web.Response(text=FORM, content_type="text/html")

    async with served(any_of("/{path:.*}", answer)) as base:
        yield f"{base}/"


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
