"""A conversation with a client script of ``clients/``: commands to its process, answers in time."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.processes import START_TIMEOUT, Running, start
from tests.e2e.provision import HERE, packages

PATIENCE = 10.0
"""Seconds within which every client must know what came of a call, or why it failed."""


Command = Callable[[str], list[str | Path]]
"""The command line of a client by its name, without its URL and headers."""


class Talk:
    """One client's conversation; every answer has to come in time."""

    def __init__(self, name: str, running: Running) -> None:
        self.name = name
        self._running = running

    async def answer(self, timeout: float = PATIENCE) -> dict[str, Any]:
        """The next thing the client tells. Raises TimeoutError when it hangs."""
        told: dict[str, Any] = json.loads(await self._running.line(timeout))
        return told

    async def say(self, step: str, **more: Any) -> None:
        """Gives a command without waiting for what comes of it."""
        await self._running.say(json.dumps({"step": step, **more}))

    async def ask(self, step: str, *, timeout: float = PATIENCE, **more: Any) -> dict[str, Any]:
        """Gives a command and returns what came of it."""
        await self.say(step, **more)
        return await self.answer(timeout)

    async def echo(self, text: str) -> dict[str, Any]:
        """Calls the upstream's tool that gives back its text."""
        return await self.ask("call", tool="echo", arguments={"text": text})


def commands(node: Path, mcp1: Path, fastmcp4: Path) -> Command:
    """The command lines of the official clients, with the programs that run them."""
    pythons = {"python_v1": mcp1, "python_v2": Path(sys.executable), "fastmcp4": fastmcp4}

    def line(name: str) -> list[str | Path]:
        script = name.split()[0]
        if script.startswith("ts_"):
            return [node, HERE / "clients" / f"{script}.mjs"]
        return [pythons[script], "-m", f"tests.e2e.clients.{script}"]

    return line


@asynccontextmanager
async def opened(
    command: Command,
    name: str,
    url: str,
    place: Path,
    headers: Mapping[str, str] | None = None,
    **variables: str,
) -> AsyncIterator[Talk]:
    """The client called ``name``, loaded; its first answer says whether it connected to ``url``."""
    script, *mode = name.split()
    argv = [*command(script), url, json.dumps(dict(headers or {})), *mode]
    log = place / f"{' '.join([name, *variables.values()])}.log"
    async with await start(argv, log, {"NODE_PACKAGES": str(packages()), **variables}) as running:
        talk = Talk(name, running)
        assert (await talk.answer(START_TIMEOUT))["step"] == "start"
        yield talk


@asynccontextmanager
async def connected(
    command: Command,
    name: str,
    url: str,
    place: Path,
    headers: Mapping[str, str] | None = None,
    within: float = PATIENCE,
    **variables: str,
) -> AsyncIterator[Talk]:
    """The client called ``name``, which connected to ``url`` in so many seconds."""
    async with opened(command, name, url, place, headers, **variables) as client:
        told = await client.answer(within)
        assert told["ok"], (name, told)
        yield client
