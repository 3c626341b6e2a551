"""A survey of a server by the Python SDK 1.x: ``-m tests.e2e.clients.survey_v1 QUESTIONS``.

QUESTIONS is a JSON object: ``target`` (``url`` of streamable HTTP, ``sse`` of a server over SSE, or ``command`` and
``args`` of a process), ``calls`` (name and arguments of tools) and ``hears`` (messages that come by themselves). It
says one JSON object: ``answers`` by question, a refusal as its code, text and data; and ``heard``, in the order of
the text. ``survey.mjs`` is the same for the TypeScript SDKs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

# By name: the project's own environment, which the type checker sees, holds another major version.
mcp: Any = import_module("mcp")
http: Any = import_module("mcp.client.streamable_http")
sse: Any = import_module("mcp.client.sse")
types: Any = import_module("mcp.types")
exceptions: Any = import_module("mcp.shared.exceptions")


class Survey:
    """The answers by question, and what came by itself."""

    def __init__(self, hears: int) -> None:
        self.answers: dict[str, Any] = {}
        self.heard: list[str] = []
        self._hears = hears
        self._more = asyncio.Event()

    async def ask(self, question: str, asking: Awaitable[Any]) -> Any:
        """Note the answer, also where it is an error."""
        try:
            answer = await asking
        except exceptions.McpError as error:
            self.answers[question] = {"refused": dumped(error.error)}
            return None
        self.answers[question] = dumped(answer)
        return answer

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ServerNotification):
            self.heard.append(json.dumps(dumped(message), sort_keys=True))
            self._more.set()

    async def everything(self) -> None:
        """Wait until what comes by itself has come."""
        while len(self.heard) < self._hears:
            self._more.clear()
            await self._more.wait()


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True)


@asynccontextmanager
async def streams(target: dict[str, Any]) -> AsyncIterator[Any]:
    """What the session reads and writes."""
    if "url" in target:
        connecting = http.streamable_http_client(target["url"])
    elif "sse" in target:
        connecting = sse.sse_client(target["sse"])
    else:
        connecting = mcp.stdio_client(mcp.StdioServerParameters(**target))
    async with connecting as found:
        yield found[:2]


async def surveyed(questions: dict[str, Any]) -> Survey:
    """Ask everything."""
    survey = Survey(questions["hears"])
    async with (
        streams(questions["target"]) as (read, write),
        mcp.ClientSession(read, write, message_handler=survey.hear) as session,
    ):
        await survey.ask("initialize", session.initialize())
        await survey.ask("ping", session.send_ping())
        await lists(survey, session)
        for number, (tool, arguments) in enumerate(questions["calls"]):
            await survey.ask(f"call {number} {tool}", session.call_tool(tool, arguments))
        await survey.ask("read nothing", session.read_resource(types.AnyUrl("nothing://here")))
        await survey.ask("prompt nothing", session.get_prompt("no-such-prompt"))
        await survey.everything()
    return survey


async def lists(survey: Survey, session: Any) -> None:
    await survey.ask("tools", session.list_tools())
    await survey.ask("templates", session.list_resource_templates())
    resources = await survey.ask("resources", session.list_resources())
    for resource in resources.resources if resources else ():
        await survey.ask(f"read {resource.uri}", session.read_resource(resource.uri))
    prompts = await survey.ask("prompts", session.list_prompts())
    for prompt in prompts.prompts if prompts else ():
        await survey.ask(f"prompt {prompt.name}", session.get_prompt(prompt.name))


async def main() -> None:
    """Say the survey."""
    survey = await surveyed(json.loads(sys.argv[1]))
    print(json.dumps({"answers": survey.answers, "heard": sorted(survey.heard)}))


if __name__ == "__main__":
    asyncio.run(main())
