"""Clients of MCP 2026-07-28 at a server that speaks only an earlier revision.

Subscriptions of modern clients, fed from the stream that a legacy server has of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from adapter.errors import AdapterError, BadRequest
from adapter.relay.eras.bridged_call import BridgedCall
from adapter.relay.eras.legacy_session import Exchange, LegacySession
from adapter.relay.eras.legacy_sessions import OpeningRefused, ServerBridge
from adapter.relay.eras.parked_calls import bound_to, lost
from adapter.relay.sessions.upstream_sessions import LISTEN
from adapter.rules.calls.rounds import ASKING, STATE, state_of
from adapter.rules.eras.legacy_server import (
    NOT_MODERN,
    UPDATED,
    agreed,
    discovered,
    of_subscription,
    subscription_message,
    wanted_methods,
)
from adapter.rules.eras.questions import owner_of
from adapter.upstream.local.events import BOUNDS
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import (
    LocalAnswer,
    PendingReply,
    RpcRefused,
    refusal,
    require_version,
    result,
)
from adapter.upstream.local.sessions import LocalSession, LocalSessions
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.port import UpstreamReply, UpstreamRequest
from adapter.wire.envelope import INVALID_PARAMS, METHOD_NOT_FOUND, Envelope, parse
from adapter.wire.eras import MODERN_VERSIONS, Era
from adapter.wire.names import VERSION_KEY
from adapter.wire.shared_ids import named


class ListenStream(Exchange):
    """One ``subscriptions/listen``. It ends when the server is heard no more; the client subscribes again then."""

    def __init__(self, request: LocalRequest, bridge: ServerBridge) -> None:
        self.reply = PendingReply(self._left)
        self._bridge = bridge
        self._request = request
        self._session: LegacySession | None = None
        self._methods = frozenset[str]()
        self._uris: list[str] = []
        self._acknowledged = False
        self._task = asyncio.get_running_loop().create_task(self._begin())

    async def _begin(self) -> None:
        request = self._request
        try:
            session = self._session = await self._bridge.legacy.enter(self, request.head.request)
            await session.listen()
            asked = request.params.get("notifications")
            found = agreed(asked if isinstance(asked, dict) else {}, session.capabilities)
            if not session.hears:
                found = {}
            self._methods = wanted_methods(found)
            for uri in found.get("resourceSubscriptions", ()):
                self._uris.append(uri)
                await session.subscribe(uri)
        except OpeningRefused as refused:
            self._end(refused.under(request.id_bytes))
        except AdapterError as error:
            self.reply.fail(error, request.id_bytes)
            self._left()
        except ValueError as error:
            self._end(refusal(request.id_bytes, INVALID_PARAMS, str(error), None, Era.MODERN))
        else:
            self._acknowledged = True
            self.reply.offer(subscription_message(request.id_bytes, found), BOUNDS)

    async def tell(self, message: Mapping[str, Any], data: bytes) -> None:
        """Tell the client what it has subscribed to. Where it reads too slowly the subscription ends."""
        method = message.get("method")
        if not self._acknowledged or method not in self._methods:
            return
        if method == UPDATED and not self._is_about(named(message, "uri")):
            return
        with suppress(ValueError):
            if not self.reply.offer(of_subscription(data, self._request.id_bytes), BOUNDS):
                self.lost()

    def _is_about(self, uri: object) -> bool:
        """Tell whether that is a resource of the subscription, or one below it."""
        return isinstance(uri, str) and any(
            uri == each or uri.startswith(each if each.endswith("/") else f"{each}/") for each in self._uris
        )

    def lost(self) -> None:
        """End: the server is not heard any more."""
        if self._acknowledged:
            self._end(LocalAnswer(subscription_message(self._request.id_bytes, None)))

    stop = lost

    def _end(self, answer: LocalAnswer) -> None:
        self.reply.answer(answer)
        self._left()

    def _left(self) -> None:
        if self._task is not asyncio.current_task():
            self._task.cancel()
        self.reply.end()
        if (session := self._session) is not None:
            self._session = None
            self._bridge.legacy.leave(self, session, partial(session.unsubscribe, self._uris))


Forward = Callable[[str, UpstreamRequest, float | None], Awaitable[UpstreamReply]]
"""Sends a request to the replica of that name. The answer is 404 where that one has gone."""


@dataclass(eq=False)
class LegacyServer:
    """A LocalServer, of modern requests only, which are answered over a ``bridge``."""

    bridge: ServerBridge
    sessions: LocalSessions = field(default_factory=LocalSessions, init=False)
    reads_params: bool = field(default=True, init=False)

    def __repr__(self) -> str:
        return f"<LegacyServer {self.bridge.id!r}: {len(self.bridge.legacy)} sessions>"

    def answer(self, request: LocalRequest) -> PendingReply:
        """See LocalServer."""
        method = request.envelope.method
        if request.envelope.meta.version not in MODERN_VERSIONS:
            require_version(request.meta.get(VERSION_KEY))
        if method in NOT_MODERN:
            raise RpcRefused(METHOD_NOT_FOUND, f"Method not found: {method}")
        bridge = self.bridge
        if method == "tools/call":
            bridge.check(request)
        if method in ASKING and (state := state_of(request.params)) is not None:
            return self._resumed(request, state)
        if method == "server/discover":
            return self._discovery(request)
        if method == LISTEN:
            return ListenStream(request, bridge).reply
        return BridgedCall(request, bridge).reply

    def _discovery(self, request: LocalRequest) -> PendingReply:
        """The reply that says what a session's ``initialize`` was answered with."""

        async def discover() -> None:
            try:
                session = await self.bridge.legacy.find(request.head.request)
                reply.answer(LocalAnswer(result(request.id_bytes, discovered(session.result))))
            except OpeningRefused as refused:
                reply.answer(refused.under(request.id_bytes))
            except AdapterError as error:
                reply.fail(error, request.id_bytes)
            finally:
                reply.end()

        def leave() -> None:
            task.cancel()

        reply = PendingReply(leave)
        task = self.bridge.deadlines.loop.create_task(discover())
        return reply

    def _resumed(self, request: LocalRequest, text: str) -> PendingReply:
        state = self.bridge.parked.read(text, bound_to(self.bridge.id, request))
        given = request.params.get("inputResponses", {})
        if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
            raise RpcRefused(INVALID_PARAMS, "inputResponses must be an object of results.")
        call = self.bridge.parked.take(state)
        assert isinstance(call, BridgedCall), "no other calls are parked"
        return call.resume(request, given)

    async def observe(self, envelope: Envelope, session: LocalSession, head: LocalHead) -> None:
        """See LocalServer. Legacy clients are none of its own."""

    async def close(self) -> None:
        """See LocalServer."""
        await self.bridge.legacy.close()
        self.bridge.deadlines.close()


