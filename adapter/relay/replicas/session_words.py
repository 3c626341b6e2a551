"""What replicas tell each other of sessions that any of them serves: of their ends, calls, streams and messages.

A word is said soon and without a promise. A replica that misses one serves a call a little longer, or a client does not
hear a notification; that a session has ended is in its row, which every replica reads.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from adapter.errors import BadJson
from adapter.relay.notifications import MessageClaims
from adapter.relay.replicas.registry import Replicas
from adapter.rules.access.replicas import replica_tag
from adapter.state.port import StoreListener
from adapter.wire.envelope import dump, parse

TOPIC = "portable sessions"

LARGEST = 48 << 10
"""Bytes of a word; a larger message stays on the replica where it was said."""

RequestNumber = str | int | float


class SessionHere(Protocol):
    """A session as this replica serves it."""

    @property
    def id(self) -> str: ...

    @property
    def listener(self) -> object | None:
        """A GET stream of this replica, None where there is none."""

    def withdraw_here(self, number: RequestNumber) -> None: ...

    def send_here(self, message: bytes) -> None: ...

    def listens_elsewhere(self) -> None: ...


class SessionsHere(Protocol):
    """The sessions of one server as this replica serves them."""

    def at_hand(self, session_id: str) -> SessionHere | None: ...

    def ended_elsewhere(self, session_id: str) -> None: ...


class SessionWordsOf:
    """The words about the sessions of one server."""

    def __init__(self, server: str, replicas: Replicas, tell: Callable[[list[Any]], None]) -> None:
        self._server = server
        self._replicas = replicas
        self._tell = tell

    @property
    def place(self) -> bytes:
        """The begin of the ids of events that this replica keeps."""
        return f"{replica_tag(self._replicas.id)}.".encode()

    def ended(self, session_id: str) -> None:
        """Tell that a session has ended."""
        self._tell([self._server, "ended", session_id])

    def withdrawn(self, session_id: str, number: RequestNumber) -> None:
        """Tell that a client has cancelled a request that is not under way here."""
        self._tell([self._server, "withdrawn", session_id, number])

    def listens(self, session_id: str) -> None:
        """Tell that a session has a new GET stream, here."""
        self._tell([self._server, "listens", session_id])

    def said(self, session_id: str, message: bytes) -> None:
        """Have one replica at which the session listens send it a message."""
        self._tell([self._server, "said", session_id, secrets.token_hex(8), message.decode()])


@dataclass(eq=False)
class SharedSessionMessages(StoreListener):
    """Says words to the other replicas, and hears theirs. A StoreListener."""

    replicas: Replicas
    claims: MessageClaims
    _servers: dict[str, SessionsHere] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.replicas.store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<SharedSessionMessages of {len(self._servers)} servers: {self.claims!r}>"

    def of(self, server: str, sessions: SessionsHere) -> SessionWordsOf:
        """The words about the sessions of a server; what others say of these is told to ``sessions``."""
        self._servers[server] = sessions
        return SessionWordsOf(server, self.replicas, self._tell)

    def _tell(self, word: list[Any]) -> None:
        # The number of a cancelled request is a client's, and may hold what UTF-8 cannot.
        body = dump(word)
        if len(body) <= LARGEST:
            self.replicas.store.announce(TOPIC, body)

    # --- what others say --------------------------------------------------------------------------------------

    def announced(self, topic: str, body: bytes) -> None:
        """See StoreListener."""
        if topic != TOPIC:
            return
        try:
            server, kind, about, *more = parse(body)
            sessions = self._servers.get(server)
            if sessions is not None:
                self._hear(sessions, kind, about, more)
        except (BadJson, ValueError, TypeError, AttributeError, LookupError) as error:
            self.replicas.log.debug(
                "a replica of another version says what is not understood", why=str(error)
            )

    def _hear(self, sessions: SessionsHere, kind: str, about: Any, more: list[Any]) -> None:
        if kind == "ended":
            sessions.ended_elsewhere(about)
        elif (session := sessions.at_hand(about)) is not None:
            self._hear_of(session, kind, more)

    def _hear_of(self, session: SessionHere, kind: str, more: list[Any]) -> None:
        match kind, more:
            case "withdrawn", [number]:
                session.withdraw_here(number)
            case "listens", []:
                session.listens_elsewhere()
            case "said", [message, data]:
                self._deliver(session, message, data.encode())

    def _deliver(self, session: SessionHere, message: str, data: bytes) -> None:
        if session.listener is None:
            # It is kept for a client that comes back to a stream which broke off here.
            session.send_here(data)
        else:
            digest = hashlib.sha256(session.id.encode()).hexdigest()[:32]
            self.claims.send_once(message, {digest: partial(session.send_here, data)})
