"""Sessions of a local server, as MCP through 2025-11-25 has them: in memory, since an adapter opens them again."""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from adapter.errors import SessionMissing, SessionUnknown
from adapter.upstream.local.replies import UNREAD_AT_MOST, UNREAD_BYTES, EventStream, PendingReply
from adapter.wire.sse import encode

RequestId = str | int | float

_STREAMS_AT_MOST = 8


class _SentEvent(NamedTuple):
    stream: int
    id: bytes
    event: bytes


class LocalSession:
    """One ``initialize``, the requests that are under way for it, and its GET streams.

    ``version`` is the protocol version it was opened with, ``capabilities`` are the client's.
    """

    def __init__(
        self, session_id: str, version: str, capabilities: Mapping[str, Any], end: Callable[[], None]
    ) -> None:
        self.id = session_id
        self.version = version
        self.capabilities = capabilities
        self.end = end
        self._pending: dict[RequestId, PendingReply] = {}
        self._streams: list[EventStream] = []
        self._streams_opened = 0
        self._early: deque[bytes] = deque(maxlen=UNREAD_AT_MOST)
        self._sent: deque[_SentEvent] = deque(maxlen=UNREAD_AT_MOST)
        self._sent_bytes = 0
        self._events_sent = 0

    @property
    def idle(self) -> bool:
        return not (self._pending or self._streams)

    @property
    def listening(self) -> bool:
        """True while a GET stream is open."""
        return bool(self._streams)

    def close(self) -> None:
        """Give up its requests and end its streams."""
        for reply in list(self._pending.values()):
            reply.give_up()
        for stream in list(self._streams):
            stream.end()
        self._streams.clear()

    # --- requests under way -----------------------------------------------------------------------------------

    def expect(self, number: RequestId, reply: PendingReply) -> None:
        """Keep the reply to the request of this id until it ends, so that its client can cancel it."""
        if not reply.over:
            self._pending[number] = reply
            reply.forget = partial(self._forget, number, reply)

    def withdraw(self, number: RequestId) -> None:
        """Give up the request of this id, if it is under way."""
        reply = self._pending.get(number)
        if reply is not None:
            reply.withdraw()

    def _forget(self, number: RequestId, reply: PendingReply) -> None:
        # A client that uses an id twice must not make its other request one that cannot be cancelled.
        if self._pending.get(number) is reply:
            del self._pending[number]

    # --- GET streams ------------------------------------------------------------------------------------------

    def send(self, message: bytes, *, keep: bool = False) -> None:
        """Send a message outside of requests, on one stream only (MCP 2025-11-25, "Multiple Connections").

        A stream that is too full ends; a client that comes back with the last event's id gets what it missed. What is
        sent before the first stream opens is dropped, or with ``keep`` waits for it.
        """
        if not self._streams_opened:
            if keep and len(message) + sum(map(len, self._early)) <= UNREAD_BYTES:
                self._early.append(message)
            return
        stream = self._streams[-1] if self._streams else None
        number = stream.number if stream else self._streams_opened
        self._events_sent += 1
        event_id = b"%d-%d" % (number, self._events_sent)
        event = encode(message, id=event_id)
        self._remember(_SentEvent(number, event_id, event))
        if stream is not None and not stream.offer(event):
            self._streams.pop().end()

    def listen(self, last_event_id: str | None = None) -> EventStream:
        """Open one more GET stream; of too many the oldest ends.

        With the id of an event that is still kept, it goes on where that event's stream broke off.
        """
        if len(self._streams) >= _STREAMS_AT_MOST:
            self._streams.pop(0).end()
        last = next((sent for sent in self._sent if sent.id.decode() == last_event_id), None)
        if last is None:
            self._streams_opened += 1
        stream = EventStream(
            lambda: self._streams.remove(stream) if stream in self._streams else None,
            self._streams_opened if last is None else last.stream,
        )
        if last is not None:
            for sent in list(self._sent)[self._sent.index(last) + 1 :]:
                if sent.stream == last.stream:
                    stream.offer(sent.event)
        self._streams.append(stream)
        while self._early:
            self.send(self._early.popleft())
        return stream

    def _remember(self, sent: _SentEvent) -> None:
        if len(self._sent) == UNREAD_AT_MOST:
            self._sent_bytes -= len(self._sent.popleft().event)
        self._sent.append(sent)
        self._sent_bytes += len(sent.event)
        while self._sent_bytes > UNREAD_BYTES:
            self._sent_bytes -= len(self._sent.popleft().event)


class LocalSessions:
    """At most ``most`` sessions: one more ends the one that was unused for longest.

    No client loses its session by that: the adapter is answered 404 and initializes again. ``ended`` is called
    with each session that has ended.
    """

    def __init__(self, most: int = 10_000, ended: Callable[[LocalSession], None] | None = None) -> None:
        self._most = most
        self._ended = ended
        self._sessions: OrderedDict[str, LocalSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, version: str, capabilities: Mapping[str, Any]) -> LocalSession:
        """Open a session with an id nobody can guess."""
        if len(self._sessions) >= self._most:
            self._drop_oldest()
        session_id = secrets.token_urlsafe(24)
        session = LocalSession(session_id, version, capabilities, partial(self._end, session_id))
        self._sessions[session_id] = session
        return session

    def find(self, session_id: str | None) -> LocalSession:
        """The session of this id. Raises SessionMissing for None, SessionUnknown for an unknown or ended one."""
        if session_id is None:
            raise SessionMissing()
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionUnknown()
        self._sessions.move_to_end(session_id)
        return session

    def all(self) -> list[LocalSession]:
        return list(self._sessions.values())

    def _end(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.close()
        if self._ended is not None:
            self._ended(session)

    def _drop_oldest(self) -> None:
        # Where everything is in use, one in use has to go: a limit that gives way is none.
        idle = next((session for session in self._sessions.values() if session.idle), None)
        (idle or next(iter(self._sessions.values()))).end()