class ModernClients(LocalUpstream[LegacyServer]):
    """An Upstream for requests of modern clients, which the legacy server behind it answers.

    ``forward`` sends a request to the replica that has the call which it goes on with; None where there are no others.
    """

    def __init__(self, server: LegacyServer) -> None:
        super().__init__(server)
        self.forward: Forward | None = None

    def send(
        self, request: UpstreamRequest, read_timeout: float | None
    ) -> Coroutine[Any, Any, UpstreamReply]:
        """See Upstream. Raises RequestStateRefused and CallLost."""
        parked = self.server.bridge.parked
        if not parked.is_open:
            return self._send_first(request, read_timeout)
        if (forward := self.forward) is not None:
            owner = _owner_in(request)
            if owner is not None and owner != parked.owner:
                return _forwarded(forward, owner, request, read_timeout)
            if isinstance(request.envelope, Envelope) and request.envelope.method == LISTEN:
                return self._subscribed(forward, request, read_timeout)
        return super().send(request, read_timeout)

    async def _send_first(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        await self.server.bridge.parked.open()
        return await self.send(request, read_timeout)

    async def _subscribed(
        self, forward: Forward, request: UpstreamRequest, read_timeout: float | None
    ) -> UpstreamReply:
        """Subscribe where the server is heard: many have one stream of their own in a session, for one process."""
        bridge = self.server.bridge
        with suppress(OpeningRefused, AdapterError):  # which the subscription itself is told
            session = await bridge.legacy.find(request)
            await session.listen()
            owner = "" if session.hears else await bridge.hearers.of(session.client.session.id)
            if owner not in ("", bridge.parked.owner):
                with suppress(AdapterError):  # it has gone
                    reply = await forward(owner, request, read_timeout)
                    if reply.status != 404:
                        return reply
                    reply.abort()
                await session.listen(anew=True)
        return await super().send(request, read_timeout)


def _owner_in(request: UpstreamRequest) -> str | None:
    """The replica that has the call with which a request goes on; None for any other request."""
    known = request.envelope
    body = known.body if isinstance(known, Envelope) else request.body
    return owner_of(state_of(parse(body).get("params"))) if STATE in body else None


async def _forwarded(
    forward: Forward, owner: str, request: UpstreamRequest, read_timeout: float | None
) -> UpstreamReply:
    with suppress(BadRequest):  # it has begun anew under the same name
        reply = await forward(owner, request, read_timeout)
        if reply.status != 404:
            return reply
        reply.abort()
    raise lost("the process that had it has ended", owner)
