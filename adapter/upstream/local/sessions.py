"""Sessions of a local server, as MCP through 2025-11-25 has them: in memory, since an adapter opens them again; and of
one that keeps nothing of them in this process, so that each of several replicas can serve any.

Such a portable session is its id and what the id holds: the protocol version. The row of the client's
session has that id, so it is state of the store like everything else there, and a replica that has never seen the
session needs nothing but the row that it reads anyway. No row of its own is written.

What lives in one process are the calls and streams that it has. So a replica tells the others what concerns these:
the end of a session, a call that is cancelled, and a message for a session that does not listen here.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from adapter.errors import SessionMissing, SessionUnknown
from adapter.rules.access.replicas import owned
from adapter.upstream.local.events import BOUNDS, EventStream, SentEvents, StreamBounds
from adapter.upstream.local.replies import PendingReply

RequestId = str | int | float

_STREAMS_AT_MOST = 8


class LocalSession:
    """One ``initialize``, the requests that are under way for it, and its streams.

    ``version`` is the protocol version it was opened with. ``place`` begins the ids of its events.
    """

    def __init__(
        self,
        session_id: str,
        version: str,
        end: Callable[[], None],
        bounds: StreamBounds = BOUNDS,
        place: bytes = b"",
    ) -> None:
        self.id = session_id
        self.version = version
        self.end = end
        self.bounds = bounds
        self._pending: dict[RequestId, PendingReply] = {}
        self._streams: list[EventStream] = []
        self._last_stream = 0
        self.sent = SentEvents(bounds, place)
        self._waiting: deque[bytes] = deque()
        self._waiting_size = 0

    @property
    def idle(self) -> bool:
        return not (self._pending or self._streams)

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

    @property
    def listener(self) -> EventStream | None:
        """The GET stream on which messages are sent, None while none is open."""
        return self._streams[-1] if self._streams else None

    def send(self, message: bytes) -> None:
        """Send a message outside of requests, on one stream only (MCP 2025-11-25, "Multiple Connections").

        A stream that is too full ends; a client that comes back with the last event's id gets what it missed.
        """
        stream = self.listener
        if stream is None:
            self._send_later(message)
        elif not stream.offer(self.sent.encoded(stream.number, message)):
            self._streams.pop().end()

    def _send_later(self, message: bytes) -> None:
        if not self.bounds.waiting:
            if self._last_stream:
                self.sent.encoded(self._last_stream, message)
            return
        self._waiting.append(message)
        self._waiting_size += len(message)
        while self._waiting_size > self.bounds.waiting or len(self._waiting) > self.bounds.messages:
            self._waiting_size -= len(self._waiting.popleft())

    def listen(self, last_event_id: str | None = None) -> EventStream:
        """Open one more GET stream; of too many the oldest ends.

        With the id of an event that is still kept, it goes on where that event's stream broke off.
        """
        number = self.sent.stream_of(last_event_id)
        call = None if number is None else self.sent.calls.get(number)
        if call is None and len(self._streams) >= _STREAMS_AT_MOST:
            self._streams.pop(0).end()
        if number is None:
            number = self._last_stream = self.sent.opened()
        stream = EventStream(
            lambda: self._streams.remove(stream) if stream in self._streams else None, number, self.bounds
        )
        for event in self.sent.after(last_event_id):
            stream.offer(event)
        if call is not None:
            call.resume(stream)
            return stream
        self._streams.append(stream)
        waiting, self._waiting, self._waiting_size = self._waiting, deque(), 0
        for message in waiting:
            self.send(message)
        return stream


@dataclass(eq=False, repr=False, slots=True)
class LocalSessions:
    """At most ``most`` sessions: one more ends the one that was unused for longest.

    No client loses its session by that: the adapter is answered 404 and initializes again. ``ended`` is called
    with each session that has ended. Where there are several replicas, ``owner`` is this one, which ids then name.
    """

    most: int = 10_000
    ended: Callable[[LocalSession], None] | None = None
    bounds: StreamBounds = BOUNDS
    _sessions: OrderedDict[str, LocalSession] = field(default_factory=OrderedDict, init=False)
    owner: str | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, version: str) -> LocalSession:
        """Open a session with an id nobody can guess."""
        return self._keep(self._made(self._new_id(version), version))

    def find(self, session_id: str | None) -> LocalSession:
        """The session of this id. Raises SessionMissing for None, SessionUnknown for an unknown or ended one."""
        if session_id is None:
            raise SessionMissing()
        session = self._sessions.get(session_id)
        if session is None:
            return self._not_at_hand(session_id)
        self._sessions.move_to_end(session_id)
        return session

    def all(self) -> list[LocalSession]:
        return list(self._sessions.values())

    def close(self) -> None:
        """End all sessions: the process stops."""
        for session in self.all():
            session.end()

    def displaced(self, owner: str) -> None:
        """Be the replica of that name from now on: others took this one for gone, so its sessions live elsewhere."""
        for session in self.all():
            session.end()
        self.owner = owner

    def _new_id(self, version: str) -> str:  # noqa: ARG002 (for ids that hold it)
        token = secrets.token_urlsafe(24)
        return token if self.owner is None else owned(self.owner, token)

    def _made(self, session_id: str, version: str) -> LocalSession:
        return LocalSession(session_id, version, partial(self._end, session_id), self.bounds)

    def _keep(self, session: LocalSession) -> LocalSession:
        if len(self._sessions) >= self.most:
            self._drop_oldest()
        self._sessions[session.id] = session
        return session

    def _not_at_hand(self, session_id: str) -> LocalSession:  # noqa: ARG002 (for ids that hold a session)
        """The session of an id that was not found. Raises SessionUnknown."""
        raise SessionUnknown()

    def _end(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        session.close()
        if self.ended is not None:
            self.ended(session)

    def _drop_oldest(self) -> None:
        # Where everything is in use, one in use has to go: a limit that gives way is none.
        idle = next((session for session in self._sessions.values() if session.idle), None)
        self._drop(idle or next(iter(self._sessions.values())))

    def _drop(self, session: LocalSession) -> None:
        session.end()


REMEMBERED = 10_000
"""Ended sessions of one server that are remembered: their ids are as readable as before."""


_FORM = re.compile(r"p1\.([A-Za-z0-9_-]{16,64})\.([0-9-]{1,32})", re.ASCII)


class PortableId(NamedTuple):
    """A session by its ``token``, which nobody can guess, and the protocol ``version`` that it was opened with."""

    token: str
    version: str

    def __str__(self) -> str:
        """The id, in visible ASCII without a colon."""
        return f"p1.{self.token}.{self.version}"


def decode_portable(session_id: str) -> PortableId | None:
    """The session of an id; None for any other text."""
    found = _FORM.fullmatch(session_id)
    return None if found is None else PortableId(found[1], found[2])


def token_of(session_id: str) -> str:
    """The token of an id, which stands for the session where its other parts are not needed."""
    return session_id.split(".", 2)[1]


Once = Callable[[str, Callable[[], None]], None]
"""Sends a message of that name, unless another replica does."""


class SessionMessages(Protocol):
    """The way to the other replicas that serve the same sessions. ``place`` begins the ids of events kept here."""

    @property
    def place(self) -> bytes: ...

    def tell(self, kind: str, session_id: str, *more: object) -> None:
        """Tell of a session; returns at once, and nothing is known of who hears it.

        It has ``ended``; a request of that number was ``withdrawn`` that is not under way here; it ``listens`` on a new
        GET stream, here; or something was ``said`` that one replica at which it listens is to send it: the name of the
        message, and its text.
        """


class PortableSession(LocalSession):
    """One session as this replica serves it."""

    def __init__(
        self,
        session_id: str,
        session: PortableId,
        end: Callable[[], None],
        bounds: StreamBounds,
        words: SessionMessages,
    ) -> None:
        super().__init__(session_id, session.version, end, bounds, words.place)
        self._words = words

    def withdraw(self, number: RequestId) -> None:
        if number in self._pending:
            super().withdraw(number)
        else:
            self._words.tell("withdrawn", self.id, number)

    def send(self, message: bytes) -> None:
        listens = self.listener is not None
        super().send(message)
        if not listens:
            self._words.tell("said", self.id, secrets.token_hex(8), message.decode())

    def listen(self, last_event_id: str | None = None) -> EventStream:
        stream = super().listen(last_event_id)
        # The stream of a call, which was resumed, carries no messages of others.
        if stream is self.listener:
            self._words.tell("listens", self.id)
        return stream

    def hear(self, kind: str, more: Sequence[Any], once: Once) -> None:
        """Take what another replica tells of the session; see SessionMessages. ``once`` sends what it said."""
        match kind, more:
            case "withdrawn", [number]:
                super().withdraw(number)
            case "listens", []:
                # There is a newer stream than one of this replica that has ended, so no more is kept for that.
                self._last_stream = self.listener.number if self.listener is not None else 0
            case "said", [message, data]:
                send = partial(super().send, data.encode())
                if self.listener is None:
                    # It is kept for a client that comes back to a stream which broke off here.
                    send()
                else:
                    once(message, send)


class PortableSessions(LocalSessions):
    """LocalSessions that are those of all replicas as soon as there are ``words`` to them."""

    def __init__(self, most: int = 10_000) -> None:
        super().__init__(most)
        self.words: SessionMessages | None = None
        self._over = OrderedDict[str, None]()

    def close(self) -> None:
        """Let go of all sessions: the process stops, and others serve them."""
        for session in self.all():
            self._drop(session)

    def displaced(self, owner: str) -> None:
        """See LocalSessions. Others serve these sessions as well, so all of them go on."""

    def hear(
        self,
        kind: str,
        session_id: str,
        more: Sequence[Any],
        once: Callable[[str, str, Callable[[], None]], None],
    ) -> None:
        """Take what another replica tells of a session that this one may have served; see PortableSession.hear."""
        if kind == "ended":
            self._remember_end(session_id)
        session = self._sessions.get(session_id)
        if isinstance(session, PortableSession):
            if kind == "ended":
                self._drop(session)
            else:
                session.hear(kind, more, partial(once, session_id))

    # --- one session ------------------------------------------------------------------------------------------

    def _new_id(self, version: str) -> str:
        token = super()._new_id(version)
        return token if self.words is None else str(PortableId(token.rpartition(":")[2], version))

    def _made(self, session_id: str, version: str) -> LocalSession:
        portable = decode_portable(session_id)
        if self.words is None or portable is None:
            return super()._made(session_id, version)
        return PortableSession(session_id, portable, partial(self._end, session_id), self.bounds, self.words)

    def _not_at_hand(self, session_id: str) -> LocalSession:
        portable = decode_portable(session_id)
        if self.words is None or portable is None or portable.token in self._over:
            raise SessionUnknown()
        return self._keep(self._made(session_id, portable.version))

    def _end(self, session_id: str) -> None:
        if self.words is not None and isinstance(self._sessions.get(session_id), PortableSession):
            self._remember_end(session_id)
            self.words.tell("ended", session_id)
        super()._end(session_id)

    def _remember_end(self, session_id: str) -> None:
        self._over[token_of(session_id)] = None
        if len(self._over) > REMEMBERED:
            self._over.popitem(last=False)

    def _drop(self, session: LocalSession) -> None:
        """Serve a session no more; a portable one lives on by its id."""
        if isinstance(session, PortableSession):
            del self._sessions[session.id]
            session.close()
        else:
            super()._drop(session)
