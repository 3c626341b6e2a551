"""docs/api.md does what it says: its files are served, its commands run, its programs answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from adapter.app import build, running
from adapter.settings.file.load import load
from tests.edge.hosts import hosting

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BASE = "http://127.0.0.1:8932"
QUIET = {"core.port": "0", "core.shutdown_grace_seconds": "0"}


def block(kind: str, part: str) -> str:
    """The one block of that kind that holds this text."""
    (found,) = (text for each, text in BLOCKS if each == kind and part in text)
    return found


def commands() -> Iterator[tuple[str, str, str]]:
    """Each command that is followed by what it prints, and the kind of that."""
    for (kind, text), (follows, printed) in itertools.pairwise(BLOCKS):
        if kind == "sh" and "curl" in text and follows in ("json", "text"):
            yield text, follows, printed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's two files."""
    (tmp_path / "config.yaml").write_text(block("yaml", "console:"))
    (tmp_path / "tools.py").write_text(block("python", "def greet(payload"))
    return tmp_path


async def printed_by(command: str, folder: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", command, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said
    return said.decode()


async def test_each_command_prints_what_stands_below_it(folder: Path) -> None:
    """Run as they stand, but for the port."""
    settings = load(
        folder / "config.yaml", overrides=QUIET | {"storage.root": str(folder / "data")}, environ={}
    )
    async with running(build(settings)) as (_, port):
        found = list(commands())
        assert len(found) >= 6
        for command, kind, wanted in found:
            said = await printed_by(command.replace(BASE, f"http://127.0.0.1:{port}"), folder)
            if kind == "json":
                assert orjson.loads(said) == orjson.loads(wanted), command
            else:
                assert said.strip() == wanted.strip(), command


def loaded(name: str, text: str) -> Any:
    """The program as a module."""
    module = ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


async def test_a_host_serves_its_own_tools() -> None:
    """To whom its hook lets in, with the trace that it gives a call."""
    host = loaded("host", block("python", "# host.py"))
    async with hosting(host.app, "/explorer") as served:
        call = f"{served.url}/tools/greet/call"
        fields = {"Authorization": "Bearer opensesame", "X-Request-Id": "abc"}
        async with served.session.post(call, json={"name": "Ann"}, headers=fields) as response:
            assert response.status == 200
            assert await response.json() == {
                "content": [{"type": "text", "text": "Hello, Ann."}],
                "isError": False,
                "_meta": {"_trace_id": "abc"},
            }
        async with served.session.post(call, json={"name": "Ann"}) as response:
            assert (response.status, await response.json()) == (401, {"error": "Unauthorized"})
        async with served.session.get(f"{served.url}/") as response:
            assert response.status == 200 and response.content_type == "text/html"


async def test_a_host_serves_the_whole_adapter(folder: Path) -> None:
    """With the settings file of the page, which stands where the program was started."""
    with contextlib.chdir(folder):
        whole = loaded("whole", block("python", "# whole.py"))
    async with hosting(whole.app) as served:
        call = f"{served.url}/explorer/shop/tools/greet/call"
        async with served.session.post(call, json={"name": "Ann"}) as response:
            body = await response.json()
            assert (response.status, body["content"][0]["text"]) == (200, "Hello, Ann.")


def test_no_program_of_the_page_is_left_out() -> None:
    """The three that are run here are all there are."""
    assert sum(kind == "python" for kind, _ in BLOCKS) == 3
