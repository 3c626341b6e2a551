"""Calls of servers whose callers give grants: asked for before a call goes upstream, and answered with a link."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from adapter.errors import AdapterError, GrantRequired, UrlElicitationRequired
from adapter.relay.exchange import JSON, ClientRequest, ClientResponse
from adapter.relay.files.scopes import Scopes
from adapter.relay.notifications import Inbox, Notifications
from adapter.relay.sessions.session_map import Session, Sessions
from adapter.relay.stages import Call, Gate
from adapter.rules.access.principals import Caller, Scope
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
from adapter.wire.envelope import Envelope, failure, read_envelope
from adapter.wire.eras import MODERN

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
            if shows:
                await self._remember(session, ask, error)
        except AdapterError:
            # The session is over, or the store fails: the link in a text does for everybody.
            return False
        return shows

    async def _remember(self, session: Session, ask: ClientRequest, error: GrantRequired) -> None:
        link = (error.data or {}).get("elicitationId")
        if isinstance(link, str):
            await self.listen(link, self.scopes.of(session, ask.sender.principal), session.key)


async def _one_event(inbox: Inbox) -> AsyncGenerator[bytes, None]:
    """The next notifications, or the end after a while: the client comes back, and may then have the real stream."""
    yield b": waiting for an authorization\n\n"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STREAM):
            yield await inbox.take()


def _said(body: bytes) -> ClientResponse:
    # The request was understood, and it is the person's turn: HTTP sees a success.
    return ClientResponse(200, [JSON], body)
