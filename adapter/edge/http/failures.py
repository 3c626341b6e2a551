"""Failures and answers as HTTP. Knows when the head has already left."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import orjson

from adapter.edge.http.request import Reply
from adapter.errors import AdapterError, Unauthorized
from adapter.relay.exchange import ClientResponse, Flow
from adapter.rules.access import host_and_origin_check
from adapter.rules.access.host_and_origin_check import NOSNIFF
from adapter.wire.envelope import failure
from adapter.wire.eras import Era

_JSON = ("Content-Type", "application/json")


@dataclass(frozen=True, slots=True)
class Asker:
    """The facts about who asked that are needed to render a failure.

    ``id_bytes`` is None where no request has an id.
    """

    era: Era
    id_bytes: bytes | None = None
    rpc: bool = False


def send_failure(
    reply: Reply,
    error: AdapterError,
    asker: Asker,
    extra: list[tuple[str, str]],
    *,
    legacy_statuses: bool = False,
) -> None:
    """A failed JSON-RPC request is answered as JSON-RPC, everything else as ``{"detail": …}``.

    ``extra`` are fields of the edge's own, such as CORS. ``legacy_statuses`` gives legacy requests the HTTP
    statuses of the modern era (``core.errors.legacy_status``).
    """
    status = error.http
    if asker.id_bytes is not None and asker.era is Era.LEGACY and not legacy_statuses:
        status = error.legacy_http or status
    fields = [_JSON, NOSNIFF, *extra]
    if error.retry_after is not None and status in (429, 503):
        fields.append(("Retry-After", str(math.ceil(error.retry_after))))
    if status == Unauthorized.http:
        fields.append(("WWW-Authenticate", 'Bearer realm="mcp-file-adapter"'))
    detail = {"detail": str(error)}
    body = failure(error, asker.id_bytes or b"null") if asker.rpc else orjson.dumps(detail)
    reply.send(status, fields, body)


# Most answers have one of few heads. Whoever is given one must not change it.
guarded = lru_cache(maxsize=64)(host_and_origin_check.guarded)
"""See ``browsers.guarded``; takes a tuple."""


async def send_answer(reply: Reply, answer: ClientResponse, extra: list[tuple[str, str]]) -> None:
    """Send a mount's answer to its last byte. Raises ClientGone, and AdapterError where the body cannot be
    completed.
    """
    fields = guarded(tuple(answer.headers))
    if extra:
        fields = fields + extra
    if isinstance(answer.body, bytes):
        reply.send(answer.status, fields, answer.body)
        return
    reply.begin(answer.status, fields, answer.length)
    if isinstance(answer.body, Flow):
        await answer.body.pour(reply)
    else:
        async for piece in answer.body:
            await reply.write(piece)
    reply.end()
