"""Upstream sessions of clients: opened by a client's ``initialize``, used under their own ids, and ended.

The upstream sessions that nothing leads to any more, because the store has lost the rows of their sessions.

What this process still knows of them it writes down as ended. So the cleanup closes them, as it does with all that have
ended: few at a time, later where their server does not answer, and each once however many replicas knew of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from adapter.errors import SessionUnknown, StoreUnavailable
from adapter.relay.background import AGAIN, BackgroundTasks, RowLooks
from adapter.relay.exchange import LATEST_LEGACY, ClientRequest, ClientResponse, asking_plain
from adapter.relay.replies import media_type, read_body, require_plain
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import NO_LEGACY, InnerClient, opened
from adapter.relay.sessions.principal_sessions import PrincipalSessions
from adapter.relay.sessions.renewal import Renewal, bridged
from adapter.relay.sessions.session_map import TABLE, Session, SessionPlace, Sessions
from adapter.relay.stages import Call, CallOrigin, walk_response
from adapter.rules.access.headers import SharedFields, of_changed_body
from adapter.rules.access.principals import Caller, Scope
from adapter.rules.access.sessions import (
    SessionRecord,
    SessionState,
    UpstreamSession,
    decode,
    encode,
    membership,
)
from adapter.rules.eras.legacy_server import error_code
from adapter.state.port import ABSENT, Conflict, Row, store_only
from adapter.upstream.port import (
    CALL,
    STREAM,
    Headers,
    InitializeRequest,
    Share,
    UpstreamReply,
    UpstreamRequest,
    always,
    header,
)
from adapter.wire.envelope import METHOD_NOT_FOUND, Envelope
from adapter.wire.eras import MODERN

_NO_SUCH_ERA = (METHOD_NOT_FOUND, -32022)
"""Codes of servers that know no ``initialize``, or not its era."""

LISTEN = "subscriptions/listen"
"""The modern era's request for a stream that stays open (MCP 2026-07-28)."""

_NO_SCOPE = Scope("", "")
"""The scope of the request that opens a session: there is nothing yet that could own files or pins."""


