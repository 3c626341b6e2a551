"""Real processes for end-to-end tests: servers, the adapter and clients, each started, watched and stopped here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.e2e.provision import ROOT
from tests.ports import free_port

START_TIMEOUT = 20.0
"""Seconds until a started process says its first word or opens its port."""

PROBE_TIMEOUT = 2.0
"""Seconds one question for a process's health may take before it is asked again."""

STOP_TIMEOUT = 5.0
"""Seconds a process gets to end after SIGTERM."""

LINE_LIMIT = 8 * 2**20
"""Longest line read from a process, in bytes: a client prints a whole result on one."""


@dataclass
class Running:
    """A process whose output lines are read by the test and whose errors go to ``log``."""

    process: asyncio.subprocess.Process
    log: Path
    argv: Sequence[str]

    async def line(self, timeout: float) -> str:
        """The next line it prints. Raises TimeoutError, and EOFError with its log when it has ended."""
        assert self.process.stdout is not None
        async with asyncio.timeout(timeout):
            line = await self.process.stdout.readline()
        if not line:
            raise EOFError(f"{self.argv} ended: {self.log.read_text()[-2000:]}")
        return line.decode().rstrip("\n")

    async def say(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        await self.process.stdin.drain()

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL for what does not end by it, to the process and all it started."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await self._ended()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL to the process and all it started: nothing gets to say goodbye."""
        self._signal(signal.SIGKILL)
        await self._ended()

    def _signal(self, number: signal.Signals) -> None:
        # It may have ended by itself a moment ago.
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _ended(self) -> None:
        # Reads what is left too: an unread pipe keeps its transport open after the process has gone.
        await self.process.communicate()


async def start(
    argv: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
) -> Running:
    """Starts a process in a group of its own, in the root of the repository; ``environment`` joins ours."""
    command = [str(part) for part in argv]
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=LINE_LIMIT,
            start_new_session=True,
        )
    return Running(process, log, command)


@dataclass
class Restartable(ABC):
    """A process that can be killed and started again; as a block, it runs until the block ends."""

    running: Running | None = field(default=None, init=False)

    @abstractmethod
    async def start(self) -> None:
        """Returns when it can be used."""

    async def kill(self) -> None:
        """SIGKILL; nothing listens on the port any more, and what was not stored is lost."""
        assert self.running is not None
        await self.running.kill()

    async def stop(self) -> None:
        """Ends it, if it was not ended before."""
        if self.running is not None:
            await self.running.stop()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


@dataclass
class Server(Restartable):
    """An upstream of ours, ``python -m MODULE PORT``; it keeps its port when it is started again."""

    module: str
    place: Path
    arguments: Sequence[str | Path] = ()
    port: int = 0
    url: str = ""

    async def start(self) -> None:
        """Returns when it listens."""
        log = self.place / f"{self.module}.log"
        command = [sys.executable, "-m", self.module, str(self.port), *self.arguments]
        self.running = await start(command, log)
        self.url = await self.running.line(START_TIMEOUT)
        self.port = int(self.url.split(":")[2].split("/")[0])


@dataclass
class Adapter(Restartable):
    """The adapter as its own process, with a settings file and a store of its own in ``place``.

    ``launcher`` is a command that ends as the one it is given, in surroundings of its making.
    """

    place: Path
    settings: Mapping[str, Any]
    port: int = field(default_factory=free_port)
    launcher: Sequence[str | Path] = ()

    @property
    def base(self) -> str:
        """``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The mount of the first server."""
        return f"{self.base}{self.settings['servers'][0]['mount_path']}"

    async def start(self) -> None:
        """Returns when the port is open and every upstream was reached once."""
        config = self.place / "adapter.json"
        config.write_text(json.dumps(self.settings))  # JSON is YAML too
        serve: list[str | Path] = [
            sys.executable,
            "-m",
            "adapter",
            "serve",
            "--config",
            config,
            "--port",
            str(self.port),
        ]
        self.running = await start([*self.launcher, *serve], self.place / "adapter.log")
        await answers(f"{self.base}/livez", self.running)
        await answers(f"{self.base}/readyz", self.running)


def adapter(
    place: Path,
    upstream: str | Mapping[str, Any],
    *,
    adapters: Sequence[Mapping[str, Any]] = (),
    entry: Mapping[str, Any] | None = None,
    launcher: Sequence[str | Path] = (),
    **sections: Mapping[str, Any] | Sequence[Mapping[str, Any]],
) -> Adapter:
    """The adapter with one server at ``/mcp``, whose files ``adapters`` move: ``upstream``, by its URL or settings.

    ``entry`` has more of the server's keys, and ``sections`` join the settings file.
    """
    transport = {"url": upstream} if isinstance(upstream, str) else upstream
    mount = {"id": "upstream", "mount_path": "/mcp", "upstream": transport, "adapters": list(adapters)}
    settings = {"storage": {"root": str(place / "data")}, "servers": [{**mount, **(entry or {})}], **sections}
    return Adapter(place, settings, launcher=launcher)


async def listens(port: int, running: Running) -> None:
    """Returns when something accepts connections on ``port``. Raises TimeoutError with the process's log."""
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and running.process.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return
    raise TimeoutError(f"nothing listens on {port}: {running.log.read_text()[-2000:]}")


async def answers(url: str, running: Running) -> None:
    """Returns when ``url`` answers 200. Raises TimeoutError with the process's log when it does not in time."""
    deadline = time.monotonic() + START_TIMEOUT
    last: object = "nothing was tried"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_TIMEOUT)) as http:
        while time.monotonic() < deadline and running.process.returncode is None:
            try:
                async with http.get(url) as response:
                    if response.status == 200:
                        return
                    last = f"{response.status} {await response.text()}"
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                last = repr(error)  # the port is not open yet, or the machine is busy
            await asyncio.sleep(0.05)
    raise TimeoutError(f"{url} does not answer 200 but {last}: {running.log.read_text()[-2000:]}")
