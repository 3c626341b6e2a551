"""Sessions that an upstream opens when whoever asked waits no more: nobody learns of them, so they are closed.

An upstream that is slow to answer ``initialize`` goes on with it when the connection is dropped, and its session stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError
from adapter.relay.background import BackgroundTasks
from adapter.relay.exchange import LATEST_LEGACY, POST_FIELDS, ClientRequest, forwardable
from adapter.relay.replies import discard
from adapter.relay.server import Server
from adapter.relay.sessions.own_session import ABANDON_SILENCE
from adapter.rules.access.sessions import UpstreamSession
from adapter.upstream.port import UpstreamReply, UpstreamRequest, always, header, silent

LATEST = 120.0
"""Seconds that an answer to ``initialize`` is waited for beyond those of whoever asked."""

MOST = 16
"""Answers of one server that are waited for so. Connections of further ones are dropped."""

CLOSE_SILENCE = 10.0
"""Seconds that an upstream may be silent about a session that is closed."""


class LateSessions:
    """Sends ``initialize`` for others. ``background`` is where answers are waited for that came to be nobody's."""

    def __init__(
        self, background: BackgroundTasks, log: FilteringBoundLogger, latest: float = LATEST
    ) -> None:
        self._background = background
        self._log = log
        self._latest = latest
        self._waiting: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<LateSessions: {sum(self._waiting.values())} answers waited for>"

    async def initialize(
        self, server: Server, request: UpstreamRequest, read_timeout: float
    ) -> UpstreamReply:
        """The answer to an ``initialize``, by its head. Where that takes more than ``read_timeout`` seconds, or the
        caller was cancelled, the session that it brings is closed.

        Raises UpstreamSilent, and what Upstream.send raises.
        """
        loop = asyncio.get_running_loop()
        sending = loop.create_task(server.upstream.send(request, read_timeout + self._latest))
        # What asyncio.wait does, in a third of its steps: every session is opened by way of this.
        over: asyncio.Future[None] = loop.create_future()
        sending.add_done_callback(partial(_settle, over))
        alarm = loop.call_later(read_timeout, _settle, over)
        try:
            await over
        except asyncio.CancelledError:
            self._leave(server, request, sending)
            raise
        finally:
            alarm.cancel()
        if sending.done():
            return sending.result()
        self._leave(server, request, sending)
        raise silent(read_timeout)

    def _leave(
        self, server: Server, request: UpstreamRequest, sending: asyncio.Future[UpstreamReply]
    ) -> None:
        """Wait for the answer apart, unless too many are waited for already."""
        if self._waiting.get(server.id, 0) >= MOST and not sending.done():
            sending.cancel()
            return
        self._waiting[server.id] = self._waiting.get(server.id, 0) + 1
        self._background.run(self._close(server, request, sending))

    async def _close(
        self, server: Server, request: UpstreamRequest, sending: asyncio.Future[UpstreamReply]
    ) -> None:
        try:
            async with asyncio.timeout(self._latest):
                reply = await sending
            reply.abort()
            session = header(reply.headers, "mcp-session-id")
            if session is not None:
                await close_session(server, request, session, LATEST_LEGACY, CLOSE_SILENCE)
                self._log.info("a session that came too late was closed", server=server.id)
        except (AdapterError, TimeoutError):
            # It never came, or cannot be closed: the upstream is in no state to be asked again.
            return
        finally:
            self._waiting[server.id] -= 1


def _settle(over: asyncio.Future[None], _: object = None) -> None:
    if not over.done():
        over.set_result(None)


async def close_session(
    server: Server, opened: UpstreamRequest, session: str, version: str, read_timeout: float
) -> None:
    """End a session upstream, as the request that ``opened`` it was sent. Raises what Upstream.send raises."""
    fields = forwardable(opened.headers, drop=POST_FIELDS)
    fields += [("MCP-Protocol-Version", version), ("Mcp-Session-Id", session)]
    request = UpstreamRequest("DELETE", fields, query=opened.query, repeatable=always)
    reply = await server.upstream.send(request, read_timeout)
    await discard(reply, read_timeout)


async def abandon(ask: ClientRequest, upstream: UpstreamSession) -> None:
    """Close an upstream session that no client's session maps to, if the upstream answers soon."""
    if upstream.id is not None:
        opened = UpstreamRequest("POST", ask.headers, query=ask.query)
        with contextlib.suppress(AdapterError):
            await close_session(ask.server, opened, upstream.id, upstream.protocol_version, ABANDON_SILENCE)