@dataclass(eq=False, repr=False)
class UpstreamSessions:
    """Opens sessions for clients, and sends requests under upstream session ids. One request renews its session at most
    ``renewals`` times.
    """

    sessions: Sessions
    principal_sessions: PrincipalSessions
    renewal: Renewal
    renewals: int

    async def send(
        self, ask: ClientRequest, session: Session | None, body: bytes, read_timeout: float | None
    ) -> UpstreamReply:
        """Send ``body`` with the request's headers and the id of its upstream session, which is renewed after a 404.

        Raises what Upstream.send raises, and SessionUnknown when the upstream will not open a session again.
        """
        if session is not None and session.asleep:
            await self.renewal.wake(ask, session)
        bridge = ask.server.bridge
        if ask.sender.era is MODERN and bridge is not None and bridge.asks_processes:
            await bridge.ready(ask.sender.caller, read_timeout)
        # Behind that: what is sent in the way that a look has found, and refused, would be sent twice.
        attempts, known = self.renewals if session is not None else 0, ask.server.eras
        while True:
            generation = session.generation if session else 0
            reply = await ask.server.upstream.send(self._request(ask, session, body), read_timeout)
            # In a session the server spoke the era, unless another process has found that. A 404 says that it is over.
            in_doubt = session is None or (not known and reply.status != 404)
            if reply.status in NO_LEGACY and in_doubt and await bridged(ask, known, reply):
                known = ask.server.eras
                continue
            if reply.status != 404 or session is None or session.upstream_id is None or not ask.renews:
                return reply
            if attempts == 0:
                if reply.whole == b"" and self.renewals:
                    # Lost again while the request was on its way; nothing else would tell the client what its id got.
                    raise SessionUnknown()
                return reply
            result = await self.renewal.after_404(ask, session, generation, reply)
            if result is not None:
                return result
            attempts -= 1

    # --- opening ----------------------------------------------------------------------------------------------

    async def open(
        self, ask: ClientRequest, envelope: Envelope, place: SessionPlace | None
    ) -> ClientResponse:
        """Open the session of a client that sends ``initialize``, in its place where their number is limited. Raises
        StoreUnavailable, and what the upstream raises.
        """
        read_timeout, limit = ask.server.timeouts.request, ask.server.rules.answer_limit
        stages = ask.server.stages.stages_for(envelope)
        body = ask.body
        if stages:
            # What is to be edited must come, and so be asked for, plain.
            ask.headers = asking_plain(
                ask.headers, drop=frozenset({"content-encoding"} if ask.encoded else ())
            )
            body = envelope.body
        share = Share(ask.sender.principal) if ask.server.shares else None
        request = InitializeRequest("POST", ask.headers, body, ask.sender.caller, ask.query, share=share)
        known = ask.server.eras
        reply = await self.renewal.initialize(ask, request)
        shared = ask.server.rules.answer_headers.shared(reply.headers)
        headers: list[tuple[str, str]] = shared
        if reply.status != 200:
            return ClientResponse(reply.status, headers, await read_body(reply, read_timeout, limit))
        upstream_session = header(reply.headers, "mcp-session-id")
        upstream = UpstreamSession(upstream_session, LATEST_LEGACY)
        client = InnerClient.of(ask, upstream._replace(protocol_version=""))
        try:
            if stages and media_type(reply.headers) == "text/event-stream":
                require_plain(reply)
            answer = await client.answer(reply, envelope.id)
            agreed = opened(upstream_session, answer.response)
            if agreed is not None:
                upstream = agreed
                record = SessionRecord.begun(
                    ask.server.id,
                    ask.sender.principal,
                    envelope.body,
                    upstream,
                    SessionState.OPEN,
                    self.sessions.clock(),
                    ask.idle,
                )
                ask.server.issues_ids = upstream_session is not None
                session_id = await self.sessions.create(record, place, ask.opens)
                headers = shared.followed_by(("Mcp-Session-Id", session_id))
                if self.sessions.on_event is not None:
                    self.sessions.on_event(record.server, "created")
                await self.principal_sessions.remember(record)
            else:
                await InnerClient.of(ask, upstream).abandon()
                # Over pipes a refusal of the era has no status.
                unknown = not known and error_code(answer.response or b"") in _NO_SUCH_ERA
                if unknown and await bridged(ask, known, reply):
                    return await self.open(ask, envelope, place)
        except BaseException:
            # The client will never learn of the session, and nothing is written that reminds anybody of it.
            await InnerClient.of(ask, upstream).abandon()
            raise
        response = answer.response
        if stages and response is not None:
            call = Call(CallOrigin(ask.server.id), _NO_SCOPE, envelope, body)
            response = await walk_response(stages, call, response)
        changed = answer.with_response(response)
        if changed is not answer.raw:
            # What is edited leaves without the coding that it may have come in although it was not asked for.
            headers = of_changed_body(headers)
        return ClientResponse(200, headers, changed)

    # --- one request ------------------------------------------------------------------------------------------

    def _request(self, ask: ClientRequest, session: Session | None, body: bytes) -> UpstreamRequest:
        headers: Headers = ask.headers
        if session is not None and (upstream_session := session.upstream_id) is not None:
            headers = _in_session(ask.headers, upstream_session)
        purpose = CALL
        if ask.method == "GET" or (isinstance(ask.envelope, Envelope) and ask.envelope.method == LISTEN):
            purpose = STREAM
        return UpstreamRequest(
            ask.method,
            headers,
            body,
            ask.sender.caller,
            ask.query,
            ask.repeatable,
            purpose,
            ask.envelope,
            ask.listens,
        )

    async def close(self, ask: ClientRequest, session: Session) -> UpstreamReply | None:
        """End the session of a client's DELETE upstream and return the answer; None: there was nothing to close.

        Raises what Upstream.send raises.
        """
        if session.upstream_id is None:
            return None
        fields = ask.headers
        if header(fields, "mcp-protocol-version") is None:
            fields = [*fields, ("MCP-Protocol-Version", session.protocol_version)]
        fields = _in_session(fields, session.upstream_id)
        request = UpstreamRequest("DELETE", fields, b"", ask.sender.caller, ask.query, repeatable=always)
        return await ask.server.upstream.send(request, ask.server.timeouts.request)


