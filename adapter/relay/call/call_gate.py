"""Calls before anything of them goes upstream: what they stand for, whether they may go, which are given up, and
whether their caller has given the grant that the server needs: without it the answer is a link.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from adapter.errors import AdapterError, GrantRequired, UrlElicitationRequired
from adapter.relay.background import nothing
from adapter.relay.exchange import JSON, POST_FIELDS, ClientRequest, ClientResponse, forwardable
from adapter.relay.files.scopes import Scopes
from adapter.relay.notifications import Inbox, Notifications
from adapter.relay.sessions.inner_client import ACCEPT, InnerClient
from adapter.relay.sessions.session_map import Session, Sessions
from adapter.relay.sessions.upstream_sessions import UpstreamSessions
from adapter.relay.stages import Call, CallOrigin, Gate, Gates
from adapter.rules.access.principals import Caller, Scope
from adapter.rules.access.sessions import UpstreamSession
from adapter.rules.calls.rounds import (
    ASKING,
    CAPABILITIES,
    elicitations,
    input_required,
    member_of,
    own_input,
    takes_urls,
    tool_error,
)
from adapter.wire.envelope import Envelope, dump, envelope_of, failure, parse, read_envelope
from adapter.wire.eras import MODERN, Era, encode_mirror
from adapter.wire.shared_ids import named
from adapter.wire.spans import find

_ABOUT_THE_CALL = ("progressToken", "io.modelcontextprotocol/related-task")


async def fetch(
    upstream_sessions: UpstreamSessions,
    ask: ClientRequest,
    session: Session | None,
    method: str,
    params: dict[str, Any],
) -> bytes | None:
    """Ask the upstream as the client of ``ask`` would; the JSON-RPC response, None if none can be had.

    Raises what the upstream raises.
    """
    # The client chooses its ids itself, and most count, so a long random text meets none of them.
    request_id = f"adapter-{secrets.token_hex(8)}"
    if ask.sender.era is Era.MODERN:
        params = {**params, "_meta": _meta_of(ask)}
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    body = dump(message)
    own = ask.with_message(envelope_of(message, body), body, _headers(ask, method, params))
    own.listens = False
    reply = await upstream_sessions.send(own, session, body, ask.server.timeouts.request)
    if reply.status != 200:
        reply.abort()
        return None
    upstream = UpstreamSession(session.upstream_id if session else None, ask.sender.version or "")
    return (await InnerClient.of(own, upstream).answer(reply, request_id, keeps_raw=False)).response


def _meta_of(ask: ClientRequest) -> dict[str, Any]:
    """The data on its client that a modern request carries in every message (MCP 2026-07-28, "_meta")."""
    assert isinstance(ask.envelope, Envelope)
    span = find(ask.envelope.body, ("params", "_meta"))
    meta = parse(ask.envelope.body[slice(*span)]) if span else {}
    return {key: value for key, value in meta.items() if key not in _ABOUT_THE_CALL}


def _headers(ask: ClientRequest, method: str, params: dict[str, Any]) -> list[tuple[str, str]]:
    fields = forwardable(
        ask.headers, drop=POST_FIELDS - {"mcp-protocol-version"} | {"mcp-method", "mcp-name"}
    )
    fields = [field for field in fields if not field[0].lower().startswith("mcp-param-")]
    fields += [("Accept", ACCEPT), ("Accept-Encoding", "identity"), ("Content-Type", "application/json")]
    if ask.sender.era is Era.MODERN:
        fields.append(("Mcp-Method", method))
        name = params.get("uri", params.get("name"))
        if name is not None:
            fields.append(("Mcp-Name", encode_mirror(name)))
    return fields


@dataclass(slots=True)
class CallGate:
    """``scope_of`` tells whose files and pins a request may touch, by its session and its party."""

    upstream_sessions: UpstreamSessions
    scope_of: Callable[[Session | None, str], Scope]

    def call(self, ask: ClientRequest, session: Session | None, envelope: Envelope) -> Call:
        """The request as stages and gates see it."""
        sender = ask.sender
        return Call(
            CallOrigin(
                ask.server.id,
                sender.era,
                session.key if session else None,
                sender.caller,
                sender.base,
                session is not None and not session.guarded.everything,
            ),
            self.scope_of(session, sender.party or sender.principal),
            envelope,
            envelope.body,
            ask.headers,
            partial(fetch, self.upstream_sessions, ask, session),
        )

    async def admitted(
        self, ask: ClientRequest, session: Session | None, envelope: Envelope, gates: Gates
    ) -> Envelope:
        """Have gates judge a call; the guard again where the upstream begins anew before it was sent.

        Returns the envelope of the call that goes on, which a gate may have put in the place of this one. Raises
        AdapterError.
        """
        scope = self.scope_of(session, ask.sender.party or ask.sender.principal)
        guard = ask.server.stages.guard
        for gate in gates:
            if gate is guard:
                ask.scope = scope
            if not gate.skips(scope.id, envelope.name):
                envelope = await self._passed(gate, ask, session, envelope)
            if gate is guard:
                ask.judged = (*ask.judged, envelope)
                ask.renewed = self._judge_again
        return envelope

    async def _passed(
        self, gate: Gate, ask: ClientRequest, session: Session | None, envelope: Envelope
    ) -> Envelope:
        call = self.call(ask, session, envelope)
        await gate.admit(call)
        if call.envelope is not envelope:
            drop = frozenset({"content-encoding"} if ask.encoded else ())
            ask.envelope, ask.body, ask.encoded = call.envelope, call.request, False
            ask.headers = forwardable(call.headers, drop=drop)
        return call.envelope

    async def _judge_again(self, ask: ClientRequest, session: Session) -> None:
        guard = ask.server.stages.guard
        assert guard is not None, "there was one when the call came"
        scope = ask.scope = self.scope_of(session, ask.sender.party or ask.sender.principal)
        for envelope in ask.judged:
            if not guard.skips(scope.id, envelope.name):
                await guard.admit(self.call(ask, session, envelope))

    async def is_free(self, ask: ClientRequest, session: Session | None, member: Envelope) -> bool:
        """Tell whether a member of a batch may be piped with the others."""
        table = ask.server.stages
        try:
            if table.stages_for(member):
                return False
            await self.admitted(ask, session, member, table.gates.get(member.method, ()))
        except AdapterError:
            return False
        return True


@dataclass(eq=False, repr=False)
class Cancellations(Gate):
    """The gate that hears which calls of one server are given up in their sessions."""

    _calls: dict[tuple[str | None, Any], Callable[[], None]] = field(default_factory=dict, init=False)

    def hear(self, call: Call, give_up: Callable[[], None]) -> Callable[[], None]:
        """Have ``give_up`` called, maybe more than once, when a call's client gives it up, until the returned function
        is called.
        """
        key = (call.origin.session, call.envelope.id)
        if None in key:
            return nothing
        self._calls[key] = give_up

        def forget() -> None:
            # A client that used an id twice has only itself to blame, but must not unhook its other call.
            if self._calls.get(key) is give_up:
                del self._calls[key]

        return forget

    async def admit(self, call: Call) -> None:
        """End the call that a client gives up by this notification. The upstream hears of it too, as it may have the
        request already.
        """
        number = named(parse(call.envelope.body), "requestId")
        # True is 1 to a dict, but not to JSON.
        if isinstance(number, str | int | float) and not isinstance(number, bool):
            self._calls.get((call.origin.session, number), nothing)()


WAIT = 25.0
"""Seconds that a call waits for a person who has said that they open the link."""

STREAM = 600.0
"""Seconds for which a stream stays open that waits for a grant."""

LOOK = 1.0
"""Seconds between two looks for the grant, which may be given on another replica."""


class GrantDemand(Protocol):
    """The grants of one server's callers."""

    async def demand(self, caller: Caller) -> None:
        """Raise GrantRequired for a caller who has given no grant."""

    async def granted(self, principal: str) -> bool:
        """Tell whether a principal has given a grant by now."""


