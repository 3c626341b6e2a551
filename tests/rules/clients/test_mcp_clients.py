"""The clients whose files are known, as people are told of them."""

from __future__ import annotations

from pathlib import Path

from adapter.rules.clients.mcp_clients import CLIENTS

PAGE = Path(__file__).parents[3] / "docs" / "clients.md"


def test_the_documentation_names_every_client_with_its_file() -> None:
    """A row of the table for each, with the place and the key that the code knows."""
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) == len(CLIENTS)
    for row, (name, client) in zip(rows, CLIENTS.items(), strict=True):
        assert row.startswith(f"| `{name}` | `{client.file.shown}`") and f"`{client.keys[0]}`" in row
