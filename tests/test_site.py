"""The static site and llms.txt: built from the pages without a warning, and each link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.llms import FILE, HOUSE, full, sections, short
from tests.made_once import made_once

BUILD = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", "docs"]
"""The command of `make site`; a warning is an error."""


class Links(HTMLParser):
    """The links of a page, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.add(value)
            elif name == "id" and value:
                self.anchors.add(value)


@cache
def links(page: Path) -> Links:
    found = Links()
    found.feed(page.read_text())
    return found


def built(place: Path) -> None:
    ran = subprocess.run([*BUILD, ".", place], cwd=HOUSE, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    return made_once(tmp_path_factory, "site", built)


@pytest.mark.deep
def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    """Each link to a page, an anchor or a file of the site has its target."""
    missing = []
    for page in sorted(site.rglob("*.html")):
        for target in links(page).targets:
            parts = urlsplit(unescape(target))
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchors = links(file).anchors if file.suffix == ".html" and file.is_file() else {parts.fragment}
            if not file.is_file() or unquote(parts.fragment) not in anchors:
                missing.append(f"{page.relative_to(site)}: {target}")
    assert missing == []


@pytest.mark.deep
def test_the_site_needs_no_other_host(site: Path) -> None:
    """No script, style or font comes from elsewhere."""
    loaded = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)\"")
    assert {url for page in site.rglob("*.html") for url in loaded.findall(page.read_text())} == set()


@pytest.mark.deep
def test_programs_find_their_texts(site: Path) -> None:
    """The site has llms.txt, all pages in one text, and each page as Markdown where llms.txt names it."""
    assert (site / "llms.txt").read_text() == short()
    assert (site / "llms-full.txt").read_text() == full()
    assert [page.path for _, pages in sections() for page in pages if not (site / page.path).is_file()] == []


def test_llms_txt_is_the_one_that_is_written_now() -> None:
    """A page that is added to the index is added there: run make reference."""
    assert FILE.read_text() == short()


def test_every_page_is_in_the_index() -> None:
    """docs/README.md names each page of docs/ once."""
    named = [page.path for _, pages in sections() for page in pages]
    pages = {f"docs/{page.name}" for page in HOUSE.glob("docs/*.md")} - {"docs/README.md"}
    assert sorted(path for path in named if path.startswith("docs/")) == sorted(pages)
