"""The features of MCP as a client script finds them: ``-m tests.e2e.clients.SCRIPT QUESTIONS``.

QUESTIONS is a JSON object: ``targets``, URLs by name, and ``mode`` of the SDK. The script says one JSON object: for
each target what came of each feature, as a text. That of a failure begins with ``!``. ``features.mjs`` is the same for
the TypeScript SDKs. Only the standard library is used here, because every client brings an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Protocol
from uuid import uuid4

PATIENCE = 30.0
"""Seconds for one feature: eight clients may share two cores."""

AGAIN = 1.0
"""Seconds until a change is made once more: a client cannot know when its own stream is open."""

WATCHED = "test://watched-resource"

Progress = Callable[[float], None]


class Client(Protocol):
    """A connected client. All answers are texts."""

    async def tools(self) -> str: ...

    async def call(self, tool: str, arguments: dict[str, Any], reported: Progress | None = None) -> str: ...

    async def log(self, tool: str) -> str:
        """Calls the tool, and wants its log messages."""

    async def resource(self, uri: str) -> str: ...

    async def prompt(self, name: str) -> str: ...

    async def listen(self, uri: str) -> AbstractAsyncContextManager[Any] | None:
        """Hear of changes of tools, and of this resource, until the block ends if there is one."""

    async def cancelled(self, tool: str, arguments: dict[str, Any]) -> None:
        """Calls the tool, and cancels that when it reports progress."""


class Heard:
    """What came by itself; ``until`` waits for it."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def __call__(self, method: str) -> None:
        self._events.setdefault(method, asyncio.Event()).set()

    async def until(self, method: str, seconds: float = PATIENCE) -> None:
        async with asyncio.timeout(seconds):
            await self._events.setdefault(method, asyncio.Event()).wait()


class Features:
    """Tries each feature, and notes what came of it."""

    def __init__(self, client: Client, heard: Heard) -> None:
        self._client = client
        self._heard = heard
        self.found: dict[str, str] = {"connect": "connected"}

    async def all(self) -> None:
        """Try them all, one after the other."""
        client = self._client
        await self._note("tools", client.tools())
        await self._note("call", client.call("test_simple_text", {}))
        await self._note("progress", self._progress())
        await self._note("log", self._log())
        await self._note("elicit", client.call("test_elicitation", {"message": "Who?"}))
        await self._note("sample", client.call("test_sampling", {"prompt": "Say it"}))
        await self._note("roots", client.call("test_input_required_result_list_roots", {}))
        await self._note("resource", client.resource("test://static-text"))
        await self._note("prompt", client.prompt("test_simple_prompt"))
        async with AsyncExitStack() as stack:
            if (listening := await client.listen(WATCHED)) is not None:
                await stack.enter_async_context(listening)
            tools, resource = "notifications/tools/list_changed", "notifications/resources/updated"
            await self._note("list_changed", self._change("test_trigger_tool_change", tools))
            await self._note("subscribe", self._change("test_trigger_resource_change", resource))
        await self._note("cancel", self._cancel())
        await self._note("after", client.call("test_simple_text", {}))

    async def _note(self, feature: str, trying: Awaitable[str]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                self.found[feature] = await trying
        except Exception as error:
            self.found[feature] = sentence(error)

    async def _progress(self) -> str:
        seen: list[float] = []
        await self._client.call("test_tool_with_progress", {}, seen.append)
        return " ".join(f"{each:g}" for each in seen)

    async def _log(self) -> str:
        said = await self._client.log("test_logging_tool")
        await self._heard.until("notifications/message")
        return said

    async def _change(self, tool: str, method: str) -> str:
        while True:
            said = await self._client.call(tool, {})
            try:
                await self._heard.until(method, AGAIN)
            except TimeoutError:
                continue
            return said

    async def _cancel(self) -> str:
        name = str(uuid4())
        await self._client.cancelled("test_wait", {"name": name})
        return await self._client.call("test_ended", {"name": name})


def sentence(error: BaseException) -> str:
    """What a failure says."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(sentence(each) for each in error.exceptions)
    return f"!{type(error).__name__}: {error}"


Connect = Callable[[str, str, Heard], AbstractAsyncContextManager[Client]]
"""Connects to a URL in a mode."""


async def found_at(connect: Connect, url: str, mode: str) -> dict[str, str]:
    """What came of all features there."""
    heard = Heard()
    features: Features | None = None
    try:
        async with connect(url, mode, heard) as client:
            features = Features(client, heard)
            await features.all()
    except Exception as error:
        if features is None:
            return {"connect": sentence(error)}
        features.found["close"] = sentence(error)
    return features.found


async def main(connect: Connect) -> None:
    """Say what was found at all targets, at once."""
    questions = json.loads(sys.argv[1])
    targets = questions["targets"]
    found = await asyncio.gather(*(found_at(connect, url, questions["mode"]) for url in targets.values()))
    print(json.dumps(dict(zip(targets, found, strict=True))), flush=True)
