"""``mcp-adapter upload`` and ``download``: files move by two commands, and their handles work in calls."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pty
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web

from tests.commands.running import mcp_adapter
from tests.e2e.files_server import drawing
from tests.e2e.filing import ADAPTERS, artifact, python_host, said
from tests.e2e.processes import Adapter, Server, adapter
from tests.e2e.web_pages import served
from tests.ports import free_port

pytestmark = pytest.mark.e2e

UPSTREAM = "tests.e2e.files_server"
MODERN = "2026-07-28"
TOKEN = "a-token-of-sixteen-letters"
OPEN = {"allow_artifacts_download": True}
LOCKED = {"auth": {"enabled": True, "token": TOKEN}, **OPEN}


class Ran(NamedTuple):
    status: int
    output: str
    errors: str


async def command(place: Path, *arguments: str, **variables: str) -> Ran:
    """The command's exit status and what it wrote, run in ``place``."""
    ran = await asyncio.to_thread(mcp_adapter, place, *arguments, **variables)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Adapter]:
    """The adapter before a server of files, without tokens."""
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(
            tmp_path, upstream.url, adapters=ADAPTERS, core=OPEN, artifacts={"max_resource_bytes": 1000}
        ) as running,
    ):
        yield running


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """The folder that the user works in."""
    place = tmp_path / "desk"
    place.mkdir()
    return place


async def test_two_files_go_up_and_their_handles_work(front: Adapter, desk: Path) -> None:
    """One handle a line, in the order of the files, whatever they are called; nothing else is on standard output."""
    names = ['Größe "名前"; x.txt', "-second\n.bin", os.fsdecode(b"\xff.txt")]
    for name in names:
        (desk / name).write_bytes(os.fsencode(name) * 99)
    ran = await command(desk, "upload", "--url", front.url, "--", *names)
    assert (ran.status, ran.errors) == (0, "")
    handles = ran.output.splitlines()
    async with python_host(front.url, MODERN) as host:
        for name, handle in zip(names, handles, strict=True):
            content = os.fsencode(name) * 99
            assert said(await host.call("digest", path=handle)).startswith(
                f"{hashlib.sha256(content).hexdigest()} {len(content)} "
            )


async def test_an_artifact_comes_down_by_its_uri_or_its_link(front: Adapter, desk: Path) -> None:
    """Small or large, into this folder under its name, under another one, or to standard output."""
    async with python_host(front.url, MODERN) as host:
        small = artifact(await host.call("draw", seed=1, size=900, filename="small 画.bin"))
        large = artifact(await host.call("draw", seed=2, size=3_000_000, filename="large.bin"))
    url = ("--url", front.url)
    assert await command(desk, "download", small["artifact_uri"], *url) == (0, "small 画.bin\n", "")
    assert (desk / "small 画.bin").read_bytes() == drawing(1, 900)
    assert await command(desk, "download", large["artifact_uri"], *url) == (0, "large.bin\n", "")
    assert (desk / "large.bin").read_bytes() == drawing(2, 3_000_000)
    assert (await command(desk, "download", large["download_url"], "-o", "other")).output == "other\n"
    assert (desk / "other").read_bytes() == drawing(2, 3_000_000)
    printed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "adapter", "download", small["download_url"], "--output", "-"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert (await printed.communicate())[0] == drawing(1, 900)
    (desk / "both").mkdir()
    both = (small["download_url"], large["artifact_uri"])
    assert (await command(desk, "download", *both, *url, "-o", "both")).status == 0
    assert sorted(file.name for file in (desk / "both").iterdir()) == ["large.bin", "small 画.bin"]


async def test_nothing_is_overwritten_unasked(front: Adapter, desk: Path) -> None:
    """A file of that name stays as it is, and nothing is left beside it; ``--force`` replaces it."""
    async with python_host(front.url, MODERN) as host:
        link = artifact(await host.call("draw", seed=1, size=900, filename="a.bin"))["download_url"]
    (desk / "a.bin").write_text("mine")
    ran = await command(desk, "download", link)
    assert (ran.status, ran.output) == (1, "") and "a.bin exists already" in ran.errors
    assert (desk / "a.bin").read_text() == "mine"
    assert (await command(desk, "download", link, "--force")).status == 0
    assert (desk / "a.bin").read_bytes() == drawing(1, 900)
    assert [file.name for file in desk.iterdir()] == ["a.bin"]


