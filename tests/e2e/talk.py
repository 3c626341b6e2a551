"""A conversation with a client script of ``clients/``: commands to its process, answers in time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.e2e.processes import START_TIMEOUT, Running, start

PATIENCE = 3.0
"""Seconds within which every client must know what came of a call, or why it failed."""


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


@asynccontextmanager
async def opened(
    name: str,
    argv: Sequence[str | Path],
    log: Path,
    *,
    url: str,
    mode: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Talk]:
    """The client script ``argv``, loaded; its first answer says whether it connected to ``url``."""
    command = [*argv, url, json.dumps(dict(headers or {})), *mode]
    running = await start(command, log, environment)
    try:
        talk = Talk(name, running)
        assert (await talk.answer(START_TIMEOUT))["step"] == "start"
        yield talk
    finally:
        await running.stop()
