"""Failures and answers as HTTP. Knows when the head has already left."""

from __future__ import annotations

import math
from dataclasses import dataclass

import orjson
from aiohttp import web

from adapter.errors import AdapterError, Unauthorized
from adapter.relay.exchange import Answer
from adapter.wire.eras import Era
from adapter.wire.failure import failure

SERVER = "mcp-file-adapter"


@dataclass(frozen=True, slots=True)
class Asker:
    """What rendering a failure needs to know of who asked. ``id_bytes`` is None where no request has an id."""

    era: Era
    id_bytes: bytes | None = None
    rpc: bool = False


def render_failure(error: AdapterError, asker: Asker, *, legacy_statuses: bool = False) -> web.Response:
    """A failed JSON-RPC request is answered as JSON-RPC, everything else as ``{"detail": …}``.

    ``legacy_statuses`` gives legacy requests the HTTP statuses of the modern era (``core.errors.legacy_status``).
    """
    status = error.http
    answers_request = asker.id_bytes is not None
    if answers_request and asker.era is Era.LEGACY and not legacy_statuses:
        status = error.legacy_http or status
    detail = {"detail": str(error)}
    body = failure(error, asker.id_bytes or b"null") if asker.rpc else orjson.dumps(detail)
    response = web.Response(status=status, body=body, content_type="application/json")
    response.headers["Server"] = SERVER
    if error.retry_after is not None and status in (429, 503):
        response.headers["Retry-After"] = str(math.ceil(error.retry_after))
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = 'Bearer realm="mcp-file-adapter"'
    return response


async def send_answer(
    request: web.BaseRequest, answer: Answer, extra: list[tuple[str, str]]
) -> web.StreamResponse:
    """Send an answer to its last byte; ``extra`` are fields of the edge's own, such as CORS.

    A body that cannot be completed is broken off, so that the client does not take it for whole.
    """
    if isinstance(answer.body, bytes):
        return _whole(answer, extra)
    response = web.StreamResponse(status=answer.status)
    _fill(response, answer, extra)
    if answer.length is not None:
        response.content_length = answer.length
    await response.prepare(request)
    try:
        async for piece in answer.body:
            await response.write(piece)
        await response.write_eof()
    except AdapterError:
        if request.transport is not None:
            request.transport.abort()
    return response


def _whole(answer: Answer, extra: list[tuple[str, str]]) -> web.Response:
    assert isinstance(answer.body, bytes)
    response = web.Response(status=answer.status, body=answer.body or None)
    _fill(response, answer, extra)
    return response


def _fill(response: web.StreamResponse, answer: Answer, extra: list[tuple[str, str]]) -> None:
    headers = response.headers
    for name, value in answer.headers:
        headers.add(name, value)
    for name, value in extra:
        headers[name] = value
    headers["Server"] = SERVER
