"""Events that a session sent, kept so that a client that lost its stream can go on behind the last one it read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

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
