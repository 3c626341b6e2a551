"""The limit of all the time that a tool call takes at an upstream, whatever the server says meanwhile."""

from __future__ import annotations

import asyncio

from adapter.upstream.port import (
    ReadLimit,
    ReplyAround,
    Sink,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    pour,
    until,
)
from adapter.wire.envelope import Batch, Envelope

_CALL = "tools/call"


class LimitedUpstream:
    """An Upstream that ends tool calls after ``limit`` seconds with CallTooLong; all else is as at ``upstream``."""

    def __init__(self, upstream: Upstream, limit: ReadLimit) -> None:
        self._upstream = upstream
        self._limit = limit

    def __repr__(self) -> str:
        return f"<LimitedUpstream {self._upstream!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Raises CallTooLong."""
        if not _is_call(request.envelope):
            return await self._upstream.send(request, read_timeout)
        deadline = asyncio.get_running_loop().time() + self._limit
        async with until(deadline, self._limit):
            reply = await self._upstream.send(request, read_timeout)
        return reply if reply.whole is not None else LimitedReply(reply, deadline, self._limit)

    async def close(self) -> None:
        """See Upstream."""
        await self._upstream.close()


class LimitedReply(ReplyAround):
    """The answer to a call, which ends at ``deadline`` (the loop's time)."""

    __slots__ = ("_deadline", "_limit")

    def __init__(self, reply: UpstreamReply, deadline: float, limit: ReadLimit) -> None:
        super().__init__(reply)
        self._deadline = deadline
        self._limit = limit

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply. Raises CallTooLong."""
        async with until(self._deadline, self._limit):
            return await self._reply.read(read_timeout)

    async def pour(self, sink: Sink, read_timeout: float | None) -> None:
        """See Pouring. A client that reads slowly takes time of its call."""
        async with until(self._deadline, self._limit):
            await pour(self._reply, sink, read_timeout)


def _is_call(message: Envelope | Batch | None) -> bool:
    if isinstance(message, Batch):
        return any(map(_is_call, message.members))
    return message is not None and message.method == _CALL
