"""Upstream sessions of clients: opened by a client's ``initialize``, used under their own ids, and ended."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.errors import SessionUnknown
from adapter.relay.exchange import LATEST_LEGACY, ClientRequest, ClientResponse, asking_plain
from adapter.relay.replies import media_type, read_body, require_plain
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import NO_LEGACY, InnerClient, opened
from adapter.relay.sessions.principal_sessions import PrincipalSessions
from adapter.relay.sessions.renewal import Renewal, bridged
from adapter.relay.sessions.session_map import Session, SessionPlace, Sessions
from adapter.relay.stages import Call, CallOrigin, walk_response
from adapter.rules.access.headers import SharedFields, of_changed_body
from adapter.rules.access.principals import Caller, Scope
from adapter.rules.access.sessions import (
    SessionRecord,
    SessionState,
    UpstreamSession,
)
from adapter.rules.eras.legacy_server import error_code
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
