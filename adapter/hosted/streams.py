"""Event streams of a hosted server: filled by whoever has something to say, read by the relay piece by piece."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from adapter.errors import UpstreamBroken, UpstreamSilent
from adapter.hosted import answers
from adapter.hosted.answers import EVENTS
from adapter.upstream.port import Headers
from adapter.wire.sse import encode

UNREAD_AT_MOST = 64
"""Messages that wait to be read on one stream before whoever writes it has to wait, or is told that it is full."""


class EventStream:
    """An UpstreamReply of server-sent events. ``left`` is called once, when its reader has given up."""

    needs_request = True
    """The tool that writes it has its arguments as long as it runs."""

    def __init__(self, left: Callable[[], None], headers: Headers = EVENTS) -> None:
        self.status = 200
        self.headers = headers
        self.whole: bytes | None = None
        self._left = left
        self._unread: deque[bytes] = deque()
        self._ended = False
        self._aborted = False
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    def __repr__(self) -> str:
        state = "aborted" if self._aborted else "ended" if self._ended else "open"
        return f"<EventStream: {state}, {len(self._unread)} unread>"

    # --- the writer -------------------------------------------------------------------------------------------

    async def put(self, message: bytes) -> None:
        """Say ``message`` when there is room for it. What is said to a stream that is over is lost."""
        while not self.offer(message):
            self._emptied.clear()
            await self._emptied.wait()

    def offer(self, message: bytes) -> bool:
        """Say ``message`` now; False where too much is unread."""
        if self._ended or self._aborted:
            return True
        if len(self._unread) >= UNREAD_AT_MOST:
            return False
        self._unread.append(encode(message))
        self._filled.set()
        return True

    def end(self, last: bytes | None = None) -> None:
        """Nothing comes after this, which is said whether or not there is room for it."""
        if last is not None and not (self._ended or self._aborted):
            self._unread.append(encode(last))
        self._ended = True
        self._filled.set()
        # Whoever waits for room has nothing to say any more.
        self._emptied.set()

    # --- the reader -------------------------------------------------------------------------------------------

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        if not self._unread and not self._ended and not self._aborted:
            self._filled.clear()
            try:
                async with asyncio.timeout(read_timeout):
                    await self._filled.wait()
            except TimeoutError:
                raise UpstreamSilent(f"The upstream server sent nothing for {read_timeout:g} s.") from None
        if self._aborted:
            raise UpstreamBroken("The connection to the upstream server was dropped.")
        chunk = b"".join(self._unread)
        self._unread.clear()
        self._emptied.set()
        return chunk

    def abort(self) -> None:
        """See UpstreamReply."""
        if self._aborted or (self._ended and not self._unread):
            return
        self._aborted = True
        self._unread.clear()
        self._filled.set()
        self._emptied.set()
        self._left()


TOOLS_CHANGED = "notifications/tools/list_changed"


class Subscriptions:
    """The open streams. Each hears first what it will be told of, and everything under its request's id."""

    def __init__(self) -> None:
        self._streams: dict[EventStream, tuple[bytes, Any]] = {}
        self._deaf: set[EventStream] = set()

    def open(self, id_bytes: bytes, number: Any, wanted: dict[str, Any]) -> EventStream:
        """A stream for the request with this id. Only changes of tools can be told of; the rest is left out."""
        stream = EventStream(lambda: self._forget(stream))
        honoured = {"toolsListChanged": True} if wanted.get("toolsListChanged") is True else {}
        self._streams[stream] = (id_bytes, number)
        if not honoured:
            self._deaf.add(stream)
        params = {"notifications": honoured, "_meta": {answers.SUBSCRIPTION_KEY: number}}
        stream.offer(answers.notification("notifications/subscriptions/acknowledged", params))
        return stream

    def tools_changed(self) -> None:
        """Tell all who want to know; a stream that nobody reads ends instead."""
        for stream, (_, number) in list(self._streams.items()):
            if stream in self._deaf:
                continue
            message = answers.notification(TOOLS_CHANGED, {"_meta": {answers.SUBSCRIPTION_KEY: number}})
            if not stream.offer(message):
                self._forget(stream)
                stream.end()

    def close(self) -> None:
        """End every stream with the result that says it was meant."""
        for stream, (id_bytes, number) in list(self._streams.items()):
            self._forget(stream)
            value = {"resultType": "complete", "_meta": {answers.SUBSCRIPTION_KEY: number}}
            stream.end(answers.result(id_bytes, value))

    def _forget(self, stream: EventStream) -> None:
        self._streams.pop(stream, None)
        self._deaf.discard(stream)
