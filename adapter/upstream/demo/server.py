"""The demo's tools, resources and prompt, on the MCP SDK's server, which speaks both eras."""

from __future__ import annotations

import asyncio
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from mcp.server.elicitation import AcceptedElicitation, DeclinedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

from adapter.upstream.demo.orders import Month, Order, OrderBook

LONGEST_READ = 1024 * 1024
"""Bytes of a file that may be read into an answer."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would wait for its other end.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """Paths are relative to ``root``, or absolute and below it or below a directory that others ``shared``.

    Symbolic links are never followed, and names that begin with a dot are not served, so the server may keep
    files of its own under such names. A shared directory need not be there yet.
    """

    def __init__(self, root: Path, shared: Sequence[Path] = ()) -> None:
        self.root = root.resolve()
        # A caller may spell a directory as it was given, through a link above it.
        self._spellings = {
            spelling: directory.resolve()
            for directory in (root, *shared)
            for spelling in (directory.resolve(), directory.absolute())
        }

    def read(self, path: str) -> bytes:
        """The bytes of a regular file. Raises ToolError where there is none, or it is above LONGEST_READ."""
        with self._opened(path, _READ) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > LONGEST_READ:
                raise ToolError(f"{path!r} is larger than the {LONGEST_READ} bytes this tool reads.")
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return file.read(LONGEST_READ)

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file. Its directory must exist. Raises ToolError."""
        with self._opened(path, _WRITE) as descriptor, os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        """A descriptor of a regular file, closed at the end of the block."""
        base, steps = self._way(path)
        try:
            descriptor = _open_below(base, steps, flags)
        except (OSError, ValueError):
            # Which of the reasons it was would tell about files outside the folder.
            raise ToolError(f"There is no file {path!r} in this folder that can be opened.") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ToolError(f"{path!r} is not a regular file.")
            yield descriptor
        finally:
            os.close(descriptor)

    def _way(self, path: str) -> tuple[Path, tuple[str, ...]]:
        """The directory to begin at and the names to walk. Raises ToolError for a way out, or to nothing."""
        given, base = PurePosixPath(path), self.root
        if given.is_absolute():
            spelling = next((each for each in self._spellings if given.is_relative_to(each)), None)
            if spelling is None:
                raise ToolError("That path is outside the folder.")
            given, base = given.relative_to(spelling), self._spellings[spelling]
        if not given.parts or any(step.startswith(".") for step in given.parts):
            raise ToolError("A path names a file inside the folder, without '..' and without hidden names.")
        return base, given.parts


def _open_below(base: Path, steps: Sequence[str], flags: int) -> int:
    """A new descriptor. Raises OSError, for a link on the way too, and ValueError for what is no name."""
    *directories, name = steps
    at = os.open(base, _DIRECTORY)
    try:
        # Step by step: a check of the whole path beforehand leaves time to swap a directory for a link.
        for directory in directories:
            below = os.open(directory, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, flags, 0o644, dir_fd=at)
    finally:
        os.close(at)


_PAPER, _BAR, _AXIS = 0, 1, 2
_PALETTE = bytes((255, 255, 255, 47, 111, 171, 60, 60, 60))
_HEIGHT, _BAR_WIDTH, _GAP, _MARGIN = 160, 18, 6, 10


def bar_chart(values: Sequence[int]) -> bytes:
    """A PNG with one bar for each value (none negative), the tallest as high as the picture allows."""
    width = 2 * _MARGIN + len(values) * (_BAR_WIDTH + _GAP)
    tallest = max([*values, 1])
    heights = [round(value / tallest * (_HEIGHT - 2 * _MARGIN)) for value in values]
    rows = [_row(width, _HEIGHT - _MARGIN - y, heights) for y in range(_HEIGHT)]
    # Each row begins with its filter; 0 is none.
    pixels = b"".join(b"\0" + row for row in rows)
    head = struct.pack(">IIBBBBB", width, _HEIGHT, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", _PALETTE), (b"IDAT", zlib.compress(pixels)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _row(width: int, above_axis: int, heights: Sequence[int]) -> bytes:
    row = bytearray([_AXIS if above_axis == 0 else _PAPER]) * width
    for place, height in enumerate(heights):
        if 0 < above_axis <= height:
            left = _MARGIN + place * (_BAR_WIDTH + _GAP)
            row[left : left + _BAR_WIDTH] = bytes([_BAR]) * _BAR_WIDTH
    return bytes(row)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


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
