"""An Upstream whose sessions are shared: at the server there is one for each principal, whatever clients open.

It behaves as a server does. Each ``initialize`` gets a session id of its own, a membership in the shared session; when
the server forgets that one, all memberships get 404, and the relay initializes again as it does at any server.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any

from adapter.errors import AdapterError, SessionUnknown, StoreUnavailable, UpstreamBroken
from adapter.relay.background import SingleFlight, apart
from adapter.relay.exchange import JSON, asking_plain
from adapter.relay.replies import kept_fields, media_type, read_body
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import CLOSE_SILENCE, InnerClient, initialize_result
from adapter.relay.sessions.session_cache import MOST_MISSED
from adapter.relay.sessions.shared_session import SharedSession, plain_body
from adapter.rules.access.sessions import (
    MANY,
    Membership,
    SharedRecord,
    UpstreamSession,
    membership,
    principal_key,
    shared_record,
)
from adapter.settings.core import UpstreamConnections
from adapter.state.port import ABSENT, Conflict, Row, Store, StoreListener
from adapter.upstream.port import (
    InitializeRequest,
    MemberRequest,
    Share,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    WholeReply,
    header,
)
from adapter.wire.envelope import Envelope, failure, read_envelope
from adapter.wire.shared_ids import with_id


@dataclass(eq=False)
class SharedSessions(StoreListener):
    """Stands before the upstream of ``server``. A session that was not used for ``idle_ttl`` seconds is closed; None
    never. ``clock`` gives Unix time in seconds.
    """

    server: Server
    store: Store
    limits: UpstreamConnections
    _: KW_ONLY
    idle_ttl: float | None
    clock: Callable[[], float]
    # By principal: those who are idle for too long are forgotten.
    _shared: dict[str, SharedSession] = field(default_factory=dict, init=False)
    # Those whose rows other processes may have changed.
    _stale: set[str] = field(default_factory=set, init=False)
    # Those whose rows were found gone of late, or replaced.
    _missed: list[SharedSession] = field(default_factory=list, init=False)
    _is_ending_lost: bool = field(default=False, init=False)
    _opening: SingleFlight[str, SharedSession | WholeReply] = field(
        default_factory=SingleFlight[str, SharedSession | WholeReply], init=False
    )

    def __post_init__(self) -> None:
        self._upstream = self.server.upstream
        self._table = f"shared:{self.server.id}"
        self.store.listeners.append(self)

    def stand_on(self, upstream: Upstream) -> None:
        """Open sessions of ``upstream`` from now on. Those that are open stay where they are until it forgets them."""
        self._upstream = upstream
        for shared in self._shared.values():
            shared.upstream = upstream

    def __repr__(self) -> str:
        return f"<SharedSessions of {self.server.id!r}: {len(self._shared)}>"

    def send(
        self, request: UpstreamRequest, read_timeout: float | None
    ) -> Coroutine[Any, Any, UpstreamReply]:
        """See Upstream. Also raises StoreUnavailable."""
        if isinstance(request, InitializeRequest) and request.share is not None:
            return self._initialize(request, request.share, read_timeout)
        named = request.part if type(request) is MemberRequest else None
        if named is None and (named := membership(header(request.headers, "mcp-session-id"))) is None:
            return self._upstream.send(request, read_timeout)
        shared = self._shared.get(named.key)
        if shared is None or shared.record.secret != named.secret or named.key in self._stale:
            return self._send_after_look(request, named, read_timeout)
        return shared.send(request, named.member, read_timeout)

    async def _send_after_look(
        self, request: UpstreamRequest, named: Membership, read_timeout: float | None
    ) -> UpstreamReply:
        shared = await self._find(named)
        if shared is None:
            return WholeReply(404, [JSON], failure(SessionUnknown(), b"null"))
        return await shared.send(request, named.member, read_timeout)

    async def close(self) -> None:
        """See Upstream. The sessions at the server go on, for the next process."""
        await self._opening.close()
        await asyncio.gather(*(each.listeners.close() for each in self._shared.values()))
        await self._upstream.close()

    # --- opening ----------------------------------------------------------------------------------------------

    async def _initialize(
        self, request: InitializeRequest, share: Share, read_timeout: float | None
    ) -> UpstreamReply:
        """Answer from the shared session, which is opened if there is none; once for all who wait."""
        plain = plain_body(request)
        envelope = await apart(plain, partial(read_envelope, plain))
        assert isinstance(envelope, Envelope), "only an initialize opens a session"
        key = principal_key(share.principal)
        found: SharedSession | WholeReply | None = self._shared.get(key)
        if found is None or key in self._stale:
            found = await self._opening.get(key, partial(self._open, key, request, envelope, read_timeout))
        if isinstance(found, WholeReply):
            return WholeReply(found.status, found.headers, _under_id(found.whole or b"", envelope.id_bytes))
        found.used = self.clock()
        member = (MANY if share.many else "") + secrets.token_hex(8)
        fields = [JSON, ("Mcp-Session-Id", str(Membership(key, found.record.secret, member)))]
        body = b'{"jsonrpc":"2.0","id":' + envelope.id_bytes + b',"result":' + found.record.result + b"}"
        return WholeReply(200, fields, body)

    async def _open(
        self, key: str, request: InitializeRequest, envelope: Envelope, read_timeout: float | None
    ) -> SharedSession | WholeReply:
        """The session of that key as it is written down, or opened at the server; the answer where that is none."""
        row = await self._row(key)
        shared = self._follow(key, row)
        if shared is not None:
            return shared
        headers = asking_plain(list(request.headers), drop=frozenset({"content-encoding"}))
        plain_request = replace(request, headers=headers, body=envelope.body, share=None)
        client = self._client(UpstreamSession(None, ""), plain_request, read_timeout)
        reply = await self._upstream.send(plain_request, read_timeout)
        if reply.status != 200:
            body = await read_body(reply, read_timeout, client.limit)
            return WholeReply(reply.status, kept_fields(reply.headers), body)
        if header(reply.headers, "mcp-session-id") is None:
            begun, answer = None, await client.answer(reply, envelope.id)
        else:
            begun, answer = await client.begun(reply, envelope.id, keeps_raw=True)
        result = initialize_result(answer.response)
        if begun is None or result is None:
            body = answer.response if answer.response is not None else answer.raw
            fields = [each for each in kept_fields(reply.headers) if each[0].lower() != "content-type"]
            fields.append(
                JSON if answer.response is not None else ("Content-Type", media_type(reply.headers))
            )
            return WholeReply(200, fields, body)
        assert begun.session.id is not None, "it opened a session that has an id"
        record = SharedRecord(begun.session.id, begun.session.protocol_version, result, secrets.token_hex(16))
        try:
            return await self._write(key, ABSENT if row is None else row.version, begun, record)
        except BaseException:
            await self._close_upstream(begun)
            raise

    async def _write(
        self, key: str, row_version: int, client: InnerClient, record: SharedRecord
    ) -> SharedSession:
        """Write a session down. Where another replica was first, its session is everybody's, and this one is closed."""
        due = self._due(self.clock())
        try:
            await self.store.put(self._table, key, record.encoded(), expected=row_version, due=due)
        except Conflict:
            winner = await self._load(key)
            if winner is None:
                raise UpstreamBroken(
                    "The shared session was closed while it was opened: send initialize again."
                ) from None
            await self._close_upstream(client)
            return winner
        return self._adopt(key, record)

    # --- finding ----------------------------------------------------------------------------------------------

    async def _find(self, named: Membership) -> SharedSession | None:
        """The shared session that a membership is of; None when it is over."""
        shared = self._shared.get(named.key)
        # Another replica may have opened the one that is named, and its word may be on the way.
        is_other = shared is not None and shared.record.secret != named.secret and self.store.shared
        if shared is None or named.key in self._stale or is_other:
            shared = await self._load(named.key)
        return shared if shared is not None and shared.record.secret == named.secret else None

    async def _load(self, key: str) -> SharedSession | None:
        """The session as it is written down; None if there is none."""
        return self._follow(key, await self._row(key))

    async def _row(self, key: str) -> Row | None:
        # Before the read: what others do while it is under way may be missing in it.
        self._stale.discard(key)
        try:
            return await self.store.get(self._table, key)
        except StoreUnavailable:
            self._stale.add(key)
            raise

    def _follow(self, key: str, row: Row | None) -> SharedSession | None:
        """Know the session that the row tells of, which another process may have opened, and no other."""
        record = None
        if row is not None:
            with contextlib.suppress(ValueError):  # another version wrote it
                record = shared_record(row.value)
        known = self._shared.get(key)
        if known is not None and known.record != record:
            self._forget(key)
            if len(self._missed) < MOST_MISSED:
                self._missed.append(known)
        return None if record is None else self._adopt(key, record)

    def _adopt(self, key: str, record: SharedRecord) -> SharedSession:
        shared = self._shared.get(key)
        if shared is None:
            gone = partial(self._gone, key)
            shared = SharedSession(self._upstream, record, self.limits, gone, self.clock)
            self._shared[key] = shared
        return shared

    def _forget(self, key: str) -> None:
        self._shared.pop(key).listeners.end()

    def row_changed(self, table: str, key: str) -> None:
        """See StoreListener."""
        if table == self._table and key in self._shared:
            self._stale.add(key)

    def rows_unknown(self) -> None:
        """See StoreListener."""
        self._stale.update(self._shared)

    # --- ending -----------------------------------------------------------------------------------------------

    async def _gone(self, key: str, shared: SharedSession) -> None:
        """Forget a session that the server does not know any more."""
        if self._shared.get(key) is not shared:
            return
        self._forget(key)
        row = await self.store.get(self._table, key)
        if row is not None and row.value == shared.record.encoded():
            with contextlib.suppress(Conflict):
                await self.store.delete(self._table, key, expected=row.version)

    async def tidy(self) -> None:
        """Close the sessions that nobody used for ``idle_ttl``. Raises StoreUnavailable."""
        if self.idle_ttl is None:
            return
        await self.write_used()
        for row in await self.store.overdue(self._table, self.clock()):
            shared = self._shared.get(row.key)
            if shared is None or not shared.busy:
                await self._close_idle(row)
        # Others may have closed these.
        for key in list(self._stale):
            if key in self._shared:
                await self._load(key)
            else:
                self._stale.discard(key)

    async def write_used(self) -> None:
        """Write down when sessions were used, so that no other process takes them for idle. Raises StoreUnavailable."""
        if not self._is_ending_lost:
            self._missed.clear()
        if self.idle_ttl is None:
            return
        now = self.clock()
        dues = {
            key: self._due(now if shared.busy and self.store.shared else shared.used) or 0.0
            for key, shared in self._shared.items()
        }
        await self.store.touch(self._table, dues)

    async def end_lost(self) -> None:
        """Close the sessions that are known here alone, since the store has lost their rows, one after another.

        Raises StoreUnavailable.
        """
        # Until it is done, also where the store fails in between.
        self._is_ending_lost = True
        for key in list(self._shared):
            await self._load(key)
        while self._missed:
            record = self._missed.pop().record
            await self._close_upstream(self._client(UpstreamSession(record.session, record.version)))
        self._is_ending_lost = False

    async def _close_idle(self, row: Row) -> None:
        if self.store.shared:
            fresh = await self.store.get(self._table, row.key)
            if fresh is None or fresh.version != row.version or (fresh.due or 0.0) > self.clock():
                return
        try:
            record = shared_record(row.value)
            closed = await self._close_upstream(self._client(UpstreamSession(record.session, record.version)))
        except ValueError:
            closed = True
        if not closed:
            await self.store.touch(self._table, {row.key: self._due(self.clock()) or 0.0})
        else:
            # Unless it was found gone meanwhile, and another was opened.
            now = self._shared.get(row.key)
            if now is not None and now.record.encoded() == row.value:
                self._forget(row.key)
            with contextlib.suppress(Conflict):
                await self.store.delete(self._table, row.key, expected=row.version)

    def _client(
        self, session: UpstreamSession, like: UpstreamRequest | None = None, read_timeout: float | None = None
    ) -> InnerClient:
        """Speaks as the request that opened the session did, or as the adapter itself."""
        like = like or UpstreamRequest("POST", self.server.rules.static)
        return InnerClient(self._upstream, like, session, read_timeout, self.limits.max_answer_bytes)

    async def _close_upstream(self, client: InnerClient) -> bool:
        """End a session at the server. False if the server does not answer."""
        try:
            return await client.close(CLOSE_SILENCE)
        except AdapterError:
            return False

    def _due(self, used: float) -> float | None:
        return None if self.idle_ttl is None else used + self.idle_ttl


def _under_id(body: bytes, number: bytes) -> bytes:
    """The answer to another client's ``initialize`` under this id."""
    with contextlib.suppress(AdapterError):
        answer = read_envelope(body)
        if isinstance(answer, Envelope) and answer.id is not None:
            return with_id(body, number)
    return body
