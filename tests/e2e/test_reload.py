"""One process whose settings file changes: what it says of that, and what clients meet."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import answers, start
from tests.e2e.supervised import PATIENCE, Supervised, supervised
from tests.edge.raw import RawClient
from tests.ports import free_port

pytestmark = pytest.mark.e2e

IN_FORCE = "the settings are in force"


async def health(one: Supervised) -> dict[str, Any]:
    async with RawClient(one.port) as client:
        _, body = await client.request("GET", path="/healthz")
    found: dict[str, Any] = json.loads(body)
    return found


def _said(one: Supervised, event: str, times: int) -> bool:
    return len(one.logged(event)) == times


async def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    """Log and health say why; a key of the process is named; and when the file is right again, that is told too."""
    refused = "the changed settings cannot be used, the old ones stay in force"
    async with supervised(tmp_path, workers=1) as one:
        settings, before = one.settings, (await health(one))["servers"]
        for times, text in enumerate(("servers: [", "core: {port: many}", "servers: [{id: one}]"), 1):
            one.reread(text)
            await one.until(partial(_said, one, refused, times))
            found = await health(one)
            assert found["settings"]["state"] == "refused"
            assert [each["server_id"] for each in found["servers"]] == [each["server_id"] for each in before]
        one.reread({**settings, "core": {**settings["core"], "max_connections": 1000}})
        await one.until(lambda: bool(one.logged("the changed settings need a restart")))
        (line,) = one.logged("the changed settings need a restart")
        assert line["settings"] == ["core.max_connections"]
        assert (await health(one))["settings"]["keys"] == ["core.max_connections"]
        one.reread(settings)
        await one.until(lambda: bool(one.logged(IN_FORCE)))
        assert (await health(one))["settings"]["state"] == "in_force"


IN_A_TERMINAL = """
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0: os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
sys.stdin.readline()
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""Runs Python in a terminal of its own, which goes when a line is said; then tells how it ended."""


async def test_the_end_of_a_terminal_ends_the_adapter(tmp_path: Path) -> None:
    """SIGHUP of a terminal that has gone is no reload: nobody would know of a process that goes on."""
    config, port = tmp_path / "config.json", free_port()
    server = {"id": "one", "upstream": {"url": "http://127.0.0.1:9"}}
    config.write_text(json.dumps({"core": {"port": port}, "servers": [server]}))
    serve = ("-m", "adapter", "serve", "--config", config)
    async with await start([sys.executable, "-c", IN_A_TERMINAL, *serve], tmp_path / "log") as terminal:
        await answers(f"http://127.0.0.1:{port}/livez", terminal)
        await terminal.say("")
        assert await terminal.line(PATIENCE) == "0"