@dataclass(eq=False, repr=False)
class GrantGate(Gate):
    """The gate before what a server does in a person's name. ``now`` gives seconds that never go back."""

    grants: GrantDemand
    wait: float = WAIT
    now: Callable[[], float] = time.monotonic

    async def admit(self, call: Call) -> None:
        """Raise GrantRequired for a caller without a grant; take the person's own answer out of the message."""
        caller = call.origin.caller
        action, body = own_input(call.envelope) if call.modern else (None, b"")
        if action is not None:
            envelope = read_envelope(body)
            assert isinstance(envelope, Envelope)
            call.envelope, call.request = envelope, body
        if action == "accept":
            await self._awaited(caller.principal)
        try:
            await self.grants.demand(caller)
        except GrantRequired as error:
            if action in ("decline", "cancel"):
                raise GrantDeclined(str(error), data=error.data) from error
            raise

    async def _awaited(self, principal: str) -> None:
        """Wait until the grant is there, but not for ever: the client may ask once more."""
        until = self.now() + self.wait
        while not await self.grants.granted(principal) and self.now() < until:  # noqa: ASYNC110 (no event: it may be given on another replica)
            await asyncio.sleep(min(LOOK, self.wait))


class GrantDeclined(GrantRequired):
    """The person did not want to open the link, so it is not asked for again in this call."""