async def test_the_token_comes_from_the_environment(tmp_path: Path, desk: Path) -> None:
    """Or from ``--token``; without one the sentence says what is missing."""
    (desk / "a.txt").write_text("a")
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(tmp_path, upstream.url, adapters=ADAPTERS, core=LOCKED) as front,
    ):
        upload = ("upload", "a.txt", "--url", front.url)
        refused = await command(desk, *upload)
        assert refused.status == 1 and "pass --token or set MCP_ADAPTER_TOKEN" in refused.errors
        assert (await command(desk, *upload, "--token", TOKEN)).output.startswith("upload://")
        kept = await command(desk, *upload, MCP_ADAPTER_TOKEN=TOKEN)
        assert kept.output.startswith("upload://")


async def test_what_cannot_be_is_one_sentence(front: Adapter, desk: Path) -> None:
    """A file that is not there, a folder, a URL without a server, a path without one, a handle that is none."""
    (desk / "a.txt").write_text("a")
    nobody = f"http://127.0.0.1:{free_port()}/mcp"
    for arguments, says in (
        (("upload", "none.txt", "--url", front.url), "none.txt cannot be read: No such file or directory"),
        (("upload", str(desk), "--url", front.url), "is a folder"),
        (("upload", "a.txt", "--url", nobody), f"{nobody} cannot be reached"),
        (("upload", "a.txt", "--url", "nonsense"), "nonsense cannot be reached"),
        (("upload", "a.txt", "--url", f"{front.base}/none"), "Nothing is served at"),
        (
            ("upload", "a.txt", "--url", f"{front.base}/upload/upstream"),
            "is not the address of a server, such as",
        ),
        (("upload", "a.txt", "--url", f"{front.base}/livez?sig=x"), "This HTTP method is not served here"),
        (("download", "artifact://sessions/1/2/3"), "needs --url"),
        (("download", "artifact://sessions/1/2/3", "--url", front.url), "Resource not found"),
        (("download", f"{front.base}/none"), "Nothing is served here"),
        (("download", "a", "b", "-o", "none"), "need a folder"),
    ):
        ran = await command(desk, *arguments)
        assert (ran.status, ran.output) == (1, ""), arguments
        assert ran.errors.startswith("mcp-adapter: ") and says in ran.errors, ran.errors
        assert "Traceback" not in ran.errors
    assert [file.name for file in desk.iterdir()] == ["a.txt"]


async def test_a_server_that_breaks_off_or_lies_leaves_no_file(desk: Path) -> None:
    """A download that ends too early or has another digest is no file, and a name never leads out of the folder."""

    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"x")
        assert request.transport is not None
        request.transport.close()
        return response

    async def lying(_: web.Request) -> web.Response:
        return web.Response(body=b"x", headers={"ETag": f'"{"0" * 64}"'})

    async def leading_out(_: web.Request) -> web.Response:
        return web.Response(
            body=b"x", headers={"Content-Disposition": 'attachment; filename="../../out\\u001b[2J"'}
        )

    routes = (web.get("/broken", broken), web.get("/lying", lying), web.get("/out", leading_out))
    async with served(*routes) as base:
        for path, says in (("broken", "connection failed"), ("lying", "changed on its way")):
            ran = await command(desk, "download", f"{base}/{path}")
            assert ran.status == 1 and says in ran.errors, ran
        assert list(desk.iterdir()) == []
        ran = await command(desk, "download", f"{base}/out")
        assert ran.status == 0
        (file,) = desk.iterdir()
        assert file.read_bytes() == b"x" and ran.output == f"{file.name}\n"


async def test_a_person_at_a_terminal_sees_progress(front: Adapter, desk: Path) -> None:
    """On standard error, while the handle goes to standard output."""
    (desk / "large.bin").write_bytes(bytes(5_000_000))
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "adapter", "upload", str(desk / "large.bin"), "--url", front.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    output, _ = await process.communicate()
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert output.startswith(b"upload://") and process.returncode == 0
    assert "] 100% of 4.8 MiB, " in shown
