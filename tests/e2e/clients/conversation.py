"""How a client script talks with its test: a JSON object a line, commands in, what came of them out.

A script is started with the URL and a JSON object of headers. It says ``{"step": "start"}`` when it has loaded
and ``connect`` when it has connected or could not. Then it obeys ``list``, ``call`` (``tool``, ``arguments``)
and ``together`` (the same, ``count`` at once), until its standard input ends. Each answer has ``step``, ``ok``
and ``text``; ``together`` has one of them for each call.
Only the standard library is used here, because every client brings an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class Caller(Protocol):
    """A connected client; failures are raised, also what the server calls an error of the tool."""

    async def list(self) -> str:
        """The names of the tools, with blanks between them."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """The text of the result."""


Connect = Callable[[str, dict[str, str]], AbstractAsyncContextManager[Caller]]
"""Connects to a URL with these headers on every request."""


async def converse(connect: Connect) -> None:
    """Connects as the arguments say and obeys until the input ends; what ends the connection is told too."""
    connected = False
    _tell("start", ok=True)
    try:
        async with connect(sys.argv[1], json.loads(sys.argv[2])) as caller:
            connected = True
            _tell("connect", ok=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                await _obey(caller, json.loads(line))
    except Exception as error:
        _tell("end" if connected else "connect", ok=False, text=_sentence(error))


async def _obey(caller: Caller, command: dict[str, Any]) -> None:
    step = command["step"]
    count = command.get("count", 1)
    work = [caller.list() if step == "list" else _call(caller, command) for _ in range(count)]
    results = await asyncio.gather(*work, return_exceptions=True)
    answers = [_answer(result) for result in results]
    if step == "together":
        _tell(step, ok=True, answers=answers)
    else:
        _tell(step, **answers[0])


async def _call(caller: Caller, command: dict[str, Any]) -> str:
    return await caller.call(command["tool"], command["arguments"])


def _answer(result: str | BaseException) -> dict[str, Any]:
    if isinstance(result, BaseException):
        return {"ok": False, "text": _sentence(result)}
    return {"ok": True, "text": result}


def _sentence(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_sentence(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"


def _tell(step: str, **more: Any) -> None:
    print(json.dumps({"step": step, **more}), flush=True)
