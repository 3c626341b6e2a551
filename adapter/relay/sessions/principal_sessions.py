"""Sessions for hosts that send no ``Mcp-Session-Id``: one for each principal and server, which no client can name."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import replace

from adapter.errors import SessionMissing, SessionUnknown
from adapter.relay.exchange import LATEST_LEGACY, ClientRequest
from adapter.relay.server import Server
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.sessions.session import KEPT, Session
from adapter.relay.sessions.session_map import TABLE, Sessions
from adapter.rules.access.sessions import SessionRecord, SessionState, decode, encode
from adapter.state.port import ABSENT, Conflict, Store
from adapter.wire.envelope import dump

LOOK_AGAIN = 30.0
"""Seconds after which a server that opened the adapter no session is asked for one again."""

_PLAIN = dump(
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": LATEST_LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "mcp-file-adapter", "version": "1"},
        },
    }
)
"""The ``initialize`` for a principal of which none was seen: a client that can do nothing but ask."""


class KeptSessions:
    """Finds the session of a legacy request without an id. ``serves``: also at servers that issue ids. ``clock`` gives
    Unix time in seconds.

    A server that issues none is stateless: there such a request needs no more than a place for what the relay notes.
    """

    def __init__(
        self, sessions: Sessions, store: Store, clock: Callable[[], float], *, serves: bool = False
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._clock = clock
        self._serves = serves
        # By server and principal: as many as there are tokens, for each server.
        self._stateless: dict[str, Session] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._looked: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<KeptSessions: {len(self._stateless)} of stateless servers>"

    async def find(self, ask: ClientRequest) -> Session:
        """The session of the request's principal. Raises SessionMissing, and what the upstream raises.

        A server that has opened no session yet is asked for one, unless that makes no difference.
        """
        server = ask.server
        if server.issues_ids is None and not self._serves:
            await self._look(server)
        key = _key(server.id, ask.sender.principal)
        if server.issues_ids is False:
            return self._stateless.get(key) or self._keep_stateless(key, server.id, ask.sender.principal)
        if not self._serves:
            raise SessionMissing()
        return self._sessions.known(key) or await self._read(key, server.id, ask.sender.principal)

    async def remember(self, record: SessionRecord) -> None:
        """Have a principal's kept session be opened next as this one was. Raises StoreUnavailable."""
        if not self._serves:
            return
        key = _key(record.server, record.principal)
        row = await self._store.get(TABLE, key)
        before = decode(row.value) if row else None
        kept = self._resting(record.server, record.principal, record.initialize)
        if before is not None and before.state in (SessionState.OPEN, SessionState.IDLE):
            kept = replace(before, initialize=record.initialize, initialized=None)
        # When an open one was last used only its row's time tells.
        is_open = kept.state is SessionState.OPEN
        due = row.due if row is not None and is_open else self._sessions.due(kept)
        try:
            await self._store.put(TABLE, key, encode(kept), expected=row.version if row else ABSENT, due=due)
        except Conflict:
            await self.remember(record)

    async def _read(self, key: str, server: str, principal: str) -> Session:
        row = await self._store.get(TABLE, key)
        record = decode(row.value) if row else None
        if record is not None and record.state is SessionState.REVOKED:
            raise SessionUnknown(record.reason)
        if record is None or record.state is SessionState.ENDED:
            record = self._resting(server, principal, _PLAIN)
            due, version = self._sessions.due(record), row.version if row else ABSENT
            try:
                await self._store.put(TABLE, key, encode(record), expected=version, due=due)
            except Conflict:
                return await self._read(key, server, principal)
            session = self._sessions.adopt(key, record)
            # Nothing was called in it yet.
            session.guarded.everything = False
            return session
        return self._sessions.adopt(key, record)

    async def _look(self, server: Server) -> None:
        """Find out whether the server issues ids; once for all who wait."""
        looking = self._looking.get(server.id)
        if looking is None:
            if self._clock() < self._looked.get(server.id, 0.0) + LOOK_AGAIN:
                return
            looking = self._looking[server.id] = asyncio.ensure_future(self._visit(server))
        await asyncio.shield(looking)

    async def _visit(self, server: Server) -> None:
        visit = OwnSession(server, server.timeouts.request)
        try:
            await visit.open()
            self._looked[server.id] = self._clock()
        finally:
            await visit.close()
            del self._looking[server.id]

    def _resting(self, server: str, principal: str, initialize: bytes) -> SessionRecord:
        """A session at rest: the first request in it opens one upstream."""
        now = self._clock()
        return SessionRecord(
            server=server,
            principal=principal,
            upstream_session=None,
            protocol_version=LATEST_LEGACY,
            initialize=initialize,
            initialized=None,
            said="",
            generation=0,
            state=SessionState.IDLE,
            created=now,
            last_seen=now,
            reason=None,
        )

    def _keep_stateless(self, key: str, server: str, principal: str) -> Session:
        session = self._stateless[key] = Session(
            key=key,
            server=server,
            principal=principal,
            upstream_session=None,
            protocol_version="",
            generation=0,
            last_seen=0.0,
            kept=True,
        )
        return session


def _key(server: str, principal: str) -> str:
    """The key of a row that no session id leads to: those of ids are hexadecimal."""
    named = f"{len(server)}:{server}{principal}"
    return KEPT + hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
