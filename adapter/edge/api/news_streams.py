"""Streams of what servers say outside of calls, for callers of the console: bounded in number and in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adapter.edge.http.request import Request
from adapter.edge.http.response import CallStream, Extra, begin_stream
from adapter.errors import LimitReached
from adapter.relay.http_api.callers import Who
from adapter.relay.http_api.sessions import HttpSessions

HEARTBEAT = 15.0
"""Seconds after which a stream without news says that it is still there."""

LONGEST = 600.0
"""Seconds after which a stream ends: the next one needs a credential that is still good."""

MOST, MOST_OF_ONE = 200, 16
"""Streams that are open at once, and those of one principal."""


class NewsStreams:
    """Keeps the streams of all servers. ``heartbeat`` and ``longest`` are in seconds."""

    def __init__(self, heartbeat: float = HEARTBEAT, longest: float = LONGEST) -> None:
        self._heartbeat = heartbeat
        self._longest = longest
        self._open: Counter[str] = Counter()
        self._closed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<NewsStreams: {self._open.total()}>"

    def close(self) -> None:
        """End all streams, because the adapter stops."""
        self._closed.set()

    async def serve(self, request: Request, sessions: HttpSessions, who: Who, extra: Extra) -> None:
        """Send the news of the caller's session as events until the client goes. Raises ClientGone, LimitReached."""
        with self._counted(who.principal):
            stream = CallStream(request, extra)
            begin_stream(request, extra)
            await request.reply.write(b": news\n\n")
            listening = asyncio.ensure_future(sessions.listen(who, stream.event))
            closed = asyncio.ensure_future(self._closed.wait())
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._longest):
                        await self._beat(request, listening, closed)
            finally:
                listening.cancel()
                closed.cancel()
                await asyncio.gather(listening, closed, return_exceptions=True)
            request.reply.end()

    async def _beat(self, request: Request, *ends: asyncio.Future[Any]) -> None:
        """Say that the stream is there until one of these is done."""
        while True:
            done, _ = await asyncio.wait(ends, timeout=self._heartbeat, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            await request.reply.write(b": still here\n\n")

    @contextmanager
    def _counted(self, principal: str) -> Iterator[None]:
        if self._open.total() >= MOST or self._open[principal] >= MOST_OF_ONE:
            raise LimitReached("Too many streams of news are open; close a tab.", retry_after=self._heartbeat)
        self._open[principal] += 1
        try:
            yield
        finally:
            self._open[principal] -= 1
            if not self._open[principal]:
                del self._open[principal]
