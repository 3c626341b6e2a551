"""``llms.txt``: the list of pages for programs that read, in the form of llmstxt.org, written from docs/README.md.

``python -m tests.llms`` writes it; a test says when it is stale. The site also has ``llms-full.txt``, with all pages.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HOUSE = Path(__file__).parent.parent
INDEX = HOUSE / "docs" / "README.md"
FILE = HOUSE / "llms.txt"

HEAD = """# mcp-file-adapter

> A reverse proxy for MCP (Model Context Protocol) servers. It gives many servers one address, maps each client session
> to one upstream session, forwards messages byte for byte, and moves files between clients and tools.

The command is `mcp-adapter`; `mcp-adapter --help` lists its commands. Settings are one YAML file, which
`mcp-adapter check` tests. Errors of the adapter can be found by their sentence in docs/troubleshooting.md.
"""

OPTIONAL = "The project"
"""The last section of the index, which a short context can do without."""


class Page(NamedTuple):
    """A page of the index: its title, its path from the root of the repository, and one sentence about it."""

    title: str
    path: str
    text: str


def sections() -> Iterator[tuple[str, list[Page]]]:
    """The headings of the index, each with its pages."""
    parts = re.split(r"^## (.+)$", INDEX.read_text(), flags=re.MULTILINE)
    for title, below in zip(parts[1::2], parts[2::2], strict=True):
        lines = re.findall(r"^\* \[(.+?)\]\((.+?)\): (.+?)$", below, re.MULTILINE)
        yield title, [Page(name, posixpath.normpath(f"docs/{path}"), text) for name, path, text in lines]


def short() -> str:
    """The text of ``llms.txt``."""
    text = HEAD
    for title, pages in sections():
        lines = "\n".join(f"- [{page.title}]({page.path}): {page.text}" for page in pages)
        text += f"\n## {'Optional' if title == OPTIONAL else title}\n\n{lines}\n"
    return text


def full() -> str:
    """All pages but the optional ones in one text, each below its path."""
    pages = [page for title, pages in sections() if title != OPTIONAL for page in pages]
    return HEAD + "".join(f"\n\n<!-- {page.path} -->\n\n{(HOUSE / page.path).read_text()}" for page in pages)


if __name__ == "__main__":
    FILE.write_text(short())
