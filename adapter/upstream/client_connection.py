"""A connection to an MCP server for a command, on the official SDK."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import httpx2
import orjson
from mcp import Client, MCPError
from mcp.client.auth import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import URL_ELICITATION_REQUIRED, CallToolResult, ElicitResult

from adapter.rules.access.authorization_servers import Challenge
from adapter.upstream.client_refusals import ServerRefused as ServerRefused
from adapter.upstream.client_refusals import TokenRefused as TokenRefused
from adapter.upstream.client_sign_in import TerminalSignIn
from adapter.wire.envelope import list_at

MODERN = "2026-07-28"
"""The first revision without sessions."""

PATIENCE = 30.0
"""Seconds in which a server connects, or answers."""

LARGEST_ANSWER = 256 << 20
"""Bytes of an answer, or of one event of a stream."""

_MOST_PAGES = 1000
_MOST_TOOLS = 100_000
_MOST_VISITS = 3
_MOST_LINKS = 10
_LONGEST_REFUSAL = 1 << 16

_PLAIN: Mapping[str, str] = {"Accept-Encoding": "identity"}

_FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, MCPError, OAuthFlowError, OSError, ValueError)


class Person(Protocol):
    """The person for whom a server is called. Values are as JSON has them."""

    async def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The result of an elicitation, for its parameters."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Show how far a call is."""

    async def log(self, level: str, data: Any) -> None:
        """Show a message of the server's log."""


