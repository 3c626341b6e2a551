"""Sessions at a merged mount, and the sessions at its servers in which their calls run.

The session of a client at the mount is a row like that of any other session, without an upstream session. Its sessions
at servers are opened when something of a server is first asked. Their ids follow from the one that the client has, so
every process finds them, and nothing else has to be written down.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from adapter.errors import AdapterError
from adapter.relay.background import BackgroundTasks, RowLooks, SingleFlight, run_beside
from adapter.relay.call.dispatch import CLOSE_SECONDS
from adapter.relay.exchange import ClientRequest, ClientResponse, Exchanges, Sender, forwardable
from adapter.relay.http_api.callers import whole_body
from adapter.relay.mounts.asks import Number, Route, beside, end_of
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import INITIALIZED
from adapter.relay.sessions.session_map import TABLE, Session, Sessions
from adapter.rules.access.principals import party_of
from adapter.rules.access.sessions import (
    SessionRecord,
    SessionState,
    UpstreamSession,
    session_id_from,
    session_key,
)
from adapter.rules.last_used import LastUsed
from adapter.rules.mounts.member_ids import MemberId, member_id
from adapter.state.port import Conflict, StoreListener
from adapter.upstream.port import header
from adapter.wire.envelope import Envelope
from adapter.wire.eras import MODERN

MOST_KNOWN = 10_000
"""Sessions of one mount whose sessions at servers are known without looking: those that were used last."""

LOOK_AGAIN = 1.0
"""Seconds between two looks for sessions at servers that other processes have opened."""


class NotOpened(Exception):
    """A server opened no session; ``answer`` is what it said to ``initialize``, which is whole."""

    def __init__(self, answer: ClientResponse, body: bytes) -> None:
        super().__init__()
        self.answer, self.body = ClientResponse(answer.status, answer.headers, body), body


@dataclass(eq=False, slots=True)
class MountSession:
    """What this process knows of a session at a mount: ``id`` is its client's.

    ``members`` are the ids of the sessions at servers that are open, by the ids of these; ``under_way`` the servers of
    requests that wait for an answer, by the client's ids of these. ``held`` are the numbers of requests that are worked
    on by their ids, without those that the client cancelled before they were sent. ``followers`` have the open GET
    streams carry that of one more server, ``routes`` are the ways of requests that have been made before, by their
    methods and names.
    """

    id: str
    session: Session
    members: dict[str, str] = field(default_factory=dict)
    routes: dict[tuple[str, str | None], Route] = field(default_factory=dict)
    under_way: dict[Number, str] = field(default_factory=dict)
    held: dict[Number, int] = field(default_factory=dict, init=False)
    followers: list[Callable[[Server], None]] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<MountSession {self.session.key[:8]}: {list(self.members)}>"

    def id_at(self, server: str) -> str:
        """The id of the session at that server."""
        return session_id_from(hashlib.sha256(f"{self.id}\0{server}".encode()).digest())

    def marked(self, server: str) -> str:
        """What stands for that server in ids of its requests: none of the servers can know it."""
        digest = hashlib.sha256(self.id_at(server).encode()).hexdigest()
        return f"{server}~{digest[:16]}"

    def asked_by(self, value: object, servers: Collection[str]) -> MemberId | None:
        """The id of a server's request that the client names so; None where no server of these has chosen it."""
        server = value.partition("~")[0] if isinstance(value, str) else ""
        found = member_id(value, (self.marked(server),)) if server in servers else None
        return None if found is None else MemberId(server, found.id)

    @contextmanager
    def holding(self, number: Number) -> Iterator[None]:
        """Work on a request. There may be others of the same id."""
        self.held[number] = self.held.get(number, 0) + 1
        try:
            yield
        finally:
            left = self.held.pop(number, 0) - 1
            if left > 0:
                self.held[number] = left

    def asks_another(self, server: str, number: Number) -> bool:
        """Tell whether the client waits for an answer of another server than this one under that id, or of the mount
        itself.
        """
        asked = self.under_way.get(number)
        return number in self.held if asked is None else asked != server


