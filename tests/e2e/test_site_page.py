"""The settings page of the static site in a browser: nothing is cut, and lines are long enough to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.console_house import played
from tests.test_site import site

__all__ = ["site"]

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).parent / "console" / "site.mjs"
TIMEOUT = 60.0

LETTERS = {390: 34, 1360: 60, 1920: 60}
"""Letters that a line of a description has room for, by the width of the window in pixels."""


async def test_settings_can_be_read_at_any_width(
    node: Path, chromium: Path, site: Path, tmp_path: Path
) -> None:
    """On a phone, a laptop and a wide screen: neither the page nor a table scrolls sideways, and no column of text is
    squeezed."""
    page = (site / "docs" / "settings.html").as_uri()
    seen = await played(node, chromium, tmp_path, SCRIPT, page, *map(str, LETTERS), within=TIMEOUT)
    for width, least in LETTERS.items():
        found = seen[str(width)]
        assert (found["page"], found["scrolls"], found["outside"]) == (width, 0, []), (width, found)
        assert found["texts"] > 200 and found["letters"] >= least, (width, found)
