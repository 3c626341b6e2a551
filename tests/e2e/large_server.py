"""``python -m tests.e2e.large_server [PORT]``: tools with results that no host shows whole, on the SDK's server."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, Field

from tests.e2e.serving import serve

ROWS = 5000

server = MCPServer("large")


class Row(BaseModel):
    """One row of a table."""

    id: int
    text: Annotated[str, Field(min_length=4)]


class Table(BaseModel):
    """Too many rows."""

    rows: Annotated[list[Row], Field(min_length=100)]
    total: int


def lines(count: int) -> str:
    """What ``log`` answers."""
    return "".join(f"{number:06} GET /é/{number} 200\n" for number in range(count))


@server.tool(structured_output=False)
def log(count: int) -> str:
    """So many lines of a log."""
    return lines(count)


@server.tool()
def table() -> Table:
    """A table, as structured content and as text."""
    return Table(rows=[Row(id=number, text=f"row {number}") for number in range(ROWS)], total=ROWS)


if __name__ == "__main__":
    serve(server.streamable_http_app)
