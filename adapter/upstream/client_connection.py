"""A connection to an MCP server for a command, on the official SDK."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from adapter.rules.access.authorization_servers import Challenge

MODERN = "2026-07-28"
"""The first revision without sessions."""

PATIENCE = 30.0
"""Seconds in which a server connects, or answers."""

_MOST_PAGES = 1000
_LONGEST_REFUSAL = 1 << 16

_FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, MCPError, OSError, ValueError)


class ServerRefused(Exception):
    """A server that cannot be reached, or that answered a request with an error.

    ``str(error)`` is one sentence for people; ``data`` is what the error of a request has beside its message.
    """

    def __init__(self, sentence: str, data: Any = None) -> None:
        super().__init__(sentence)
        self.data = data


class TokenRefused(ServerRefused):
    """A server that asks for a token, or for another one. ``data`` is the URL of its OAuth metadata, or None."""


@dataclass(frozen=True)
class McpServer:
    """An MCP server with a connected client. Each method raises ServerRefused."""

    client: Client

    @property
    def has_sessions(self) -> bool:
        """True if the connection is a session that ends with it (MCP through 2025-11-25)."""
        return self.client.protocol_version < MODERN

    async def tools(self) -> list[dict[str, Any]]:
        """Return the definitions of the tools as JSON has them, of at most 1,000 pages."""
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await _answered(self.client.list_tools(cursor=cursor))
            found += [_json(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
        return found

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a call as JSON has it."""
        result = await _answered(self.client.call_tool(tool, arguments))
        if result.is_error:
            said = " ".join(block.text for block in result.content if block.type == "text")
            raise ServerRefused(said or f"The tool {tool} failed.")
        return _json(result)

    async def read(self, uri: str) -> list[dict[str, Any]]:
        """Return the contents of a resource as JSON has them: each with ``text``, or with ``blob`` in base64."""
        result = await _answered(self.client.read_resource(uri))
        return [_json(content) for content in result.contents]


@asynccontextmanager
async def connected(url: str, headers: Mapping[str, str]) -> AsyncIterator[McpServer]:
    """Connect to the server at ``url`` in the newest era that it speaks. Raises ServerRefused."""
    answers: list[httpx2.Response] = []

    async def note(response: httpx2.Response) -> None:
        answers[:] = [response]
        if response.status_code in (401, 403) and _is_short_json(response):
            await response.aread()

    try:
        async with (
            httpx2.AsyncClient(
                headers=dict(headers), timeout=PATIENCE, event_hooks={"response": [note]}
            ) as http,
            Client(streamable_http_client(url, http_client=http), read_timeout_seconds=PATIENCE) as client,
        ):
            yield McpServer(client)
    except BaseExceptionGroup as group:
        # The SDK runs its transport in task groups, which wrap whatever ends them.
        raise _cause(url, _first(group), *answers) from None
    except _FAILURES as failure:
        raise _cause(url, failure, *answers) from None


def _first(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def _is_short_json(response: httpx2.Response) -> bool:
    length = response.headers.get("Content-Length", "")
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    return is_json and length.isdecimal() and int(length) <= _LONGEST_REFUSAL


def _said(answer: httpx2.Response) -> str | None:
    """The ``detail`` of an answer by a route of the adapter that is no MCP endpoint, such as that for uploads."""
    with contextlib.suppress(ValueError, httpx2.StreamError):
        detail = orjson.loads(answer.content) if _is_short_json(answer) else None
        if isinstance(detail, dict) and isinstance(detail.get("detail"), str):
            return str(detail["detail"])
    return None


def _cause(url: str, failure: BaseException, answer: httpx2.Response | None = None) -> BaseException:
    """The failure for people. ``answer`` is the last that came."""
    if not isinstance(failure, _FAILURES):
        return failure
    status = answer.status_code if answer is not None else None
    if answer is not None and status in (401, 403):
        if (detail := _said(answer)) is not None:
            return ServerRefused(f"{url} is not the address of a server, such as /mcp/SERVER: {detail}")
        return TokenRefused(
            f"{url} needs a token, or refuses this one: pass --token or set MCP_ADAPTER_TOKEN.",
            Challenge(answer.headers.get("www-authenticate")).metadata,
        )
    if status == 404:
        return ServerRefused(f"Nothing is served at {url}: check the path, for example /mcp/SERVER.")
    if isinstance(failure, MCPError):
        # The message of the answer says what to do; its status, 200 for a legacy client, says nothing.
        return ServerRefused(f"{url} opens no session: {failure.message}")
    if status is not None:
        return ServerRefused(f"{url} does not answer as an MCP server: HTTP status {status}, {failure}")
    return ServerRefused(f"{url} cannot be reached: {failure}")


async def _answered(request: Any) -> Any:
    try:
        return await request
    except MCPError as refused:
        raise ServerRefused(refused.message, refused.data) from None


def _json(value: Any) -> dict[str, Any]:
    shown: dict[str, Any] = value.model_dump(by_alias=True, mode="json", exclude_none=True)
    return shown
