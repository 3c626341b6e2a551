"""Event streams of a hosted server: filled by whoever has something to say, read by the relay piece by piece."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from adapter.errors import UpstreamBroken, UpstreamSilent
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
