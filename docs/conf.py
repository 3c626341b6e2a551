"""The static site: the pages of this repository as they are, built by Sphinx with `make site`.

The source is the whole repository, so that links between pages, and from pages to other files, stay as they are.
"""

from __future__ import annotations

import html
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

HOUSE = Path(__file__).parent.parent
sys.path.insert(0, str(HOUSE))

from adapter.version import VERSION  # noqa: E402 (found by the line above)
from tests.llms import full, sections, short  # noqa: E402 (found by the line above)

project = "mcp-file-adapter"
release = VERSION
root_doc = "docs/README"
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/*.md"]
exclude_patterns = [
    ".*",
    "RELEASING.md",
    "adapter",
    "build",
    "config",
    "deploy",
    "dist",
    "tests",
    "*.egg-info",
]
suppress_warnings = ["misc.highlighting_failure"]  # an example with an ellipsis is no complete JSON or Python

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
myst_url_schemes = ["http", "https", "mailto"]

html_theme = "furo"
html_title = "mcp-file-adapter"
html_copy_source = False
html_show_copyright = False
html_static_path = ["settings.css", str(HOUSE / "adapter/edge/console/page/vendor/mermaid.tiny.js")]

REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">Overview</a>'


class Mermaid(Directive):
    """A diagram, which the reader's browser draws."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        escaped = html.escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">{escaped}</pre>', format="html")]


def adapt(app: Sphinx, name: str, source: list[str]) -> None:
    """Turn links to folders into text, and add the table of contents to the index."""
    folder = (HOUSE / name).parent

    def linked(found: re.Match[str]) -> str:
        return found[1] if (folder / found[2]).is_dir() else found[0]

    text = re.sub(r"\[([^\]]+)\]\(([^)#:]+)\)", linked, source[0])
    if name == app.config.root_doc:
        for title, pages in sections():
            entries = "\n".join(f"/{page.path.removesuffix('.md')}" for page in pages)
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"
    source[0] = text


def draw(app: Sphinx, name: str, *page: Any) -> None:
    """Load the library for diagrams on the pages that have one, and the style of the settings on theirs."""
    _, context, _ = page
    if name == "docs/settings":
        app.add_css_file("settings.css")
    if 'class="mermaid"' in context.get("body", ""):
        app.add_js_file("mermaid.tiny.js")
        app.add_js_file(None, body="mermaid.initialize({startOnLoad: true})")


def finish(app: Sphinx, failure: Exception | None) -> None:
    """Add the page that the address without a path shows, and the texts for programs that read."""
    if failure is not None:
        return
    site = Path(app.outdir)
    (site / "index.html").write_text(REDIRECT)
    (site / "llms.txt").write_text(short())
    (site / "llms-full.txt").write_text(full())
    for name in app.env.found_docs:
        shutil.copyfile(HOUSE / f"{name}.md", site / f"{name}.md")


def setup(app: Sphinx) -> None:
    """Connect the functions above to the build."""
    app.add_directive("mermaid", Mermaid)
    app.connect("source-read", adapt)
    app.connect("html-page-context", draw)
    app.connect("build-finished", finish)
