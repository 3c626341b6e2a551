"""The answers of a relay as its own client reads them: pieces, whole bodies and the response in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from adapter.errors import UpstreamBroken
from adapter.relay.background import in_turns
from adapter.relay.exchange import ClientResponse
from adapter.relay.replies import LARGE, too_large
from adapter.rules.tools.lists import long_response
from adapter.wire.envelope import response_in


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
    if isinstance(answer.body, bytes) and len(answer.body) <= limit:
        return answer.body
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
