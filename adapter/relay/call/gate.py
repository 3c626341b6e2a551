"""Calls before anything of them goes upstream: what they stand for, and whether they may go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from adapter.errors import AdapterError
from adapter.relay.exchange import ClientRequest, Renewed, forwardable
from adapter.relay.sessions.own_requests import fetch
from adapter.relay.sessions.session_map import Session
from adapter.relay.sessions.upstream_sessions import UpstreamSessions
from adapter.relay.stages import Call, Unfold
from adapter.rules.access.scopes import Scope
from adapter.wire.envelope import Envelope


@dataclass(slots=True)
class CallGate:
    """``scope_of`` tells whose files and pins a request may touch, by its session and its principal."""

    upstream_sessions: UpstreamSessions
    scope_of: Callable[[Session | None, str], Scope]

    def call(self, ask: ClientRequest, session: Session | None, envelope: Envelope) -> Call:
        """The request as stages and gates see it."""
        return Call(
            server=ask.server.id,
            scope=self.scope_of(session, ask.principal),
            envelope=envelope,
            request=envelope.body,
            era=ask.era,
            base=ask.base,
            session=session.key if session else None,
            headers=ask.headers,
            fetch=partial(fetch, self.upstream_sessions, ask, session),
            caller=ask.caller,
            began=time.time(),
        )

    async def unfolded(
        self, ask: ClientRequest, session: Session | None, envelope: Envelope, unfold: Unfold
    ) -> Envelope:
        """The call that this one stands for, which takes its place in all that follows. Raises AdapterError."""
        call = self.call(ask, session, envelope)
        await unfold(call)
        if call.envelope is not envelope:
            drop = frozenset({"content-encoding"} if ask.encoded else ())
            ask.envelope, ask.body, ask.encoded = call.envelope, call.request, False
            ask.headers = forwardable(call.headers, drop=drop)
        return call.envelope

    async def admit(self, ask: ClientRequest, session: Session | None, envelope: Envelope) -> None:
        """Have the gate judge a call, now and when the upstream began anew before it was sent. Raises AdapterError."""
        if ask.server.plan.gate is None or envelope.method != "tools/call":
            return
        await self._judge(ask, session, envelope)
        ask.renewed = _both(ask.renewed, partial(self._judge, session=session, envelope=envelope))

    async def _judge(self, ask: ClientRequest, session: Session | None, envelope: Envelope) -> None:
        gate = ask.server.plan.gate
        assert gate is not None, "there was one when the call came"
        scope = self.scope_of(session, ask.principal)
        ask.tool_repeatable = partial(gate.repeatable, scope.id)
        if not gate.passes(scope.id, envelope.name):
            await gate.admit(self.call(ask, session, envelope))

    async def is_free(self, ask: ClientRequest, session: Session | None, member: Envelope) -> bool:
        """Tell whether a member of a batch may be piped with the others."""
        plan = ask.server.plan
        if plan.unfold is not None and member.method == "tools/call":
            return False
        try:
            if plan.stages_for(member):
                return False
            await self.admit(ask, session, member)
        except AdapterError:
            return False
        return True


def _both(first: Renewed | None, second: Renewed) -> Renewed:
    """The calls of a batch are judged one by one, also when they have to be judged again."""
    if first is None:
        return second

    async def renewed(ask: ClientRequest) -> None:
        await first(ask)
        await second(ask)

    return renewed
