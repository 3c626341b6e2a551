"""A survey of an MCP server by an official client: the same questions, answered directly and through the adapter.

What is compared are the models of the SDK, dumped with every key that came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import mcp_types
from mcp import ClientSession, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

PATIENCE = 20.0
"""Seconds that one answer, or the last thing that is heard, may take."""


class ToolUse(NamedTuple):
    """One call of a survey; ``reports``: with a progress token."""

    tool: str
    arguments: dict[str, Any]
    reports: bool = False


ROOTS = ("'roots/list'", "Roots updated")
"""A server may ask for the roots once or twice, as its timers have it."""


class Survey:
    """The answers of a server by question, and what it said and asked by itself, in the order of its text."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self._heard: list[str] = []
        self._more = asyncio.Event()

    @property
    def heard(self) -> list[str]:
        return sorted(self._heard)

    def hear(self, message: BaseModel | Exception) -> None:
        said = repr(dumped(message))
        if said in self._heard and any(word in said for word in ROOTS):
            return
        self._heard.append(said)
        self._more.set()

    async def until(self, count: int) -> None:
        """Wait until so many messages were heard."""
        async with asyncio.timeout(PATIENCE):
            while len(self._heard) < count:
                self._more.clear()
                await self._more.wait()

    async def ask(self, question: str, asking: Awaitable[Any]) -> Any:
        """Note the answer to a question, also where it is an error."""
        assert question not in self.answers, question
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await asking
        except MCPError as error:
            self.answers[question] = {"error": dumped(error.error)}
            return None
        self.answers[question] = dumped(answer)
        return answer


def dumped(value: Any) -> Any:
    """A model with every key that came, anything else as it is."""
    return value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else repr(value)


@asynccontextmanager
async def session_at(url: str, survey: Survey, *, sse: bool) -> AsyncIterator[ClientSession]:
    """The SDK's client, which answers what it is asked, and tells the survey."""

    async def listed_roots(context: Any) -> mcp_types.ListRootsResult:
        del context
        survey.hear(mcp_types.ListRootsRequest())
        return mcp_types.ListRootsResult(roots=[mcp_types.Root(uri="file:///tmp/a", name="a")])  # type: ignore[arg-type]  # the model reads the text

    async def sampled(
        context: Any, params: mcp_types.CreateMessageRequestParams
    ) -> mcp_types.CreateMessageResult:
        del context
        survey.hear(params)
        text = mcp_types.TextContent(type="text", text="sampled")
        return mcp_types.CreateMessageResult(role="assistant", content=text, model="m", stop_reason="endTurn")

    async def elicited(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        del context
        survey.hear(params)
        return mcp_types.ElicitResult(action="decline")

    async def noticed(message: Any) -> None:
        if isinstance(message, BaseModel):
            survey.hear(message)

    connecting = sse_client(url) if sse else streamable_http_client(url)
    async with (
        connecting as streams,
        ClientSession(
            streams[0],
            streams[1],
            read_timeout_seconds=PATIENCE,
            list_roots_callback=listed_roots,
            sampling_callback=sampled,
            elicitation_callback=elicited,
            message_handler=noticed,
        ) as session,
    ):
        await survey.ask("initialize", session.initialize())
        yield session


async def surveyed(url: str, uses: list[ToolUse], *, sse: bool, hears: int = 0) -> Survey:
    """Ask a server everything: lists, each resource and prompt, these calls, and questions that it must refuse."""
    survey = Survey()
    async with session_at(url, survey, sse=sse) as session:
        await survey.ask("ping", session.send_ping())
        await _lists(survey, session)
        for number, use in enumerate(uses):
            await survey.ask(f"call {number} {use.tool}", _call(survey, session, use))
        await survey.ask("call nobody", session.call_tool("no-such-tool", {}))
        await survey.ask("read nothing", session.read_resource("nothing://here"))
        await survey.ask("prompt nothing", session.get_prompt("no-such-prompt"))
        await survey.until(hears)
    return survey


async def _lists(survey: Survey, session: ClientSession) -> None:
    await survey.ask("tools", session.list_tools())
    await survey.ask("templates", session.list_resource_templates())
    resources = await survey.ask("resources", session.list_resources())
    for resource in resources.resources if resources is not None else ():
        await survey.ask(f"read {resource.uri}", session.read_resource(str(resource.uri)))
    prompts = await survey.ask("prompts", session.list_prompts())
    for prompt in prompts.prompts if prompts is not None else ():
        await survey.ask(f"prompt {prompt.name}", session.get_prompt(prompt.name))


def _call(survey: Survey, session: ClientSession, use: ToolUse) -> Awaitable[Any]:
    async def reported(progress: float, total: float | None, message: str | None) -> None:
        survey.hear(mcp_types.ProgressNotificationParams(
            progress_token=use.tool, progress=progress, total=total, message=message,
        ))  # fmt: skip

    return session.call_tool(use.tool, use.arguments, progress_callback=reported if use.reports else None)