@dataclass(frozen=True)
class McpServer:
    """An MCP server with a connected client. Each method raises ServerRefused."""

    client: Client
    person: Person | None = None

    @property
    def has_sessions(self) -> bool:
        """True if the connection is a session that ends with it (MCP through 2025-11-25)."""
        return self.client.protocol_version < MODERN

    async def tools(self) -> list[dict[str, Any]]:
        """Return the definitions of the tools as JSON has them, of at most 1,000 pages and
        about 100,000 tools."""
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await _answered(self.client.list_tools(cursor=cursor))
            found += [_json(tool) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor or len(found) >= _MOST_TOOLS:
                break
        return found

    async def notes_on_tools(self) -> dict[str, Any]:
        """Return the ``_meta`` of the list of tools, as it is now."""
        notes: dict[str, Any] = _json(await _answered(self.client.list_tools())).get("_meta") or {}
        return notes

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a call as JSON has it."""
        result = await _answered(self.client.call_tool(tool, arguments))
        if result.is_error:
            said = " ".join(block.text for block in result.content if block.type == "text")
            raise ServerRefused(said or f"The tool {tool} failed.")
        return _json(result)

    async def result(self, tool: str, arguments: dict[str, Any], patience: float) -> dict[str, Any]:
        """Return the result of a call as JSON has it, also of one that failed.

        ``patience``: seconds to wait for it. Where the server first wants the person to visit addresses, they are
        shown, and the call is sent again.
        """
        person = self.person
        for last in (*[False] * _MOST_VISITS, True):
            try:
                progress = None if person is None else person.progress
                return _json(await self.client.call_tool(tool, arguments, patience, progress))
            except MCPError as refused:
                links = [] if last else _links(refused)
                if person is None or not links or not await _visited(person, links):
                    raise ServerRefused(refused.message, refused.data) from None
            except RuntimeError as wrong:  # of the SDK, for results that the tool does not promise
                raise ServerRefused(str(wrong)) from None
        raise AssertionError("the last answer is returned or raised")

    async def read(self, uri: str) -> list[dict[str, Any]]:
        """Return the contents of a resource as JSON has them: each with ``text``, or with ``blob`` in base64."""
        result = await _answered(self.client.read_resource(uri))
        return [_json(content) for content in result.contents]


@asynccontextmanager
async def connected(
    url: str,
    headers: Mapping[str, str],
    person: Person | None = None,
    sign_in: TerminalSignIn | None = None,
    patience: float = PATIENCE,
) -> AsyncIterator[McpServer]:
    """Connect to the server at ``url`` in the newest era that it speaks. Raises ServerRefused.

    ``person`` is shown what the server says, and asked what it asks. ``patience``: seconds without a byte of an answer.
    """
    answers: list[httpx2.Response] = []

    async def note(response: httpx2.Response) -> None:
        answers[:] = [response]
        if response.status_code in (401, 403) and _is_short_json(response):
            await response.aread()
        await _bound(response)

    limits = httpx2.Timeout(PATIENCE, read=patience)
    plain = {**_PLAIN, **headers}
    hooks = {"response": [note]}
    try:
        async with (
            httpx2.AsyncClient(headers=plain, timeout=limits, event_hooks=hooks, auth=sign_in) as http,
            _client(
                streamable_http_client(url, http_client=http, max_sse_event_size=LARGEST_ANSWER), person
            ) as client,
        ):
            yield McpServer(client, person)
    except BaseExceptionGroup as group:
        # The SDK runs its transport in task groups, which wrap whatever ends them.
        raise _cause(url, _first(group), sign_in, *answers) from None
    except _FAILURES as failure:
        raise _cause(url, failure, sign_in, *answers) from None


async def sign_in_again(
    sign_in: TerminalSignIn, url: str, status: int, challenge: str, refused: str | None, *, renews: bool
) -> None:
    """Obtain another token for ``url``, as TerminalSignIn.answer does. Raises ServerRefused."""
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [partial(_bound, streams=True)]}
    try:
        async with httpx2.AsyncClient(headers=_PLAIN, timeout=PATIENCE, event_hooks=hooks) as http:
            await sign_in.answer(http, status, challenge, refused, renews=renews)
    except _FAILURES as failure:
        raise _cause(url, failure, sign_in) from None


async def _bound(response: httpx2.Response, *, streams: bool = False) -> None:
    """Refuse an answer that may be larger than it looks, and bound any other; with ``streams`` also one of events."""
    if "content-encoding" in response.headers:
        # Nobody asked for it, and a few bytes of it may stand for gigabytes.
        raise httpx2.RemoteProtocolError("its answer is compressed, which was not asked for")
    if not response.is_stream_consumed and (streams or not _is_stream(response)):
        response.stream = _BoundedBody(response.stream)


def _client(transport: Any, person: Person | None) -> Client:
    """The SDK's client, whose callbacks are the person's."""
    if person is None:
        return Client(transport, read_timeout_seconds=PATIENCE)

    async def answer(context: Any, params: Any) -> ElicitResult:  # noqa: ARG001 (the SDK's names)
        return ElicitResult.model_validate(await person.answer(_json(params)))

    async def log(params: Any) -> None:
        await person.log(params.level, params.data)

    return Client(transport, read_timeout_seconds=PATIENCE, elicitation_callback=answer, logging_callback=log)


class _BoundedBody(httpx2.AsyncByteStream):
    """The body of an answer, up to a size."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for piece in self._stream:
            taken += len(piece)
            if taken > LARGEST_ANSWER:
                raise httpx2.RemoteProtocolError(f"its answer has more than {LARGEST_ANSWER} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _links(refused: MCPError) -> list[dict[str, Any]]:
    """The addresses that a person is to visit before a call, as elicitations (MCP 2025-11-25)."""
    data = refused.data if refused.code == URL_ELICITATION_REQUIRED else None
    return [each for each in list_at(data, "elicitations") if isinstance(each, dict)][:_MOST_LINKS]


async def _visited(person: Person, links: list[dict[str, Any]]) -> bool:
    """Tell whether the person visits all of them."""
    for link in links:
        if (await person.answer({**link, "mode": "url"}))["action"] != "accept":
            return False
    return True


def _is_stream(response: httpx2.Response) -> bool:
    return bool(response.headers.get("Content-Type", "").lower().startswith("text/event-stream"))


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


def _cause(
    url: str,
    failure: BaseException,
    sign_in: TerminalSignIn | None = None,
    answer: httpx2.Response | None = None,
) -> BaseException:
    """The failure for people. ``answer`` is the last that came."""
    if not isinstance(failure, _FAILURES):
        return failure
    if isinstance(failure, OAuthFlowError):
        if sign_in is not None and sign_in.has_begun:
            return ServerRefused(f"Signing in for {url} failed: {failure}.")
        return TokenRefused(
            f"{url} needs a token, so pass --token or set MCP_ADAPTER_TOKEN. Nobody can sign in there: {failure}."
        )
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


def tool_result(value: Any) -> dict[str, Any]:
    """The result of a call, checked against the protocol's types. Raises ValueError."""
    return _json(CallToolResult.model_validate(value))


async def _answered(request: Any) -> Any:
    try:
        return await request
    except MCPError as refused:
        raise ServerRefused(refused.message, refused.data) from None


def _json(value: Any) -> dict[str, Any]:
    shown: dict[str, Any] = value.model_dump(by_alias=True, mode="json", exclude_none=True)
    return shown
