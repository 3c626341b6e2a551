"""The console's page as it is served: small, cached well, of known files only, and under a policy it keeps to."""

from __future__ import annotations

import gzip
import re
from contextlib import suppress
from importlib.resources import files

import pytest

from adapter.edge.console.page_files import PageFiles, pages
from adapter.edge.http.bodies import Body
from adapter.edge.http.request import Fields, Request
from adapter.errors import NotFound

PLOTS = {"vendor/echarts.min.js", "vendor/mermaid.tiny.js"}
MARKUP_OUT_OF_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|setHTML|\beval\(|new Function"
)


@pytest.fixture(scope="module")
def page_files() -> PageFiles:
    return PageFiles()


class Sent:
    """A reply that keeps what is sent."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.fields: dict[str, str] = {}
        self.body = b""

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        self.status, self.fields, self.body = status, dict(fields), body


async def asked(page_files: PageFiles, target: str, **fields: str) -> Sent | None:
    """What a GET of ``target`` is answered, None where no branch is for it."""
    sent = Sent()
    named = Fields([(name.replace("_", "-"), value) for name, value in fields.items()])
    request = Request("GET", target, target, named, Body(lambda: None), sent)  # type: ignore[arg-type]  # a part
    for branch in pages("/tools/explorer", ["demo"], page_files):
        names = branch.names(request)
        if names is not None:
            await branch.serve(request, names, [])
            return sent
    return None


async def test_the_page_is_small(page_files: PageFiles) -> None:
    """With its font and its Markdown reader, and without the plot libraries: under 150 KB gzipped."""
    size = len((await page_files.page({"Accept-Encoding": "gzip"}))[2])
    for name in set(page_files) - PLOTS:
        size += len(
            (await page_files.file((page_files.version, *name.split("/")), {"Accept-Encoding": "gzip"}))[2]
        )
    assert size < 150 * 1000


async def test_the_page_stands_below_any_mount(page_files: PageFiles) -> None:
    """At its path and at those of its servers, naming its assets relative to itself; without the slash it redirects."""
    page = await asked(page_files, "/tools/explorer/")
    server = await asked(page_files, "/tools/explorer/demo")
    bare = await asked(page_files, "/tools/explorer")
    assert page is not None and server is not None and bare is not None
    assert page.status == server.status == 200 and page.body == server.body
    assert f'href="assets/{page_files.version}/console.css"'.encode() in page.body
    assert (bare.status, bare.fields["Location"]) == (308, "explorer/")


async def test_every_asset_the_page_names_is_there(page_files: PageFiles) -> None:
    """Each comes with its type, for a year, and is not asked for again while its version stands in the path."""
    _, _, html = await page_files.page({})
    named = re.findall(r'(?:href|src)="(assets/[^"]+)"', html.decode())
    assert len(named) > 30
    for name in named:
        sent = await asked(page_files, f"/tools/explorer/{name}")
        assert sent is not None and sent.status == 200
        assert sent.fields["Cache-Control"] == "public, max-age=31536000, immutable"
        assert sent.fields["X-Content-Type-Options"] == "nosniff"


async def test_an_asset_known_from_before_is_not_sent_again(page_files: PageFiles) -> None:
    """Each variant has a strong tag of its own; one of another version is sent, to be asked for again."""
    path = f"/tools/explorer/assets/{page_files.version}/console.css"
    plain, packed = (
        await asked(page_files, path),
        await asked(page_files, path, Accept_Encoding="br, gzip;q=0.8"),
    )
    assert plain is not None and packed is not None
    assert gzip.decompress(packed.body) == plain.body and packed.fields["Vary"] == "Accept-Encoding"
    assert plain.fields["ETag"] != packed.fields["ETag"] and not plain.fields["ETag"].startswith("W/")
    known = await asked(page_files, path, If_None_Match=plain.fields["ETag"])
    refused = await asked(page_files, path, Accept_Encoding="gzip;q=0")
    older = await asked(page_files, "/tools/explorer/assets/0123456789ab/console.css")
    assert known is not None and (known.status, known.body) == (304, b"")
    assert refused is not None and "Content-Encoding" not in refused.fields
    assert older is not None and older.fields["Cache-Control"] == "no-cache"


@pytest.mark.parametrize(
    "name",
    [
        "../page_files.py",
        "%2e%2e/page_files.py",
        "js/%2e%2e%2findex.html",
        "vendor/package.json",
        "js/",
        "x.js",
    ],
)
async def test_nothing_else_is_served(page_files: PageFiles, name: str) -> None:
    """A path out of the directory is but a name that nobody knows."""
    sent = None
    with suppress(NotFound):
        sent = await asked(page_files, f"/tools/explorer/assets/{page_files.version}/{name}")
    assert sent is None


async def test_other_paths_are_left_to_others(page_files: PageFiles) -> None:
    """Those of the API, of unknown servers, and of other prefixes."""
    for path in (
        "/tools/explorer/-/me",
        "/tools/explorer/nobody",
        "/tools/explorer/demo/tools",
        "/tools",
        "/",
    ):
        assert await asked(page_files, path) is None


async def test_the_policy_leaves_no_room_for_scripts_of_others(page_files: PageFiles) -> None:
    """The page has none inline; the plots' frame has no origin and connects to nothing."""
    page = await asked(page_files, "/tools/explorer/")
    frame = await asked(page_files, f"/tools/explorer/assets/{page_files.version}/frame.html")
    assert page is not None and frame is not None
    policy = dict(part.partition(" ")[::2] for part in page.fields["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert page.fields["X-Frame-Options"] == "DENY" and page.fields["Referrer-Policy"] == "no-referrer"
    assert "sandbox allow-scripts;" in frame.fields["Content-Security-Policy"]
    assert "connect-src" not in frame.fields["Content-Security-Policy"]


@pytest.mark.parametrize("name", ["index.html", "frame.html"])
def test_no_html_holds_scripts_or_styles(name: str) -> None:
    """Neither elements with content nor attributes."""
    html = (files("adapter.edge.console") / "page" / name).read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", html)


def test_no_text_becomes_markup() -> None:
    """The page's own scripts know no way from a string to markup or to code."""
    for script in (files("adapter.edge.console") / "page" / "js").iterdir():
        assert not MARKUP_OUT_OF_TEXT.search(script.read_text()), script.name
