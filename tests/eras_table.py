"""The table of docs/eras.md: ``python -m tests.eras_table`` writes what ``tests/e2e/test_eras_matrix.py`` proves."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.eras_matrix import CLIENTS, FEATURES, MISSING, UPSTREAMS

PAGE = Path(__file__).parents[1] / "docs" / "eras.md"
BEGIN, END = "<!-- begin: eras -->", "<!-- end: eras -->"

_SDKS = {"fastmcp": "FastMCP", "python": "Python", "ts": "TypeScript"}


def table() -> str:
    """The whole table, in Markdown. A cell names what a client does not have there; ✓ is everything."""
    columns = " | ".join(["client", *(name.replace(" ", "-") for name in UPSTREAMS)])
    rows = [
        f"| {_shown(client)} | {' | '.join(_cell(client, each) for each in UPSTREAMS)} |"
        for client in CLIENTS
    ]
    return "\n".join(
        [f"✓: {'/'.join(FEATURES)}", "", f"| {columns} |", "|---" * (len(UPSTREAMS) + 1) + "|", *rows]
    )


def _shown(client: str) -> str:
    name, _, mode = client.partition(" ")
    sdk, _, major = name.partition("_v")
    return "-".join(each for each in (_SDKS.get(sdk, sdk), major, mode) if each)


def _cell(client: str, upstream: str) -> str:
    missing = MISSING.get((client, upstream), frozenset())
    return "/".join(each for each in FEATURES if each in missing) or "✓"


def written(page: str) -> str:
    """The page with the table of now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
