"""The adapter as a service of systemd: what its manager is told, by which process, read from a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.processes import Running, start
from tests.ports import free_port
from tests.waiting import until

pytestmark = pytest.mark.e2e

PATIENCE = 60.0
"""Seconds for anything that a busy machine may take its time for."""

_CREDENTIALS = struct.calcsize("3i")


@dataclass
class Managed:
    """A service and its manager's end of the socket. ``senders`` are the processes that have told something."""

    running: Running
    opened: socket.socket
    config: Path
    port: int
    senders: set[int]

    async def heard(self) -> dict[str, str]:
        """The next message."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()
        loop.add_reader(self.opened, arrived.set)
        try:
            async with asyncio.timeout(PATIENCE):
                await arrived.wait()
        finally:
            loop.remove_reader(self.opened)
        text, extra, _, _ = self.opened.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS))
        self.senders.add(struct.unpack("3i", extra[0][2])[0])
        return dict(line.split("=", 1) for line in text.decode().split("\n"))

    async def until(self, name: str) -> dict[str, str]:
        """The next message of a kind; signs of life may come between."""
        while name not in (message := await self.heard()):
            assert "WATCHDOG" in message, message
        return message

    async def alive(self) -> bool:
        """Tell whether the port answers now."""
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}/livez") as answer:
            return answer.status == 200

    async def ended(self) -> int | None:
        """Stop the service; it says so first."""
        self.running.process.send_signal(signal.SIGTERM)
        await self.until("STOPPING")
        async with asyncio.timeout(PATIENCE):
            return await self.running.process.wait()


def settings(place: Path, port: int, **core: Any) -> dict[str, Any]:
    program = {
        "transport": "stdio",
        "command": "/bin/sh",
        "args": ["-c", f"env > {place}/environment; exec cat"],
    }
    return {
        "core": {
            "port": port,
            "watch": False,
            "upstream_ping": {"enabled": False},
            "shutdown_grace_seconds": 1,
            **core,
        },
        "storage": {"root": str(place / "data")},
        "servers": [{"id": "one", "mount_path": "/mcp", "upstream": program}],
    }


@asynccontextmanager
async def managed(place: Path, address: str, **core: Any) -> AsyncIterator[Managed]:
    """The service, from its start on. ``address`` is the socket's, as NOTIFY_SOCKET has it."""
    port, config = free_port(), place / "config.json"
    config.write_text(json.dumps(settings(place, port, **core)))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(f"\0{address[1:]}" if address[0] == "@" else address)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        opened.setblocking(False)
        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "300000"}
        argv = [sys.executable, "-m", "adapter", "serve", "--config", str(config)]
        async with await start(argv, place / "adapter.log", environment) as running:
            yield Managed(running, opened, config, port, set())


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_service_tells_its_manager(tmp_path: Path, workers: int) -> None:
    """Ready is said once the port answers, and after a reload; the supervisor of workers speaks alone, and programs
    know nothing of the socket."""
    address = str(tmp_path / "notify") if workers == 1 else f"@adapter-test-{os.getpid()}"
    status = "serving" if workers == 1 else "serving with 2 workers"
    async with managed(tmp_path, address, workers=workers) as one:
        assert (await one.heard()) == {"READY": "1", "STATUS": status}
        assert await one.alive()
        began = time.monotonic()
        assert [await one.heard() for _ in range(3)] == [{"WATCHDOG": "1"}] * 3
        assert time.monotonic() - began > 0.15
        one.running.process.send_signal(signal.SIGHUP)
        reloading = await one.until("RELOADING")
        assert int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert (await one.until("READY"))["STATUS"] == status
        one.config.write_text("core: {port: many}")
        one.running.process.send_signal(signal.SIGHUP)
        await one.until("RELOADING")
        assert "serving with the old settings" in (await one.until("READY"))["STATUS"]
        assert await one.alive()
        opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        client = asyncio.create_task(_posted(one.port, opening))
        await until((tmp_path / "environment").exists, PATIENCE)
        client.cancel()
        assert not [line for line in (tmp_path / "environment").read_text().splitlines() if "NOTIFY" in line]
        assert await one.ended() == 0
        assert one.senders == {one.running.process.pid}


async def _posted(port: int, message: dict[str, Any]) -> None:
    fields = {"Accept": "application/json, text/event-stream"}
    async with aiohttp.ClientSession() as http:
        await http.post(f"http://127.0.0.1:{port}/mcp", json=message, headers=fields)


async def test_a_start_that_fails_is_the_status_of_the_service(tmp_path: Path) -> None:
    """``systemctl status`` shows the sentence of the log; the service never said that it is ready."""
    (tmp_path / "data").touch()
    async with managed(tmp_path, str(tmp_path / "notify")) as one:
        message = await one.heard()
        assert set(message) == {"STATUS"} and message["STATUS"].startswith("could not start: ")
        assert "remove the file that is in its place" in message["STATUS"]
        async with asyncio.timeout(PATIENCE):
            assert await one.running.process.wait() == 1
