"""One process whose settings file changes, with servers that are processes: what clients meet meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tests.app.test_reload import PID
from tests.e2e.processes import Adapter, answers, start
from tests.e2e.supervised import Load, Scripted
from tests.edge.raw import RawClient, RawUpstream
from tests.ports import free_port

pytestmark = pytest.mark.e2e

PATIENCE = 120.0


@dataclass
class Changed:
    """An adapter in front of one server over HTTP at ``/mcp`` and one that is a process, and its settings file."""

    front: Adapter
    settings: dict[str, Any]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The log so far."""
        # The last line may just be written.
        whole = (self.front.place / "adapter.log").read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("event") == event]

    async def until(self, event: str, times: int = 1) -> dict[str, Any]:
        """Wait for a line of the log, and return the last one."""
        async with asyncio.timeout(PATIENCE):
            while len(self.logged(event)) < times:
                await asyncio.sleep(0.02)
        return self.logged(event)[-1]

    def write(self, text: str | None = None) -> None:
        """Write the settings file as editors do: a new one takes its place."""
        new = self.front.place / "new.json"
        new.write_text(json.dumps(self.settings) if text is None else text)
        new.replace(self.front.place / "adapter.json")

    def hang_up(self) -> None:
        """Send SIGHUP."""
        assert self.front.running is not None
        os.kill(self.front.running.process.pid, signal.SIGHUP)

    async def health(self) -> dict[str, Any]:
        async with aiohttp.ClientSession() as http, http.get(f"{self.front.base}/healthz") as answer:
            found: dict[str, Any] = await answer.json()
        return found


@asynccontextmanager
async def changed(place: Path, **core: Any) -> AsyncIterator[Changed]:
    async with RawUpstream(Scripted()) as up:
        process = {"transport": "stdio", "command": sys.executable, "args": ["-c", PID]}
        settings = {
            "core": {"upstream_ping": {"enabled": False}, **core},
            "storage": {"root": str(place / "data")},
            "servers": [
                {"id": "http", "mount_path": "/mcp", "upstream": {"url": up.url}},
                {"id": "process", "upstream": process},
                {"id": "third", "upstream": {"url": up.url}},
            ],
        }
        async with Adapter(place, settings) as front:
            one = Changed(front, settings)
            await one.until("serving")
            yield one


async def pid_of(session: ClientSession) -> str:
    """The process that answers a call."""
    (text,) = (await session.call_tool("pid", {})).content
    return str(getattr(text, "text", ""))


async def test_other_servers_notice_nothing_of_a_change(tmp_path: Path) -> None:
    """Six times, under load: a session of the official client with a process, and its stream, are kept, and no call is
    lost."""
    async with changed(tmp_path, watch=False) as one:
        url = f"{one.front.base}/mcp/process"
        async with (
            streamable_http_client(url) as (read, write, *_),
            ClientSession(read, write) as session,
            RawClient(one.front.port) as stream,
            Load(one.front.port).running() as load,
        ):
            await session.initialize()
            pid = await pid_of(session)
            await stream.send("GET", accept="text/event-stream", mcp_protocol_version="2025-11-25")
            head = await stream.head()
            for number in range(6):
                one.settings["servers"][2]["tool_defaults"] = {"tool_call_timeout_seconds": 100 + number}
                one.write()
                one.hang_up()
                assert (await one.until("the settings are in force", number + 1))["changed"] == ["third"]
                await load.more(5)
            assert await pid_of(session) == pid
            assert head.status != 200 or not stream.reader.at_eof()
        assert set(load.outcomes) == {"ok"}


async def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    """Nobody has to send a signal: a server that is added is served, one that is taken out says that it left."""
    async with changed(tmp_path) as one, RawClient(one.front.port) as client:
        new = {"id": "new", "upstream": one.settings["servers"][0]["upstream"]}
        one.settings["servers"] = [*one.settings["servers"][:2], new]
        one.write()
        line = await one.until("the settings are in force")
        assert (line["added"], line["changed"], line["left"]) == (["new"], [], ["third"])
        head, _ = await client.request("GET", path="/mcp/new")
        assert head.status != 404
        head, body = await client.request("GET", path="/mcp/third")
        assert head.status == 404 and b"served here no more" in body


async def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    """Log and health say why; a key of the process is named; and when the file is right again, that is told too."""
    async with changed(tmp_path, watch=False) as one:
        before = [each["server_id"] for each in (await one.health())["servers"]]
        for times, text in enumerate(("servers: [", "core: {port: many}", "servers: [{id: one}]"), 1):
            one.write(text)
            one.hang_up()
            await one.until("the changed settings cannot be used, the old ones stay in force", times)
            health = await one.health()
            assert health["settings"]["state"] == "refused"
            assert [each["server_id"] for each in health["servers"]] == before
        one.settings["core"]["max_connections"] = 1000
        one.write()
        one.hang_up()
        assert (await one.until("the changed settings need a restart"))["settings"] == [
            "core.max_connections"
        ]
        assert (await one.health())["settings"]["keys"] == ["core.max_connections"]
        del one.settings["core"]["max_connections"]
        one.write()
        one.hang_up()
        await one.until("the settings are in force")
        assert (await one.health())["settings"]["state"] == "in_force"


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
    argv: list[str | Path] = [
        sys.executable,
        "-c",
        IN_A_TERMINAL,
        "-m",
        "adapter",
        "serve",
        "--config",
        config,
    ]
    async with await start(argv, tmp_path / "log") as terminal:
        await answers(f"http://127.0.0.1:{port}/livez", terminal)
        await terminal.say("")
        assert await terminal.line(PATIENCE) == "0"
