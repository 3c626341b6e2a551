"""The demo upstream, called directly by the official SDK's client in both eras."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult, TextContent, TextResourceContents


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of somebody else, which is not there when the upstream starts; ``never`` beside it never is."""
    return tmp_path_factory.mktemp("store") / "shared"


@pytest.fixture(scope="module")
def url(folder: Path, shared: Path) -> Iterator[str]:
    """The endpoint of a demo upstream that runs as a process of its own."""
    with start(folder, shared) as process:
        assert process.stdout is not None
        yield process.stdout.readline().decode().strip()
        process.stdin.close()  # type: ignore[union-attr]  # it was asked for as a pipe
        assert process.wait(timeout=10) == 0


@pytest.fixture(params=["legacy", "2026-07-28"])
def client(request: pytest.FixtureRequest, url: str) -> Client:
    """Not yet connected: its scopes have to be entered and left by one task, which a fixture is not."""
    return Client(url, mode=request.param, elicitation_callback=choose_the_terrace)


def start(folder: Path, shared: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "adapter.upstream.demo", "--until-stdin-ends"]
    command += ["--folder", str(folder), "--shared", str(shared), "--shared", str(shared.parent / "never")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def choose_the_terrace(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    assert params.message == "A table for 3: where would you like to sit?"
    return ElicitResult(action="accept", content={"place": "terrace"})


async def text_of(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def refusal_of(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_reads_what_it_wrote(client: Client, folder: Path) -> None:
    """A note that a tool wrote lies in the folder; it is read back by its path, also by an absolute one."""
    async with client:
        written = await client.call_tool("write_note", {"filename": "note.txt", "text": "three short words"})
        assert written.structured_content == {"path": "note.txt", "bytes": 17}
        assert (folder / "note.txt").read_text() == "three short words"
        assert await text_of(client, "read_text", path=str(folder / "note.txt")) == "three short words"
        assert await text_of(client, "count_words", path="note.txt") == "3"


async def test_files_elsewhere_are_shared_by_their_absolute_path(client: Client, shared: Path) -> None:
    """A file below the shared directory is written and read where it was asked for, and nothing beside it."""
    async with client:
        (shared / "scope").mkdir(parents=True, exist_ok=True)
        note = str(shared / "scope" / "note.txt")
        await text_of(client, "write_note", filename=note, text="somewhere else")
        assert (shared / "scope" / "note.txt").read_text() == "somewhere else"
        assert await text_of(client, "read_text", path=note) == "somewhere else"
        (shared.parent / "private").write_text("not yours")
        relink(shared / "link", shared.parent / "private")
        for path in (shared.parent / "private", shared / ".." / "private", shared / "link", shared):
            assert "not yours" not in await refusal_of(client, "read_text", path=str(path))
            await refusal_of(client, "write_note", filename=str(path), text="overwritten")
        assert (shared.parent / "private").read_text() == "not yours"


async def test_a_shared_directory_may_be_missing(client: Client, shared: Path) -> None:
    """Until somebody makes the directory, its files are simply not there."""
    async with client:
        note = str(shared.parent / "never" / "note.txt")
        assert "There is no file" in await refusal_of(client, "read_text", path=note)
        assert "There is no file" in await refusal_of(client, "write_note", filename=note, text="lost")


async def test_draws_a_picture(client: Client, folder: Path) -> None:
    """The chart is a PNG with one bar for each month of two years."""
    async with client:
        await text_of(client, "draw_chart", filename="chart.png")
        picture = (folder / "chart.png").read_bytes()
        assert picture.startswith(b"\x89PNG\r\n\x1a\n")
        assert picture[16:24] == (20 + 24 * 24).to_bytes(4) + (160).to_bytes(4)


async def test_finds_orders(client: Client) -> None:
    """Orders are found by code and by a part of the name, newest first, no more than asked for."""
    async with client:
        by_code = await client.call_tool("query_orders", {"customer": "C-001", "limit": 5})
        by_name = await client.call_tool("query_orders", {"customer": "meadow hostel", "limit": 5})
        assert by_code.structured_content == by_name.structured_content
        orders = (by_code.structured_content or {})["result"]
        assert len(orders) == 5
        assert [order["placed_on"] for order in orders] == sorted(
            (o["placed_on"] for o in orders), reverse=True
        )


async def test_reports_progress(client: Client) -> None:
    """Every step of the slow tool is reported before its result."""
    async with client:
        steps: list[float] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        await client.call_tool("slow_count", {"steps": 3, "pause_ms": 5}, progress_callback=note)
        assert steps == [1, 2, 3]


async def test_asks_before_it_answers(client: Client) -> None:
    """The table is booked where the person who was asked wants to sit."""
    async with client:
        assert await text_of(client, "book_table", guests=3) == "Booked: 3 guests, terrace."


async def test_offers_resources_and_a_prompt(client: Client) -> None:
    """The readme and the summary can be read, and the prompt names the file it was asked about."""
    async with client:
        [readme] = (await client.read_resource("demo://readme")).contents
        assert isinstance(readme, TextResourceContents)
        assert readme.text.startswith("# The demo server")
        [summary] = (await client.read_resource("demo://orders/summary")).contents
        assert isinstance(summary, TextResourceContents)
        assert '"month": "2025-12"' in summary.text
        [message] = (await client.get_prompt("summarise_file", {"path": "welcome.txt"})).messages
        assert isinstance(message.content, TextContent)
        assert "welcome.txt" in message.content.text


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "a/../../b",
        "..",
        ".",
        "",
        "link",
        "linked/secret",
        ".shop.sqlite3",
        "a\0b",
    ],
)
async def test_no_path_leads_out(client: Client, folder: Path, tmp_path: Path, path: str) -> None:
    """Neither dots, absolute paths nor links reach a file outside the folder, for reading or for writing."""
    async with client:
        (tmp_path / "secret").write_text("not yours")
        relink(folder / "link", tmp_path / "secret")
        relink(folder / "linked", tmp_path)
        assert "not yours" not in await refusal_of(client, "read_text", path=path)
        await refusal_of(client, "write_note", filename=path, text="overwritten")
        assert (tmp_path / "secret").read_text() == "not yours"


async def test_only_regular_files_are_opened(client: Client, folder: Path) -> None:
    """A named pipe is refused at once instead of being waited for."""
    async with client:
        if not (folder / "pipe").exists():
            os.mkfifo(folder / "pipe")
        async with asyncio.timeout(20):
            assert "not a regular file" in await refusal_of(client, "read_text", path="pipe")


def relink(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
