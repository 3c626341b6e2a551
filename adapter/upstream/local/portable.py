"""Sessions of a server that keeps nothing of them in this process, so that each of several replicas can serve any.

A session is its id and what the id holds: the protocol version. The row of the client's
session has that id, so it is state of the store like everything else there, and a replica that has never seen the
session needs nothing but the row that it reads anyway. No row of its own is written.

What lives in one process are the calls and streams that it has. So a replica tells the others what concerns these:
the end of a session, a call that is cancelled, and a message for a session that does not listen here.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from adapter.errors import SessionUnknown
from adapter.upstream.local.events import EventStream, StreamBounds
from adapter.upstream.local.sessions import LocalSession, LocalSessions, RequestId

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


class SessionMessages(Protocol):
    """The way to the other replicas that serve the same sessions. ``place`` begins the ids of events kept here.

    Every method returns at once; nothing is known of who hears it.
    """

    @property
    def place(self) -> bytes: ...

    def ended(self, session_id: str) -> None:
        """Tell that a session has ended."""

    def withdrawn(self, session_id: str, number: RequestId) -> None:
        """Tell that a client has cancelled a request that is not under way here."""

    def listens(self, session_id: str) -> None:
        """Tell that a session has a new GET stream, here."""

    def said(self, session_id: str, message: bytes) -> None:
        """Have one replica at which the session listens send it a message."""


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
            self._words.withdrawn(self.id, number)

    def send(self, message: bytes) -> None:
        listens = self.listener is not None
        super().send(message)
        if not listens:
            self._words.said(self.id, message)

    def listen(self, last_event_id: str | None = None) -> EventStream:
        stream = super().listen(last_event_id)
        # The stream of a call, which was resumed, carries no messages of others.
        if stream is self.listener:
            self._words.listens(self.id)
        return stream

    # --- what another replica tells ---------------------------------------------------------------------------

    def withdraw_here(self, number: RequestId) -> None:
        """Give up the request of this id, if it is under way here."""
        super().withdraw(number)

    def send_here(self, message: bytes) -> None:
        """Send a message on a stream of this replica, or keep it for one that broke off."""
        super().send(message)

    def listens_elsewhere(self) -> None:
        """Keep no more messages for a stream of this replica that has ended: there is a newer one."""
        self._last_stream = self.listener.number if self.listener is not None else 0


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

    # --- what another replica tells ---------------------------------------------------------------------------

    def at_hand(self, session_id: str) -> PortableSession | None:
        """A session that this replica serves, or has served lately."""
        session = self._sessions.get(session_id)
        return session if isinstance(session, PortableSession) else None

    def ended_elsewhere(self, session_id: str) -> None:
        """Give up the calls of a session that has ended, and end its streams."""
        self._remember_end(session_id)
        session = self.at_hand(session_id)
        if session is not None:
            self._drop(session)

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
        if self.words is not None and self.at_hand(session_id) is not None:
            self._remember_end(session_id)
            self.words.ended(session_id)
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
