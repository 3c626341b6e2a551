"""The open sessions of all replicas, as the console shows them: those in the store, and what is known here of them."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from adapter.errors import AdapterError
from adapter.relay.background import SingleFlight
from adapter.relay.sessions.session import UNNAMED, Session
from adapter.relay.sessions.session_map import TABLE, Sessions
from adapter.rules.access.sessions import SessionState, decode
from adapter.rules.text.unicode import shown
from adapter.state.port import Row, Store
from adapter.wire.spans import find

MOST_READ = 10_000
"""Rows that are read for one look; of more sessions those are missing that this replica does not use."""


LONGEST_INITIALIZE = 8192
"""Bytes of an ``initialize`` that is read for its client's name: those of many sessions are held at a time."""

LONGEST_NAME = 80
"""Characters of a client's name, and of its version, that are shown."""

_CLIENT = ("params", "clientInfo")


class ClientName(NamedTuple):
    """A client's own words about itself: its name and its version, bounded; either may be empty."""

    name: str
    version: str


class SeenSession(NamedTuple):
    """An open session, and when any replica last saw it (Unix seconds).

    ``initialize`` is the body with which its client opened it; None while no row of it is known, and for a long one.
    """

    session: Session
    last_seen: float
    initialize: bytes | None = None

    @property
    def client(self) -> ClientName | None:
        """The name that the client gave in ``initialize``, None where it gave none."""
        return None if self.initialize is None else client_of(self.initialize)


def client_of(initialize: bytes) -> ClientName | None:
    """Read ``clientInfo`` of an ``initialize``, which a stranger wrote: None where there is no name to show."""
    try:
        span = find(initialize, _CLIENT)
        if span is None:
            return None
        told = orjson.loads(initialize[span[0] : span[1]])
    except (AdapterError, ValueError):
        return None
    if not isinstance(told, dict):
        return None
    found = ClientName(_text(told.get("name")), _text(told.get("version")))
    return found if any(found) else None


def _text(value: object) -> str:
    return shown(value.strip(), LONGEST_NAME) if isinstance(value, str) else ""


class OpenSessions:
    """Reads the open sessions. Several who look at the same time share one look."""

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions
        self._looking = SingleFlight[None, list[SeenSession]]()

    async def all(self) -> list[SeenSession]:
        """The open sessions, those used last first. Raises StoreUnavailable."""
        return await self._looking.get(None, self._look)

    async def _look(self) -> list[SeenSession]:
        found = {session.key: SeenSession(session, session.last_seen) for session in self._sessions.opened()}
        after, count = "", 0
        while count < MOST_READ and (rows := await self._store.scan(TABLE, after=after)):
            for row in rows:
                stored = self._stored(row)
                known = found.get(row.key)
                if known is None and stored is not None:
                    found[row.key] = stored
                elif known is not None and stored is not None:
                    seen = max(known.last_seen, stored.last_seen)
                    found[row.key] = SeenSession(known.session, seen, stored.initialize)
            after, count = rows[-1].key, count + len(rows)
        return sorted(found.values(), key=lambda each: each.last_seen, reverse=True)

    def _stored(self, row: Row) -> SeenSession | None:
        """The session of a row, None for one that is not open or that another version wrote."""
        try:
            record = decode(row.value)
        except ValueError:
            return None
        if record.state is not SessionState.OPEN:
            return None
        last_seen, ttl = record.times.last_seen, self._sessions.limits.idle_ttl
        if row.due is not None and ttl is not None:
            # What was seen later is written as the time when it is due.
            last_seen = max(last_seen, row.due - ttl)
        session = Session(
            row.key,
            record.server,
            record.principal,
            record.upstream.id,
            record.upstream.protocol_version,
            record.upstream.generation,
            last_seen,
            record.times.created,
        )
        session.unnamed = row.key.startswith(UNNAMED)
        initialize = record.handshake.initialize
        return SeenSession(session, last_seen, initialize if len(initialize) <= LONGEST_INITIALIZE else None)
