"""``mcp-adapter tools`` and ``call`` with servers of other people, and with a mount: files both ways, in both eras."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.commands.client.speaking import run
from tests.e2e.files_server import drawing
from tests.e2e.filing import ADAPTERS
from tests.e2e.processes import Server, adapter, listens, start
from tests.ports import free_port

pytestmark = pytest.mark.e2e

FILES, ASKING = "tests.e2e.files_server", "tests.e2e.asking_server"


async def test_files_go_both_ways_through_a_mount(tmp_path: Path) -> None:
    """Uploaded for the arguments, and saved from the result, small and larger than a resource may be."""
    desk = tmp_path / "desk"
    desk.mkdir()
    for name in ("one.txt", "two.txt"):
        (desk / name).write_text(name * 99)
    digests = [hashlib.sha256((desk / name).read_bytes()).hexdigest() for name in ("one.txt", "two.txt")]
    async with (
        Server(FILES, tmp_path) as upstream,
        adapter(
            tmp_path,
            upstream.url,
            adapters=ADAPTERS,
            core={"allow_artifacts_download": True},
            artifacts={"max_resource_bytes": 1000},
        ) as front,
    ):
        listed = await run(desk, "tools", front.url)
        assert "digest path=@file\n" in listed.stdout and "digests paths=@file\n" in listed.stdout
        call = ("call", front.url)
        one = await run(desk, *call, "digest", "path=@one.txt")
        assert (one.returncode, one.stderr) == (0, "") and one.stdout == f"{digests[0]} 693 one.txt\n"
        both = await run(desk, *call, "digests", "paths=@one.txt", "paths=@two.txt")
        assert [line.split()[0] for line in both.stdout.splitlines()] == digests
        drawn = await run(
            desk, *call, "draw", "seed=1", "size=500000", "filename=画.bin", "--save-to", "saved"
        )
        assert drawn.returncode == 0 and "Saved: saved/画.bin\n" in drawn.stderr, drawn.stderr
        assert (desk / "saved" / "画.bin").read_bytes() == drawing(1, 500_000)
        small = await run(desk, *call, "draw", "seed=2", "size=900", "filename=画.bin", "--save-to", "saved")
        assert (desk / "saved" / "画-2.bin").read_bytes() == drawing(2, 900), small.stderr
        turned = await run(desk, *call, "turn_round", "path=@one.txt", "filename=a.txt", "--save-to", "saved")
        assert (desk / "saved" / "a.txt").read_text() == ("one.txt" * 99)[::-1], turned.stderr
        alone = await run(desk, "call", upstream.url, "digest", "path=@one.txt")
        assert alone.returncode == 2 and "This server takes no files from here" in alone.stderr


async def test_questions_of_an_sdk_server_are_answered(tmp_path: Path) -> None:
    """Two rounds of the era without sessions, straight and through a mount, with a file that comes back."""
    async with (
        Server(ASKING, tmp_path) as upstream,
        adapter(
            tmp_path,
            upstream.url,
            adapters=[{"type": "artifact_producer", "tools": ["paint"], "output_path_argument": "filename"}],
        ) as front,
    ):
        for url, name in ((upstream.url, str(tmp_path / "direct.txt")), (front.url, "mounted.txt")):
            done = await run(
                tmp_path,
                *("call", url, "paint", "seed=7", f"filename={name}", "--save-to", "saved"),
                stdin="y\nDawn\ny\nred\n",
            )
            assert done.returncode == 0, done.stderr
            assert "The server asks: Which title?" in done.stderr
            assert "The server asks: Which colour for Dawn?" in done.stderr
        assert (tmp_path / "direct.txt").read_text() == "7 Dawn red"
        assert (tmp_path / "saved" / "mounted.txt").read_text() == "7 Dawn red"


async def test_a_server_of_other_people(node: Path, server_packages: Path, tmp_path: Path) -> None:
    """The reference server on Node: its list, a sum, a picture that is saved, progress and a form."""
    script = server_packages / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    port = free_port()
    running = await start([node, script, "streamableHttp"], tmp_path / "log", {"PORT": str(port)})
    try:
        await listens(port, running)
        url = f"http://127.0.0.1:{port}/mcp"
        listed = await run(tmp_path, "tools", url)
        assert "get-sum a=number b=number\n" in listed.stdout, listed
        call = ("call", url)
        assert (
            "The sum of 2 and 0.5 is 2.5." in (await run(tmp_path, *call, "get-sum", "a=2", "b=0.5")).stdout
        )
        picture = await run(tmp_path, *call, "get-tiny-image", "--save-to", "saved")
        assert (tmp_path / "saved" / "get-tiny-image.png").read_bytes().startswith(b"\x89PNG"), picture
        slow = await run(tmp_path, *call, "trigger-long-running-operation", "duration=1", "steps=2")
        assert slow.returncode == 0 and "1 of 2" in slow.stderr, slow
        wrong = await run(tmp_path, *call, "get-sum", "a=two", "b=1")
        assert wrong.returncode == 2 and "a takes number, not two." in wrong.stderr, wrong
        asked = await run(tmp_path, *call, "trigger-elicitation-request", stdin="y\nAda\n" + "\n" * 30)
        assert asked.returncode == 0 and "Ada" in asked.stdout, asked
    finally:
        await running.stop()