Listen = Callable[[str, Scope, str], Awaitable[None]]
"""Is given the id of a link, and the scope and the key of a session that wants to hear when the grant is there."""


@dataclass(eq=False, repr=False)
class GrantAnswers:
    """Answers requests that need a grant first, as each client can take it."""

    sessions: Sessions
    scopes: Scopes
    notifications: Notifications
    listen: Listen

    async def answer(self, ask: ClientRequest, error: GrantRequired) -> ClientResponse:
        """The answer to ``ask``. Raises the failure for what is no single request."""
        envelope, modern = ask.envelope, ask.sender.era is MODERN
        if ask.method == "GET" and not modern:
            return await self._waiting(ask, error)
        if not isinstance(envelope, Envelope) or envelope.id is None:
            raise error
        asking = envelope.method in ASKING
        shows = not isinstance(error, GrantDeclined) and await self._shows_links(ask, envelope, error)
        if shows and modern and asking:
            return _said(input_required(envelope.id_bytes, error))
        if shows and not modern:
            required = UrlElicitationRequired(str(error), data=elicitations(error))
            return _said(failure(required, envelope.id_bytes))
        if envelope.method == "tools/call":
            return _said(tool_error(envelope.id_bytes, error, modern=modern))
        return _said(failure(error, envelope.id_bytes))

    async def _waiting(self, ask: ClientRequest, error: GrantRequired) -> ClientResponse:
        """The stream of a session whose upstream gives it none yet: the client hears when the grant is there."""
        if ask.sender.session_id is None:
            raise error
        session = await self.sessions.find(ask.sender.session_id, ask.server.id, ask.sender.principal)
        scope = self.scopes.of(session, ask.sender.principal)
        inbox = self.notifications.open(scope, session.key)
        release = partial(self.notifications.close, scope, session.key, inbox)
        fields = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")]
        return ClientResponse(200, fields, _one_event(inbox), release=release)

    async def _shows_links(self, ask: ClientRequest, envelope: Envelope, error: GrantRequired) -> bool:
        if ask.sender.era is MODERN:
            return takes_urls(member_of(envelope.body, CAPABILITIES))
        if envelope.method == "initialize":
            return takes_urls(member_of(envelope.body, ("params", "capabilities")))
        if ask.sender.session_id is None:
            return False
        try:
            session = await self.sessions.find(ask.sender.session_id, ask.server.id, ask.sender.principal)
            _, record = await self.sessions.record(session)
            shows = takes_urls(member_of(record.handshake.initialize, ("params", "capabilities")))
            link = (error.data or {}).get("elicitationId")
            if shows and isinstance(link, str):
                await self.listen(link, self.scopes.of(session, ask.sender.principal), session.key)
        except AdapterError:
            # The session is over, or the store fails: the link in a text does for everybody.
            return False
        return shows


async def _one_event(inbox: Inbox) -> AsyncGenerator[bytes, None]:
    """The next notifications, or the end after a while: the client comes back, and may then have the real stream."""
    yield b": waiting for an authorization\n\n"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STREAM):
            yield await inbox.take()


def _said(body: bytes) -> ClientResponse:
    # The request was understood, and it is the person's turn: HTTP sees a success.
    return ClientResponse(200, [JSON], body)
