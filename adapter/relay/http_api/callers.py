"""Callers over HTTP, their requests in the form that ingress gives to those of MCP clients, and what is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from adapter.errors import BadJson, UpstreamBroken
from adapter.relay.background import in_turns
from adapter.relay.exchange import ClientResponse
from adapter.relay.replies import LARGE, too_large
from adapter.rules.access.principals import Caller
from adapter.rules.tools.lists import long_response
from adapter.wire.envelope import METHOD_NOT_FOUND, parse, response_in

NO_INPUT = "The tool asks for more input, which a call over HTTP cannot give."

Message = dict[str, Any]
"""A JSON-RPC message."""

INITIALIZED: Message = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class ToolRefused(Exception):
    """A request was answered with a JSON-RPC error; ``str`` is its message."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class InputRequired(ToolRefused):
    """A modern server asks its client before it goes on (MCP 2026-07-28, InputRequiredResult). ``requests`` are by
    their keys; ``state`` is given back with the answers.
    """

    def __init__(self, requests: Mapping[str, Any], state: str | None) -> None:
        super().__init__(METHOD_NOT_FOUND, NO_INPUT)
        self.requests = requests
        self.state = state


class Who(NamedTuple):
    """A caller over HTTP, which all requests on one connection share. ``tab`` tells apart what one principal does in
    several places.

    ``base`` is the URL under which it knows the adapter. ``answers`` says that a person is there who can answer what
    servers ask (elicitation).
    """

    caller: Caller
    tab: str | None = None
    base: str = ""
    answers: bool = False

    @property
    def principal(self) -> str:
        """The name of the caller."""
        return self.caller.principal


class KeptSession(NamedTuple):
    """An open legacy session of ``principal`` as any process may go on with it. ``id`` is the adapter's."""

    principal: str
    id: str
    version: str | None


# --- answers --------------------------------------------------------------------------------------------------


class StreamEnd(NamedTuple):
    """The response that a stream brought, or the event id to resume it from after ``retry`` milliseconds."""

    response: dict[str, Any] | None
    last_id: bytes = b""
    retry: int | None = None


async def awaited_response(data: bytes, number: int, listed: str | None) -> dict[str, Any] | None:
    """As ``envelope.response_in``; a long list, which stands in ``listed`` of the result, is read in turns."""
    if listed is None or len(data) <= LARGE:
        return response_in(data, number)
    return await in_turns(long_response(data, number, listed))


async def pieces_of(answer: ClientResponse) -> AsyncIterator[bytes]:
    """The body as it comes."""
    if isinstance(answer.body, bytes):
        yield answer.body
        return
    async for piece in answer.body:
        yield piece


async def whole_body(answer: ClientResponse, limit: int) -> bytes:
    """The body. Raises UpstreamBroken for one above ``limit`` bytes."""
    pieces: list[bytes] = []
    size = 0
    async for piece in pieces_of(answer):
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


def refused_by_status(status: int) -> UpstreamBroken:
    """The failure that a status without a response means."""
    if status in (401, 403):
        return UpstreamBroken(f"The upstream server refused the caller's credentials (HTTP status {status}).")
    return UpstreamBroken(f"The upstream server answered with HTTP status {status}.")


def refusal(number: Any, code: int, sentence: str) -> Message:
    """A JSON-RPC error in answer to a server's own request."""
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": sentence}}


def object_of(data: bytes) -> dict[str, Any]:
    """A JSON-RPC message, or nothing of it where it is none."""
    try:
        message = parse(data)
    except BadJson:
        return {}
    return message if isinstance(message, dict) else {}


def result_of(response: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a response. Raises ToolRefused, UpstreamBroken."""
    error, result = response.get("error"), response.get("result")
    if isinstance(error, dict):
        code, sentence = error.get("code"), error.get("message")
        raise ToolRefused(
            code if isinstance(code, int) else -32603,
            sentence if isinstance(sentence, str) else "The upstream server refused the request.",
            error.get("data"),
        )
    if not isinstance(result, dict):
        raise UpstreamBroken("The upstream server answered with something that is not a result.")
    kind = result.get("resultType")
    if kind == "input_required":
        requests, state = result.get("inputRequests"), result.get("requestState")
        raise InputRequired(
            requests if isinstance(requests, dict) else {}, state if isinstance(state, str) else None
        )
    if kind not in (None, "complete"):
        raise ToolRefused(METHOD_NOT_FOUND, NO_INPUT)
    return result
