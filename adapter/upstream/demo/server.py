"""The demo's tools, resources and prompt, on the MCP SDK's server, which speaks both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.elicitation import AcceptedElicitation, DeclinedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

from adapter.upstream.demo.chart import bar_chart
from adapter.upstream.demo.folder import Folder
from adapter.upstream.demo.orders import Month, Order, OrderBook

_DATABASE = ".orders.sqlite3"
_WELCOME = "welcome.txt"
_WELCOME_TEXT = "This file lies in the demo's folder.\nTools of the demo read such files and write others.\n"
_README = """# The demo server

It serves one folder of files and a generated order book of 2025.

* `read_text`, `count_words` read a text file: behind the adapter one that you upload
* `write_note`, `draw_chart` write a file: behind the adapter one that you get back as an artifact
* `query_orders` finds orders by a customer's code (`C-0001`) or a part of the name (`Amber`)
* `slow_count` reports progress; `book_table` asks you a question before it answers
* `demo://orders/summary` is what was ordered in each month
"""


class WrittenFile(BaseModel):
    """``path`` is the one that was asked for."""

    path: str
    bytes: int


class Seating(BaseModel):
    """What ``book_table`` asks for."""

    place: Literal["inside", "terrace"] = Field(description="Where you would like to sit")
    quiet: bool = Field(default=False, description="A table away from the door")


def ask_seating(guests: int) -> Elicit[Seating]:
    """The question. The SDK sends it as a request (legacy) or as an input-required round (modern)."""
    return Elicit(f"A table for {guests}: where would you like to sit?", Seating)


def demo_server(folder: Path, shared: Sequence[Path] = ()) -> MCPServer[None]:
    """The server over ``folder``, which exists; what it needs there is generated when it is missing.

    Its tools also take absolute paths below the ``shared`` directories.
    """
    files = Folder(folder, shared)
    book = OrderBook(files.root / _DATABASE)
    if not (files.root / _WELCOME).exists():
        files.write(_WELCOME, _WELCOME_TEXT.encode())
    server = MCPServer[None](
        "adapter-demo",
        title="Demo server",
        instructions="A folder of files and a generated order book, to try the adapter with.",
        version="1",
        log_level="WARNING",
    )
    _add_file_tools(server, files, book)
    _add_order_tools(server, book)
    _add_talkative_tools(server)
    return server


def _add_file_tools(server: MCPServer[None], files: Folder, book: OrderBook) -> None:
    @server.tool()
    def read_text(path: str) -> str:
        """Read a text file."""
        return _text(files, path)

    @server.tool()
    def count_words(path: str) -> int:
        """Count the words of a text file."""
        return len(_text(files, path).split())

    @server.tool()
    def write_note(filename: str, text: str) -> WrittenFile:
        """Write a text file; an existing one is replaced."""
        content = text.encode()
        files.write(filename, content)
        return WrittenFile(path=filename, bytes=len(content))

    @server.tool()
    def draw_chart(filename: str) -> WrittenFile:
        """Draw the value of each month's orders as a PNG."""
        picture = bar_chart([month.total_cents for month in book.months()])
        files.write(filename, picture)
        return WrittenFile(path=filename, bytes=len(picture))

    @server.prompt()
    def summarise_file(path: str) -> str:
        """Ask for a summary of one file."""
        return f"Read the file {path!r} with read_text and summarise it in three sentences."


def _add_order_tools(server: MCPServer[None], book: OrderBook) -> None:
    @server.tool()
    def query_orders(customer: str, limit: Annotated[int, Field(ge=1, le=200)] = 10) -> list[Order]:
        """The newest orders of a customer, by code (C-0001) or a part of the name."""
        return book.of_customer(customer, limit)

    @server.resource("demo://readme", mime_type="text/markdown")
    def readme() -> str:
        """What this server offers."""
        return _README

    @server.resource("demo://orders/summary", mime_type="application/json")
    def orders_summary() -> list[Month]:
        """Number and value of the orders of each month."""
        return book.months()


def _add_talkative_tools(server: MCPServer[None]) -> None:
    @server.tool()
    async def slow_count(
        steps: Annotated[int, Field(ge=1, le=1000)],
        context: Context[None],
        pause_ms: Annotated[int, Field(ge=0, le=10_000)] = 200,
    ) -> str:
        """Count to a number, reporting progress after each step."""
        for step in range(1, steps + 1):
            await asyncio.sleep(pause_ms / 1000)
            await context.report_progress(step, steps, f"step {step} of {steps}")
        return f"Counted to {steps}."

    @server.tool()
    def book_table(
        guests: Annotated[int, Field(ge=1, le=12)],
        seating: Annotated[ElicitationResult[Seating], Resolve(ask_seating)],
    ) -> str:
        """Book a table; asks where to sit."""
        if isinstance(seating, AcceptedElicitation):
            quiet = ", away from the door" if seating.data.quiet else ""
            return f"Booked: {guests} guests, {seating.data.place}{quiet}."
        return (
            "Not booked: declined." if isinstance(seating, DeclinedElicitation) else "Not booked: cancelled."
        )


def _text(files: Folder, path: str) -> str:
    try:
        return files.read(path).decode()
    except UnicodeDecodeError:
        raise ToolError(f"{path!r} is not text in UTF-8.") from None
