"""GET streams: what an upstream says outside of calls, and answers that come later than their call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from adapter.errors import AdapterError, MessageTooLong, SessionUnknown, UpstreamBroken
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.call.passthrough import piped_answer
from adapter.relay.exchange import ClientRequest, ClientResponse, asking_plain, both
from adapter.relay.flow import RETRY, GetStream
from adapter.relay.notifications import Inbox, Notifications
from adapter.relay.replies import media_type, require_plain
from adapter.relay.sessions.session import without_lists
from adapter.relay.sessions.session_map import Session
from adapter.relay.sessions.upstream_sessions import UpstreamSessions
from adapter.relay.stages import Plan
from adapter.relay.turns import breathe, slices
from adapter.upstream.port import UpstreamReply
from adapter.wire.sse import SseReader, replace_data


async def listening(
    reply: UpstreamReply,
    rewrite: Callable[[bytes], Awaitable[bytes]],
    limit: int,
    observe: Callable[[bytes], None] | None = None,
) -> AsyncGenerator[bytes, None]:
    """A GET stream that leaves event by event, each event's data passing through ``rewrite``.

    It may be silent for ever and just ends when the upstream's does, as clients expect. ``observe`` sees what comes.
    """
    reader = SseReader(limit)
    try:
        while chunk := await reply.read(None):
            if observe is not None:
                observe(chunk)
            for part in slices(chunk):
                events = reader.feed(part)
                leaving: list[bytes] = []
                for event in events:
                    data = await rewrite(event.data) if event.data else event.data
                    leaving.append(
                        event.raw if data is event.data or data is None else replace_data(event, data)
                    )
                if leaving:
                    yield b"".join(leaving)
                await breathe(len(events))
    except (UpstreamBroken, MessageTooLong):
        return
    finally:
        reply.abort()


async def noticing(stream: AsyncGenerator[bytes, None], inbox: Inbox) -> AsyncGenerator[bytes, None]:
    """A stream of whole events, with what comes into ``inbox`` put between them."""
    reading = asyncio.ensure_future(anext(stream, b""))
    noticed = asyncio.ensure_future(inbox.take())
    try:
        while True:
            await asyncio.wait((reading, noticed), return_when=asyncio.FIRST_COMPLETED)
            if noticed.done():
                yield noticed.result()
                noticed = asyncio.ensure_future(inbox.take())
            if reading.done():
                if not (piece := reading.result()):
                    return
                yield piece
                reading = asyncio.ensure_future(anext(stream, b""))
    finally:
        for task in (reading, noticed):
            task.cancel()
        await asyncio.gather(reading, noticed, return_exceptions=True)
        await stream.aclose()


@dataclass(slots=True)
class GetStreams:
    """Takes the streams that clients open to listen."""

    call_gate: CallGate
    upstream_sessions: UpstreamSessions
    deferred: DeferredAnswers
    notifications: Notifications

    async def listen(self, ask: ClientRequest, session: Session | None) -> ClientResponse:
        """Open a stream, or resume one. Raises AdapterError."""
        ask.server.require_healthy(asyncio.get_running_loop().time())
        read_timeout = ask.server.timeouts.request
        plan = ask.server.plan
        if session is not None and ask.last_event_id is not None and not plan.empty:
            await self.deferred.load(session)
        # What stages wait for must not pass by them compressed; anything else may come as it likes.
        needed = session is not None and (plan.guards or self.deferred.waits(session))
        # News of changed tools could not be heard either, but no stream is refused for that.
        observe = ask.server.listener()
        if needed or observe is not None:
            ask.headers = asking_plain(ask.headers)
        reply = await self.upstream_sessions.send(ask, session, b"", read_timeout)
        if session is not None and session.over:
            reply.abort()
            raise SessionUnknown()
        headers = ask.server.answer_headers.to_client(reply.headers)
        stream = media_type(reply) == "text/event-stream"
        rewrite = None
        if stream and needed:
            require_plain(reply)
        if stream and session is not None and needed:
            rewrite = partial(self._heard, session, plan)
        if reply.whole is not None and rewrite is None:
            if observe is not None:
                observe(reply.whole)
            return ClientResponse(reply.status, headers, reply.whole)
        if not stream:
            return await piped_answer(reply, headers, read_timeout)
        ask.server.counters.streams += 1
        release = _held(session, reply)
        if rewrite is None or session is None:
            piped = GetStream(reply, observe)
            return ClientResponse(
                reply.status, headers, piped.body(), release=release, last_words=piped.last_words
            )
        pieces = listening(reply, rewrite, ask.server.answer_limit, observe)
        scope = self.call_gate.scope_of(session, ask.principal)
        inbox = self.notifications.open(scope, session.key, resumed=ask.last_event_id is not None)
        release = both(release, partial(self.notifications.close, scope, session.key, inbox))
        return ClientResponse(
            reply.status, headers, noticing(pieces, inbox), release=release, last_words=_between_events
        )

    async def _heard(self, session: Session, plan: Plan, data: bytes) -> bytes:
        """The data of an event as it may leave."""
        claimed = await self.deferred.claim(session, data)
        if claimed is not None:
            return claimed
        if plan.around is not None:
            data = session.guarded.withheld(data)
        return without_lists(data) if plan.refuses else data


async def _between_events(_: AdapterError) -> bytes:
    """Tell the client to come back in a while; only whole events have left."""
    return RETRY


def _held(session: Session | None, reply: UpstreamReply) -> Callable[[], None]:
    """Have the stream end with its session; returned is what lets go of both."""
    if session is None:
        return reply.abort
    session.hold(reply)
    return both(reply.abort, partial(session.release, reply))
