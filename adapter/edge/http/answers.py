"""Answers of the adapter's own APIs: JSON as a whole, or a stream of events."""

from __future__ import annotations

from typing import Any

from adapter.edge.http.request import Request
from adapter.errors import Unauthorized
from adapter.rules.calls.tool_api import HttpOutcome
from adapter.wire.envelope import dump

EVENT_STREAM = "text/event-stream"

Extra = list[tuple[str, str]]
"""Header fields of every answer besides its own."""

_FIELDS = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]


def send(request: Request, answered: HttpOutcome, extra: Extra) -> None:
    """Send a JSON answer."""
    fields = [("Content-Type", "application/json"), *_FIELDS, *extra]
    if answered.status == Unauthorized.http:
        fields.append(("WWW-Authenticate", 'Bearer realm="mcp-file-adapter"'))
    request.reply.send(answered.status, fields, answered.body)


def begin_stream(request: Request, extra: Extra) -> None:
    """Send the head of an answer in events."""
    # nginx would keep events back until there are enough of them.
    fields = [("Content-Type", EVENT_STREAM), ("X-Accel-Buffering", "no"), *_FIELDS, *extra]
    request.reply.begin(200, fields, None)


class CallStream:
    """A call's answer as events. ``begun`` says that its head has left."""

    def __init__(self, request: Request, extra: Extra) -> None:
        self._request = request
        self._extra = extra
        self.begun = False

    def begin(self) -> None:
        """The head; events follow."""
        begin_stream(self._request, self._extra)
        self.begun = True

    async def tell(self, progress: dict[str, Any]) -> None:
        """Send how far the call is. Raises ClientGone."""
        await self._request.reply.write(b"event: progress\ndata: %s\n\n" % dump(progress))

    async def end(self, answered: HttpOutcome) -> None:
        """Send the outcome of the call. Raises ClientGone."""
        event = b'event: result\ndata: {"status":%d,"body":%s}\n\n' % answered
        await self._request.reply.write(event)
        self._request.reply.end()


def wants_stream(request: Request) -> bool:
    """Tell whether the caller takes events, and names them before JSON if it takes JSON too."""
    accept = request.headers.get("Accept", "").lower()
    if EVENT_STREAM not in accept:
        return False
    kinds = [kind.partition(";")[0].strip() for kind in accept.split(",")]
    named = [kind for kind in kinds if kind in (EVENT_STREAM, "application/json")]
    return named[:1] == [EVENT_STREAM]
