"""Legacy clients of a modern server: their sessions live in this process, their requests go upstream in the modern era.

Each request is one of HTTP with the credentials of its client. What the client is asked stands on the stream of its
call, and its answers are the call's next round (see modern_call.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, BadJson, InternalError, UpstreamBroken
from adapter.relay.call.get_streams import ACKNOWLEDGED
from adapter.relay.eras.bridged_session import MOST_URIS, BridgedSession, BridgedSessions
from adapter.relay.eras.modern_call import ModernCall
from adapter.relay.eras.modern_server import ModernServer, PassedOn
from adapter.relay.replies import EVENT_STREAM, events_of, media_type
from adapter.relay.server import Server
from adapter.relay.sessions.upstream_sessions import LISTEN
from adapter.rules.eras.legacy_server import LEVELS
from adapter.rules.eras.modern_server import (
    ClientTooLarge,
    agreed_version,
    client_meta,
    initialize_response,
    legacy_notification,
    own_request,
    subscription,
)
from adapter.settings.storage import SessionsSettings
from adapter.upstream.local.correlation import BOUNDS, MOST_ABANDONED, RequestUnderWay
from adapter.upstream.local.port import LocalHead, LocalRequest
from adapter.upstream.local.replies import LocalAnswer, PendingReply, RpcRefused, result
from adapter.upstream.local.sessions import LocalSession
from adapter.upstream.port import Upstream
from adapter.wire.envelope import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Envelope,
    Kind,
    dump,
    parse,
    read_response,
    value_at,
)
from adapter.wire.sse import SseReader

MOST_SESSIONS = 100_000
"""Sessions of one server."""

SUBSCRIBING = 5.0
"""Seconds for which the answer to ``resources/subscribe`` waits until the server has taken note of it."""

DISCOVER = "server/discover"
TOOLS_CHANGED = "notifications/tools/list_changed"

Work = Callable[[RequestUnderWay], Awaitable[None]]


class LegacyClients:
    """A LocalServer whose requests are answered by ``upstream``, which speaks the modern era."""

    reads_params = False

    def __init__(
        self, server: Server, upstream: Upstream, limits: SessionsSettings, log: FilteringBoundLogger
    ) -> None:
        self.sessions = BridgedSessions(MOST_SESSIONS, None, BOUNDS)
        self._modern = ModernServer(server, upstream)
        self._limits = limits
        self._log = log
        self._running: dict[RequestUnderWay, asyncio.Task[None]] = {}
        self._abandoned: dict[RequestUnderWay, None] = {}

    def __repr__(self) -> str:
        return f"<LegacyClients of {self._modern.id!r}: {len(self.sessions)} sessions>"

    async def close(self) -> None:
        """End all calls that are under way."""
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- requests ---------------------------------------------------------------------------------------------

    def answer(self, request: LocalRequest) -> LocalAnswer | PendingReply:
        """See LocalServer."""
        session, method = request.session, request.envelope.method
        if session is None:
            try:
                meta = client_meta(request.params)
            except ClientTooLarge as error:
                raise RpcRefused(INVALID_PARAMS, str(error)) from None
            return self._begin(request, None, partial(self._open, request, meta))
        assert isinstance(session, BridgedSession), "its sessions are made so"
        session.head = request.head
        if method == "ping":
            return LocalAnswer(result(request.id_bytes, {}))
        if method == "logging/setLevel":
            session.set_level(_text(request, "level", LEVELS))
            return LocalAnswer(result(request.id_bytes, {}))
        if method in ("resources/subscribe", "resources/unsubscribe"):
            return self._begin(request, session, self._subscribe(request, session))
        if method.startswith("tasks/") or method in (DISCOVER, LISTEN):
            raise RpcRefused(METHOD_NOT_FOUND, f"{method} does not exist in this session.")
        way = RequestUnderWay(request, session, self._given_up)
        return self._run(way, ModernCall(self._modern, self._limits, request, session, way).run())

    def _begin(self, request: LocalRequest, session: BridgedSession | None, work: Work) -> PendingReply:
        way = RequestUnderWay(request, session, self._given_up)
        return self._run(way, work(way))

    def _run(self, way: RequestUnderWay, work: Awaitable[None]) -> PendingReply:
        self._running[way] = asyncio.get_running_loop().create_task(self._guarded(way, work))
        return way

    async def _guarded(self, way: RequestUnderWay, work: Awaitable[None]) -> None:
        try:
            await work
        except PassedOn as passed:
            if way.stream is None:
                way.answer(passed.answer)
            else:
                way.break_off(UpstreamBroken(str(passed)))
        except AdapterError as error:
            way.break_off(error)
        except asyncio.CancelledError:
            way.end()
        except Exception:
            self._log.exception("a translated request failed unexpectedly", method=way.method)
            way.break_off(InternalError())
        finally:
            del self._running[way]
            self._abandoned.pop(way, None)

    def _given_up(self, way: RequestUnderWay) -> None:
        """A client has gone or waits no longer. In the legacy era only the latter cancels a call (MCP 2025-11-25)."""
        task = self._running.get(way)
        if task is None:
            return
        if way.session is None or way.withdrawn or way.overdue:
            # With it the server's stream ends, which cancels the call there.
            task.cancel()
            return
        self._abandoned[way] = None
        if len(self._abandoned) > MOST_ABANDONED:
            oldest = next(iter(self._abandoned))
            del self._abandoned[oldest]
            self._running[oldest].cancel()

    async def observe(self, envelope: Envelope, session: LocalSession, head: LocalHead) -> None:
        """See LocalServer. Notifications of legacy clients are nothing to a modern server."""
        if envelope.kind is Kind.RESPONSE and isinstance(session, BridgedSession):
            session.head = head
            session.answered(envelope.id, envelope.body)

    # --- sessions ---------------------------------------------------------------------------------------------

    async def _open(self, request: LocalRequest, meta: dict[str, object], way: RequestUnderWay) -> None:
        number, members = request.envelope.id, dump(meta)[1:-1]
        assert number is not None, "a request has an id"
        body = own_request(request.id_bytes, DISCOVER, members)
        response = await self._modern.ask(request.head, DISCOVER, body, number)
        read = read_response(response)
        if read is None or "error" in read.message:
            # With the status 200: clients lose the body of any other.
            way.answer(LocalAnswer(response))
            return
        version = agreed_version(request.params)
        try:
            body = initialize_response(response, request.id_bytes, version)
        except BadJson as error:
            raise UpstreamBroken(str(error)) from None
        session = self.sessions.open(version)
        assert isinstance(session, BridgedSession), "its sessions are made so"
        session.begin(meta, request.head, self._hear)
        way.answer(LocalAnswer(body, session_id=session.id))

    def _subscribe(self, request: LocalRequest, session: BridgedSession) -> Work:
        """Change the resources that a session hears of. Raises RpcRefused."""
        uri = _text(request, "uri")
        if request.envelope.method == "resources/unsubscribe":
            session.uris.pop(uri, None)
        elif len(session.uris) < MOST_URIS or uri in session.uris:
            session.uris[uri] = None
        else:
            raise RpcRefused(INVALID_PARAMS, f"A session may be subscribed to at most {MOST_URIS} resources.")
        session.resubscribe()

        async def answer(way: RequestUnderWay) -> None:
            await session.subscribed(SUBSCRIBING)
            way.answer(LocalAnswer(result(request.id_bytes, {})))

        return answer

    async def _hear(self, session: BridgedSession) -> bool:
        """Pass on what the server says to a session, until it ends that. False where it has no subscriptions."""
        number, limit = "mcp-file-adapter-listen", 1 << 20
        body = own_request(dump(number), LISTEN, session.members, subscription(session.uris))
        try:
            reply = await self._modern.listen(session.head, body)
            if reply.status != 200 or media_type(reply.headers) != EVENT_STREAM:
                reply.abort()
                return reply.status >= 500
            async with aclosing(events_of(reply, SseReader(limit), None)) as events:
                async for event in events:
                    if event.data:
                        self._heard(session, event.data)
        except AdapterError as error:
            self._log.info("a subscription ended", why=str(error))
        return True

    def _heard(self, session: BridgedSession, data: bytes) -> None:
        try:
            message = parse(data)
        except BadJson:
            return
        method = message.get("method") if isinstance(message, dict) else None
        if method == ACKNOWLEDGED:
            session.acknowledged()
        elif isinstance(method, str) and message.get("id") is None:
            if method == TOOLS_CHANGED:
                self._modern.tools_changed()
            session.send(legacy_notification(data))


def _text(request: LocalRequest, member: str, known: Collection[str] | None = None) -> str:
    """A text of a request's params. Raises RpcRefused where there is none, or not one that is ``known``."""
    value = value_at(parse(request.envelope.body), "params", member)
    if not isinstance(value, str) or (known is not None and value not in known):
        raise RpcRefused(INVALID_PARAMS, f"params.{member} is missing or unknown.")
    return value
