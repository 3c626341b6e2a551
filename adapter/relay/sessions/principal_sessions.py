"""Sessions for hosts that send no ``Mcp-Session-Id``: one for each principal and server, which no client can name."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

from adapter.errors import SessionMissing, SessionUnknown
from adapter.relay.background import SingleFlight
from adapter.relay.exchange import LATEST_LEGACY, ClientRequest
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import INITIALIZE_PARAMS, rpc_request
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.sessions.session import ANY_GUARDED, NONE_GUARDED, UNNAMED, Session
from adapter.relay.sessions.session_map import TABLE, Sessions
from adapter.rules.access.sessions import SessionRecord, SessionState, UpstreamSession, decode, encode
from adapter.rules.last_used import LastUsed
from adapter.state.port import ABSENT, Conflict
from adapter.wire.envelope import dump

PROBE_AGAIN = 30.0
"""Seconds after which a server that opened the adapter no session is asked for one again."""

MOST_STATELESS = 10_000
"""Principals of stateless servers for which the relay notes calls: those that called last."""

_PLAIN = dump(rpc_request(0, "initialize", INITIALIZE_PARAMS))
"""The ``initialize`` for a principal of which none was seen."""


class PrincipalSessions:
    """Finds the session of a legacy request without an id. ``serves``: also at servers that issue ids.

    A server that issues none is stateless: there such a request needs no more than a place for what the relay notes.
    """

    def __init__(self, sessions: Sessions, *, serves: bool = False) -> None:
        self._sessions = sessions
        self._serves = serves
        # By server and principal.
        self._stateless = LastUsed[str, Session](MOST_STATELESS)
        self._probes = SingleFlight[str, None]()
        self._probed_at: dict[str, float] = {}

    async def find(self, ask: ClientRequest) -> Session:
        """The session of the request's principal. Raises SessionMissing, and what the upstream raises.

        A server that has opened no session yet is asked for one, unless that makes no difference.
        """
        server = ask.server
        if server.issues_ids is None and not self._serves:
            await self._find_out(server)
        key = _key(server.id, ask.sender.party or ask.sender.principal)
        if server.issues_ids is False:
            return self._stateless.get(key) or self._keep_stateless(key, server.id, ask.sender.principal)
        if not self._serves and ask.method == "GET":
            raise SessionMissing(
                "Mcp-Session-Id is missing: mcp-file-adapter serves streamable HTTP, so send initialize with POST to "
                "this URL first. A client of HTTP+SSE (2024-11-05), which begins with GET, needs its transport set to "
                "streamable HTTP."
            )
        if not self._serves:
            raise SessionMissing()
        return self._sessions.known(key) or await self._read(key, server.id, ask.sender.principal)

    async def remember(self, record: SessionRecord) -> None:
        """Have a principal's kept session be opened next as this one was. Raises StoreUnavailable."""
        if not self._serves:
            return
        key = _key(record.server, record.principal)
        row = await self._sessions.store.get(TABLE, key)
        before = decode(row.value) if row else None
        next_record = self._resting(record.server, record.principal, record.handshake.initialize)
        if before is not None and before.state in (SessionState.OPEN, SessionState.IDLE):
            next_record = replace(before, handshake=next_record.handshake)
        # When an open one was last used only its row's time tells.
        is_open = next_record.state is SessionState.OPEN
        due = row.due if row is not None and is_open else self._sessions.due(next_record)
        try:
            await self._sessions.store.put(
                TABLE, key, encode(next_record), expected=row.version if row else ABSENT, due=due
            )
        except Conflict:
            await self.remember(record)

    async def _read(self, key: str, server: str, principal: str) -> Session:
        row, epoch = await self._sessions.row(key)
        record = decode(row.value) if row else None
        if record is not None and record.state is SessionState.REVOKED:
            self._sessions.cache.drop(key)
            raise SessionUnknown(record.reason)
        if row is not None and record is not None and record.state is not SessionState.ENDED:
            session = await self._sessions.adopt(row, record, epoch)
            session.last_seen, session.touched = self._sessions.clock(), True
            return session
        self._sessions.cache.miss(key)
        record = self._resting(server, principal, _PLAIN)
        try:
            row, epoch = await self._sessions.write_new(key, record, row.version if row else ABSENT)
        except Conflict:
            return await self._read(key, server, principal)
        session = await self._sessions.adopt(row, record, epoch)
        # Nothing was called in it yet; of calls that other processes take nothing is known here.
        session.guarded = ANY_GUARDED if self._sessions.store.shared else NONE_GUARDED
        return session

    async def _find_out(self, server: Server) -> None:
        """Learn whether the server issues ids; once for all who wait, and not again for ``PROBE_AGAIN`` seconds."""
        if self._sessions.clock() >= self._probed_at.get(server.id, 0.0) + PROBE_AGAIN:
            await self._probes.get(server.id, partial(self._open_own_session, server))

    async def _open_own_session(self, server: Server) -> None:
        own_session = OwnSession(server, server.timeouts.request)
        try:
            await own_session.open()
            self._probed_at[server.id] = self._sessions.clock()
        finally:
            await own_session.close()

    def _resting(self, server: str, principal: str, initialize: bytes) -> SessionRecord:
        """A session at rest: the first request in it opens one upstream."""
        upstream = UpstreamSession(None, LATEST_LEGACY)
        return SessionRecord.begun(
            server, principal, initialize, upstream, SessionState.IDLE, self._sessions.clock()
        )

    def _keep_stateless(self, key: str, server: str, principal: str) -> Session:
        session = Session(key, server, principal, None, "", 0, 0.0, unnamed=True)
        self._stateless.put(key, session)
        return session


def _key(server: str, principal: str) -> str:
    """The key of a row that no session id leads to: those of ids are hexadecimal."""
    named = f"{len(server)}:{server}{principal}"
    return UNNAMED + hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