async def close_kept(server: Server, record: SessionRecord, within: float) -> bool:
    """End a session upstream without its client, as ``InnerClient.close`` does."""
    like = UpstreamRequest("POST", server.rules.static, b"", Caller(record.principal))
    return await InnerClient(server.upstream, like, record.upstream, within).close(within)


def _in_session(headers: list[tuple[str, str]], upstream_session: str) -> list[tuple[str, str]]:
    """The fields with the id of the upstream session; shared ones are added to once for each head and session."""
    if type(headers) is not SharedFields:
        return [*headers, ("Mcp-Session-Id", upstream_session)]
    known: tuple[str, SharedFields] | None = headers.derived.get(_in_session)
    if known is None or known[0] != upstream_session:
        fields = headers.followed_by(("Mcp-Session-Id", upstream_session))
        known = headers.derived[_in_session] = upstream_session, fields
    return known[1]


LOST = "lost-"
"""How the keys of their rows begin; those of clients' sessions are hexadecimal."""


@dataclass(eq=False)
class LostSessions:
    """Finds those that this process has used lately. ``others`` do the same for what only they know, and raise
    StoreUnavailable.
    """

    sessions: Sessions
    others: Sequence[Callable[[], Awaitable[None]]]
    background: BackgroundTasks

    def __post_init__(self) -> None:
        # By server and id.
        self._looks = RowLooks[tuple[str, str], Session](self._settle, self.background)
        self._asked = self._searching = False

    def __repr__(self) -> str:
        return f"<LostSessions: {'searching' if self._searching else 'done'}, {self._looks!r}>"

    def store_lost(self) -> None:
        """Look for the rows of all that are known here, in the background."""
        cache = self.sessions.cache
        # There may be very many, so the rest is done later; but what they stand for now, another row may change.
        known = {
            (session.server, session.upstream_id): session
            for session in (*cache.missed.values(), *cache.open.values())
            if session.upstream_id is not None
        }
        cache.missed.clear()
        self._asked = True
        # In the memory that stands in for a store that fails, rows are absent that are not lost. Tasks inherit this.
        with store_only():
            self._looks.add(known)
            if not self._searching:
                self._searching = True
                self.background.run(self._search())

    async def _search(self) -> None:
        try:
            while self._asked:
                self._asked = False
                await self._looks.done()
                for other in self.others:
                    await _until_done(other)
        finally:
            self._searching = False

    async def _settle(self, name: tuple[str, str], session: Session) -> None:
        """Write an upstream session down to which no row leads any more."""
        _, upstream_id = name
        row = await self.sessions.store.get(TABLE, session.key)
        if row is None:
            self.sessions.cache.drop(session.key)
        # What is a part of a shared session ends with that one.
        if membership(upstream_id) is not None or (row is not None and _leads_to(row) == upstream_id):
            return
        upstream = UpstreamSession(upstream_id, session.protocol_version)
        ended = SessionRecord.begun(
            session.server, session.principal, b"", upstream, SessionState.ENDED, self.sessions.clock()
        )
        with contextlib.suppress(Conflict):
            key, due = _key(session.server, upstream_id), self.sessions.due(ended)
            await self.sessions.store.put(TABLE, key, encode(ended), expected=ABSENT, due=due)


async def _until_done(work: Callable[[], Awaitable[None]]) -> None:
    """Do it, again and again while the store fails."""
    while True:
        try:
            return await work()
        except StoreUnavailable:
            await asyncio.sleep(AGAIN)


def _leads_to(row: Row) -> str | None:
    try:
        return decode(row.value).upstream.id
    except ValueError:
        return None  # another version wrote it, after the loss


def _key(server: str, upstream_session: str) -> str:
    named = f"{len(server)}:{server}{upstream_session}"
    return LOST + hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
