"""The fenced blocks of README.md and docs/*.md, for the tests that load and run them.

A block that no test can run has a comment above it that says why: ``<!-- not run: needs another machine -->``.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

HOUSE = Path(__file__).parent.parent
PAGES = [HOUSE / "README.md", *sorted((HOUSE / "docs").glob("*.md"))]

_BLOCK = re.compile(
    r"^(?: *<!-- not run: (?P<reason>[^>]+) -->\n)?"
    r"(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the number of its first line, its language and its text without the indentation.

    ``reason`` says why it is not run; None for a block that is.
    """

    page: Path
    line: int
    language: str
    text: str
    reason: str | None = None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """All blocks that a test runs, of these languages or of all."""
    found = [block for page in PAGES for block in blocks_of(page)]
    return [each for each in found if each.reason is None and (not languages or each.language in languages)]


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, match.start("text")) + 1,
            match["language"],
            textwrap.dedent(match["text"]) if match["indent"] else match["text"],
            match["reason"],
        )
        for match in _BLOCK.finditer(text)
    ]
