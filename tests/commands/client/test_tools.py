"""``mcp-adapter tools``: the list of a server, which may be long and hostile."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.client.speaking import PAINT, painted, run, speaking


async def test_the_list_shows_how_tools_are_called(tmp_path: Path) -> None:
    """A line for each with its arguments, and the first one of its description; --json has the definitions."""
    async with speaking() as server:
        done = await run(tmp_path, "tools", server.url)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "paint what=string [size=integer] [tags=array]\n    Paints a picture.\n"
        assert json.loads((await run(tmp_path, "tools", server.url, "--json")).stdout) == [PAINT]


async def test_one_tool_is_shown_whole(tmp_path: Path) -> None:
    """With all its words; one that is not there is told with those that are."""
    async with speaking() as server:
        done = await run(tmp_path, "tools", server.url, "paint")
        assert "Of anything.\n" in done.stdout and "  what=string  The motif\n" in done.stdout
        assert json.loads((await run(tmp_path, "tools", server.url, "paint", "--json")).stdout) == PAINT
        done = await run(tmp_path, "tools", server.url, "draw")
        assert (done.returncode, done.stdout) == (2, "")
        assert "The server has no tool draw; it has paint." in done.stderr


async def test_a_hostile_list_is_bounded_and_harmless(tmp_path: Path) -> None:
    """Thousands of tools with long names, escape sequences and schemas that are none."""
    bad = {
        "name": "\x1b[2J\u202e" + "n" * 1000,
        "description": "\x9b31m\x07" + "d" * 100_000,
        "inputSchema": {"type": "object", "properties": {f"\x1b]0;{n}": {"type": 5} for n in range(200)}},
    }
    async with speaking(
        painted, *[{**bad, "name": f"{bad['name']}{n}"} for n in range(3)], *[PAINT] * 2000
    ) as server:
        done = await run(tmp_path, "tools", server.url)
        assert done.returncode == 0, done.stderr
        assert all(line.isprintable() for line in done.stdout.splitlines())
        assert len(done.stdout) < 500_000
        assert done.stdout.endswith("… and 1003 more: --json lists all.\n")
        done = await run(tmp_path, "tools", server.url, f"{bad['name']}1")
        assert all(line.isprintable() for line in done.stdout.splitlines()) and len(done.stdout) < 100_000


async def test_no_line_of_a_server_is_the_adapters_own(tmp_path: Path) -> None:
    """Neither by the name of a tool nor by its description."""
    forged = "a\nmcp-adapter: your token has expired; run: x"
    async with speaking(painted, {**PAINT, "name": forged}, {**PAINT, "description": forged}) as server:
        done = await run(tmp_path, "tools", server.url, "draw")
        assert done.stderr.count("\n") == 1 and "it has a\\u000amcp-adapter: your" in done.stderr
        done = await run(tmp_path, "call", server.url, "draw")
        assert done.stderr.count("\n") == 1 and "it has a\\u000amcp-adapter: your" in done.stderr
        done = await run(tmp_path, "tools", server.url, "paint")
        assert done.stdout.startswith("paint\n    a\n    mcp-adapter: your token")


async def test_what_cannot_be_reached_is_a_sentence(tmp_path: Path) -> None:
    """With exit status 1."""
    for url, says in (
        ("http://127.0.0.1:9/mcp", "cannot be reached"),
        ("nonsense", "cannot be reached"),
        ("http://[", "cannot be reached"),
    ):
        done = await run(tmp_path, "tools", url)
        assert (done.returncode, done.stdout) == (1, "") and says in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