class MountRequest(NamedTuple):
    """What a client asks at a mount, in its ``session`` there if it has one."""

    ask: ClientRequest
    session: MountSession | None = None

    @property
    def envelope(self) -> Envelope:
        """Its message."""
        assert isinstance(self.ask.envelope, Envelope), "a mount takes no batches"
        return self.ask.envelope

    @property
    def is_modern(self) -> bool:
        """Tell whether it is of the era without sessions."""
        return self.ask.sender.era is MODERN

    @property
    def whose(self) -> str:
        """A text that is equal for callers who see the same."""
        return party_of(self.ask.sender.caller) if self.session is None else self.session.session.key


class MountSessions(StoreListener):
    """The sessions of one mount; ``mount`` is its own light server, ``servers`` are those behind it by their ids."""

    def __init__(
        self, relay: Exchanges, sessions: Sessions, mount: Server, servers: Mapping[str, Server]
    ) -> None:
        self._relay = relay
        self._sessions = sessions
        self._mount = mount
        self._servers = servers
        self._known = LastUsed[str, MountSession](MOST_KNOWN)
        self._opening = SingleFlight[tuple[str, str], None]()
        # Sessions at servers that other processes may open while a stream waits for their words here, by their keys.
        self._awaited: dict[str, tuple[MountSession, Server]] = {}
        self._background = BackgroundTasks()
        self._looks = RowLooks(self._look, self._background, LOOK_AGAIN)
        if sessions.store.shared:
            sessions.store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<MountSessions of {self._mount.id!r}: {len(self._known)} known>"

    # --- at the mount -----------------------------------------------------------------------------------------

    async def create(self, ask: ClientRequest, initialize: Envelope, version: str) -> str:
        """Open a session at the mount and return its id. Raises LimitReached, StoreUnavailable."""
        record = SessionRecord.begun(
            self._mount.id,
            ask.sender.principal,
            initialize.body,
            UpstreamSession(None, version),
            SessionState.OPEN,
            self._sessions.clock(),
        )
        async with self._sessions.place() as place:
            return await self._sessions.create(record, place)

    async def find(self, ask: ClientRequest) -> MountSession:
        """The session that a request names. Raises SessionMissing, SessionUnknown, StoreUnavailable."""
        session_id = ask.sender.session_id
        session = await self._sessions.find(session_id, self._mount.id, ask.sender.principal)
        if session.asleep:
            await self._wake(session)
        assert session_id is not None, "it was just found"
        known = self._known.values.get(session_id)
        if known is None or known.session is not session:
            known = MountSession(session_id, session)
            self._known.put(session_id, known)
        return known

    def at_hand(self, sender: Sender) -> MountSession | None:
        """The session of that sender where nothing has to be asked for it; None where ``find`` has to look."""
        known = self._known.values.get(sender.session_id or "")
        if known is None:
            return None
        session, cache = known.session, self._sessions.cache
        if (
            session.epoch != cache.epoch
            or session.asleep
            or session.principal != sender.principal
            or cache.open.get(session.key) is not session
        ):
            return None
        session.last_seen = self._sessions.clock()
        session.touched = True
        return known

    async def _wake(self, session: Session) -> None:
        """Write down that an idle session is in use again. Its sessions at servers are woken by their own calls."""
        row, record = await self._sessions.record(session)
        async with self._sessions.slot_for(session.key, record):
            await self._sessions.remap(session, row, replace(record, state=SessionState.OPEN))

    async def remember(self, session: MountSession, last: bytes) -> None:
        """Have sessions that are opened later begin with this request too. Raises StoreUnavailable."""
        row, record = await self._sessions.record(session.session)
        handshake = record.handshake._replace(initialized=last)
        await self._sessions.remap(session.session, row, replace(record, handshake=handshake))

    async def end(self, ask: ClientRequest) -> ClientResponse:
        """End the session of a DELETE, and its sessions at all servers. Raises SessionMissing, SessionUnknown."""
        known = await self.find(ask)
        self._sessions.begin_end(known.session)
        self._known.drop(known.id)
        return await run_beside(self._end(ask, known))

    async def _end(self, ask: ClientRequest, known: MountSession) -> ClientResponse:
        async def end_at(server: Server) -> None:
            with suppress(AdapterError):
                own = end_of(ask, server, known.id_at(server.id))
                answer = await self._relay.end(own, min(CLOSE_SECONDS, server.timeouts.request))
                await answer.close()

        await asyncio.gather(*map(end_at, self._servers.values()))
        await self._sessions.end(known.session, closed=True)
        return ClientResponse(200, [], b"")

    # --- at servers -------------------------------------------------------------------------------------------

    def member(self, session_id: str) -> Session | None:
        """A session at a server, if this process knows it."""
        return self._sessions.cache.open.get(session_key(session_id))

    def in_agreed_version(self, own: ClientRequest) -> None:
        """Have a request name the version of MCP that its server has agreed to in this session, if that is known."""
        found = self.member(own.sender.session_id or "")
        if found is not None and own.sender.version not in (None, found.protocol_version):
            own.sender = own.sender._replace(version=found.protocol_version)
            fields = forwardable(own.headers, drop=frozenset({"mcp-protocol-version"}))
            own.headers = [*fields, ("MCP-Protocol-Version", found.protocol_version)]

    async def enter(self, request: MountRequest, server: Server) -> str | None:
        """The id of the client's session at that server, which is opened if need be; None for a client without one.

        Raises NotOpened, and what the relay raises.
        """
        session = request.session
        if session is None:
            return None
        if server.id not in session.members:
            opening = partial(self._open, request.ask, session, server)
            await self._opening.get((session.session.key, server.id), opening)
        return session.members[server.id]

    async def _open(self, ask: ClientRequest, session: MountSession, server: Server) -> None:
        if await self.is_open(session, server):
            return
        _, record = await self._sessions.record(session.session)
        session_id = session.id_at(server.id)
        own = beside(ask, server, None, record.handshake.initialize)
        own.opens = session_id
        with suppress(Conflict):
            # Another process that was first has opened the same session.
            answer = await self._relay.handle(own)
            try:
                body = await whole_body(answer, server.rules.answer_limit)
            finally:
                await answer.close()
            if header(answer.headers, "mcp-session-id") is None:
                raise NotOpened(answer, body)
            for text in (INITIALIZED, record.handshake.initialized):
                if text is not None:
                    await self._tell(beside(ask, server, session_id, text))
        self._entered(session, server)

    async def is_open(self, session: MountSession, server: Server) -> bool:
        """Tell whether the client has a session at that server, of whichever process. Raises StoreUnavailable."""
        if server.id in session.members:
            return True
        if await self._sessions.store.get(TABLE, session_key(session.id_at(server.id))) is None:
            return False
        self._entered(session, server)
        return True

    def _entered(self, session: MountSession, server: Server) -> None:
        session.members[server.id] = session.id_at(server.id)
        for follow in session.followers:
            follow(server)

    # --- of other processes -----------------------------------------------------------------------------------

    def follow_others(self, session: MountSession) -> None:
        """Have the streams of a session carry those of sessions at servers that other processes open."""
        if self._sessions.store.shared:
            for server in self._servers.values():
                self._awaited[session_key(session.id_at(server.id))] = session, server

    def leave_others(self, session: MountSession) -> None:
        """The streams of a session have ended."""
        for server in self._servers:
            self._awaited.pop(session_key(session.id_at(server)), None)

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table == TABLE and (awaited := self._awaited.get(key)) is not None:
            self._looks.add({key: awaited}, told=True)

    def rows_unknown(self) -> None:
        """See StoreListener."""
        # A store that tells of any change all the time is not asked for everything as often.
        self._looks.add(self._awaited)

    async def _look(self, key: str, _: object) -> None:
        # Another stream may await it now than when the row was named.
        if (awaited := self._awaited.get(key)) is not None:
            await self.is_open(*awaited)

    async def leave(self) -> None:
        """Stop looking for what other processes do."""
        if self in self._sessions.store.listeners:
            self._sessions.store.listeners.remove(self)
        await self._background.close()

    async def is_gone(self, session: MountSession, server: Server) -> bool:
        """Tell whether the time of the session at that server is over: then the next request opens it anew. One that
        was revoked is not.
        """
        session.members.pop(server.id, None)
        session.routes.clear()
        return not await self.is_open(session, server)

    async def _tell(self, ask: ClientRequest) -> None:
        """Send a message whose answer nobody waits for. Raises what the relay raises."""
        await (await self._relay.handle(ask)).close()

    async def tell_all(self, ask: ClientRequest, session: MountSession, message: bytes) -> None:
        """Send a message to every server at which the client has a session; those that fail do not get it."""

        async def tell(server: Server) -> None:
            with suppress(AdapterError):
                await self._tell(beside(ask, server, session.id_at(server.id), message))

        servers = [each for each in self._servers.values() if await self.is_open(session, each)]
        await asyncio.gather(*map(tell, servers))
