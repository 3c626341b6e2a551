"""``mcp-adapter serve --watch`` whose watcher is killed; what it does otherwise: tests/pipeline/end_to_end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.processes import Running, answers, start
from tests.edge.raw import RawClient, call_body
from tests.ports import free_port

pytestmark = [pytest.mark.deep, pytest.mark.e2e]

PATIENCE = 30.0
"""Seconds for anything that a busy machine may take its time for."""

WAITING = """
import asyncio, pathlib

async def say(payload):
    pathlib.Path("PLACE/begun").touch()
    while not pathlib.Path("PLACE/go").exists():
        await asyncio.sleep(0.01)
    return "at last"
"""


async def watcher_of(place: Path, port: int, workers: int = 1) -> Running:
    """``serve --watch`` with one tool, that waits for a file."""
    (place / "code.py").write_text(WAITING.replace("PLACE", str(place)))
    tool = {"name": "say", "handler": "code.py#say"}
    shop = {
        "id": "shop",
        "mount_path": "/mcp",
        "upstream": {"transport": "hosted"},
        "tools": {"define": [tool]},
    }
    core = {"port": port, "workers": workers, "shutdown_grace_seconds": PATIENCE}
    settings = {"core": core, "storage": {"root": str(place / "data")}, "servers": [shop]}
    (place / "config.json").write_text(json.dumps(settings))
    argv: list[str | Path] = [sys.executable, "-m", "adapter", "serve", "--watch"]
    return await start([*argv, "--config", place / "config.json"], place / "watch.log")


def adapters(place: Path) -> list[int]:
    """The processes that serve the settings in this folder, watchers left out."""
    config, found = str(place / "config.json"), []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_text().split("\0") if entry.name.isdigit() else []
            if config in words and "--watch" not in words:
                found.append(int(entry.name))
    return found


def end(place: Path) -> None:
    """Kill what should have ended."""
    for pid in adapters(place):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_adapter_ends_with_a_watcher_that_is_killed(tmp_path: Path, workers: int) -> None:
    """As when it is asked to: what is under way is answered, and nobody listens any more."""
    port = free_port()
    watcher = await watcher_of(tmp_path, port, workers)
    try:
        await answers(f"http://127.0.0.1:{port}/livez", watcher)
        async with RawClient(port) as client:
            await client.initialize()
            call = asyncio.ensure_future(client.request("POST", call_body("say")))
            await until((tmp_path / "begun").exists)
            watcher.process.kill()
            with pytest.raises(OSError, match="Connect call failed"):
                await _connected_as_long_as_possible(port)
            assert adapters(tmp_path) and not call.done()
            (tmp_path / "go").touch()
            assert b"at last" in (await call)[1]
        await until(lambda: not adapters(tmp_path))
    finally:
        end(tmp_path)
        await watcher.stop()


async def _connected_as_long_as_possible(port: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("moment", [0.0, 0.1, 0.3, 0.6])
async def test_an_adapter_that_starts_ends_with_its_watcher_too(tmp_path: Path, moment: float) -> None:
    """Whatever it is doing at that moment."""
    watcher = await watcher_of(tmp_path, 0)
    try:
        await until(lambda: bool(adapters(tmp_path)))
        await asyncio.sleep(moment)
        watcher.process.kill()
        await until(lambda: not adapters(tmp_path))
    finally:
        end(tmp_path)
        await watcher.stop()
