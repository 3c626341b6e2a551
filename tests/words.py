"""The words of README.md, RELEASING.md and docs/, those written by hand apart from those that a program writes.

``python -m tests.words`` prints them by page. ``tests/test_house.py`` keeps both sums below a ceiling.
"""

from __future__ import annotations

import re
from pathlib import Path

HOUSE = Path(__file__).parent.parent
PAGES = [HOUSE / "README.md", HOUSE / "RELEASING.md", *sorted((HOUSE / "docs").rglob("*.md"))]

GENERATED = {"settings.md"}
"""Pages that no hand writes; others have blocks between ``<!-- begin: … -->`` and ``<!-- end: … -->``."""

_BLOCK = re.compile(r"<!-- begin: ([^>]+) -->.*?<!-- end: \1 -->", re.DOTALL)
_WORD = re.compile(r"\S*\w\S*")


def counted(page: Path) -> tuple[int, int]:
    """Count the words of a page: by hand, generated. A sign without a letter or a digit is none."""
    text = page.read_text()
    whole = len(_WORD.findall(text))
    by_hand = 0 if page.name in GENERATED else len(_WORD.findall(_BLOCK.sub("", text)))
    return by_hand, whole - by_hand


def totals() -> tuple[int, int]:
    """Count the words of all pages: by hand, generated."""
    by_hand, generated = zip(*map(counted, PAGES), strict=True)
    return sum(by_hand), sum(generated)


if __name__ == "__main__":
    for each in sorted(PAGES, key=counted):
        print(f"{each.relative_to(HOUSE)!s:28}{counted(each)[0]:>8}{counted(each)[1]:>8}")
    print(f"{'by hand, generated':28}{totals()[0]:>8}{totals()[1]:>8}")
