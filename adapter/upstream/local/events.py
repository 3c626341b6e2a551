"""Event streams of a local server, and the events that are kept of them for a client that comes back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from adapter.rules.access.headers import SharedFields
from adapter.upstream.port import Headers, dropped, silent
from adapter.wire.sse import encode


class StreamBounds(NamedTuple):
    """The most that is kept of one stream: messages that wait to be read, and their bytes.

    The events of one session that were sent already have the same bounds. ``waiting`` are the bytes of messages that
    are held while no GET stream is open; with 0 such messages are dropped.
    """

    messages: int = 64
    size: int = 1 << 20
    waiting: int = 0


class _SentEvent(NamedTuple):
    stream: int
    id: bytes
    event: bytes


class SentEvents:
    """The last events of one session. Their ids hold the number of their stream (MCP 2025-11-25, "Resumability").

    ``place`` begins all ids, where it is to be seen from them who keeps the events.
    """

    def __init__(self, bounds: StreamBounds, place: bytes = b"") -> None:
        self._bounds = bounds
        self._place = place
        self._sent: deque[_SentEvent] = deque()
        self._size = 0
        self._count = 0
        self._opened = 0
        self.calls: dict[int, CallEvents] = {}
        """Those whose streams can be resumed, by the numbers of these."""

    def opened(self, call: CallEvents | None = None) -> int:
        """The number of a new stream, which is that of a ``call``. Those of the oldest calls can be resumed no more."""
        self._opened += 1
        if call is not None:
            self.calls[self._opened] = call
            if len(self.calls) > self._bounds.messages:
                del self.calls[next(iter(self.calls))]
        return self._opened

    def encoded(self, stream: int, message: bytes) -> bytes:
        """The event of a message on that stream, which is kept."""
        self._count += 1
        event_id = b"%b%d-%d" % (self._place, stream, self._count)
        event = encode(message, id=event_id)
        self._sent.append(_SentEvent(stream, event_id, event))
        self._size += len(event)
        while len(self._sent) > self._bounds.messages or self._size > self._bounds.size:
            self._size -= len(self._sent.popleft().event)
        return event

    def stream_of(self, event_id: str | None) -> int | None:
        """The stream of an event that is still kept, None for any other."""
        found = self._find(event_id)
        return None if found is None else found.stream

    def after(self, event_id: str | None) -> Iterator[bytes]:
        """The events of the same stream behind a kept one, as they were sent."""
        found = self._find(event_id)
        if found is not None:
            for sent in list(self._sent)[self._sent.index(found) + 1 :]:
                if sent.stream == found.stream:
                    yield sent.event

    def _find(self, event_id: str | None) -> _SentEvent | None:
        return next((sent for sent in self._sent if sent.id.decode() == event_id), None)


EVENTS = SharedFields([("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache, no-transform")])

BOUNDS = StreamBounds()
UNREAD_AT_MOST = BOUNDS.messages
"""Messages that wait to be read on one stream before its writer has to wait, or learns that it is full."""


class EventStream:
    """An UpstreamReply of server-sent events. ``left`` is called once, when its reader has given up.

    ``number`` tells the streams of a session apart. ``emptied`` is called each time its reader has taken what was
    unread, and when the stream is over.
    """

    needs_request = True
    """The server that fills it has the request as long as it works on it."""

    def __init__(self, left: Callable[[], None], number: int = 0, bounds: StreamBounds = BOUNDS) -> None:
        self.status = 200
        self.headers: Headers = EVENTS
        self.whole: bytes | None = None
        self.number = number
        self._left = left
        self.emptied: Callable[[], None] | None = None
        self.unread_size = 0
        self._bounds = bounds
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
        """Send ``message`` when there is room for it. A stream that is over drops it."""
        await self.put_event(encode(message))

    async def put_event(self, event: bytes) -> None:
        """The same with an encoded event."""
        while not self.offer(event):
            self._emptied.clear()
            await self._emptied.wait()

    def offer(self, event: bytes) -> bool:
        """Send an encoded event now; False where too much is unread."""
        if self.over:
            return True
        if self._unread and not self._has_room_for(event):
            return False
        self._append(event)
        return True

    def end(self, last: bytes | None = None) -> None:
        """End the stream behind the event ``last``, which is sent whether or not there is room for it."""
        if last is not None and not self.over:
            self._append(last)
        self._ended = True
        self._filled.set()
        # A writer that waits for room has nothing to send any more.
        self._has_emptied()

    @property
    def over(self) -> bool:
        """Tell whether nothing can be sent on it any more."""
        return self._ended or self._aborted

    def _has_room_for(self, event: bytes) -> bool:
        bounds = self._bounds
        return len(self._unread) < bounds.messages and self.unread_size + len(event) <= bounds.size

    def _append(self, event: bytes) -> None:
        self._unread.append(event)
        self.unread_size += len(event)
        self._filled.set()

    def _has_emptied(self) -> None:
        self._emptied.set()
        if self.emptied is not None:
            self.emptied()

    # --- the reader -------------------------------------------------------------------------------------------

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        if not self._unread and not self._ended and not self._aborted:
            self._filled.clear()
            try:
                async with asyncio.timeout(read_timeout):
                    await self._filled.wait()
            except TimeoutError:
                raise silent(read_timeout) from None
        if self._aborted:
            raise dropped()
        chunk = b"".join(self._unread)
        self._unread.clear()
        self.unread_size = 0
        self._has_emptied()
        return chunk

    def abort(self) -> None:
        """See UpstreamReply."""
        if self._aborted or (self._ended and not self._unread):
            return
        self._aborted = True
        self._unread.clear()
        self.unread_size = 0
        self._filled.set()
        self._has_emptied()
        self._left()


class CallEvents:
    """The numbered events of one call, which its client may resume (MCP 2025-11-25, "Resumability").

    It encodes what is sent on the call's own stream, and sends the same where the client has come back.
    """

    def __init__(self, sent: SentEvents) -> None:
        self._sent = sent
        self._number: int | None = None
        self._resumed: EventStream | None = None
        self._over = False

    def __call__(self, message: bytes) -> bytes:
        """The event of a message."""
        if self._number is None:
            self._number = self._sent.opened(self)
        event = self._sent.encoded(self._number, message)
        if self._resumed is not None and not self._resumed.offer(event):
            self._resumed.end()
        return event

    def resume(self, stream: EventStream) -> None:
        """Go on at ``stream``, until the call is over."""
        if self._resumed is not None:
            self._resumed.end()
        self._resumed = stream
        if self._over:
            stream.end()

    def close(self) -> None:
        """Note that the answer was sent."""
        self._over = True
        if self._resumed is not None:
            self._resumed.end()
