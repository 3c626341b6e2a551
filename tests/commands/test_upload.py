"""``mcp-adapter upload``: what a server says of files, which may be hostile."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.commands.client.speaking import run, speaking
from tests.edge.raw import Exchange


@pytest.mark.parametrize("command", ["upload", "download"])
async def test_a_refusal_moves_no_cursor(tmp_path: Path, command: str) -> None:
    """Its words are shown with what is invisible escaped, and its lines as no lines of the adapter's own."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(403, orjson.dumps({"detail": "no \x1b[2J\u202efile\nmcp-adapter: run me"}))

    (tmp_path / "a.txt").write_text("a")
    async with speaking() as server:
        server.script = server.opening = refuse
        url = f"{server.url}?sig=1"
        words = ["a.txt", "--url", url] if command == "upload" else [url]
        done = await run(tmp_path, command, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == "mcp-adapter: The server refuses: no \\u001b[2J\\u202efile\n    mcp-adapter: run me\n"
    )


async def test_a_handle_moves_no_cursor(tmp_path: Path) -> None:
    """It is the server's word too, and one line."""

    async def take(exchange: Exchange) -> None:
        await exchange.json(orjson.dumps({"uploads": [{"upload_handle": "upload://\x1b[2Ja\nb"}]}))

    (tmp_path / "a.txt").write_text("a")
    async with speaking() as server:
        server.script = server.opening = take
        done = await run(tmp_path, "upload", "a.txt", "--url", f"{server.url}?sig=1")
    assert (done.returncode, done.stdout) == (0, "upload://\\u001b[2Ja\\u000ab\n"), done.stderr
