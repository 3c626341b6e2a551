"""The streams that clients open to listen.

GET streams tell what an upstream says outside of calls, and answers that come later than their call. On a stream of
``subscriptions/listen`` (MCP 2026-07-28) the adapter's own artifacts are resources that come and go too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from adapter.errors import BadJson, SessionUnknown
from adapter.relay.background import nothing
from adapter.relay.call.call_gate import CallGate
from adapter.relay.call.deferred_answers import DeferredAnswers
from adapter.relay.call.passthrough import piped_answer
from adapter.relay.exchange import ClientRequest, ClientResponse, asking_plain, both
from adapter.relay.flow import EditedStream, GetStream
from adapter.relay.notifications import Inbox, Notifications
from adapter.relay.replies import media_type, require_plain
from adapter.relay.sessions.session import without_lists
from adapter.relay.sessions.session_map import Session
from adapter.relay.stages import Call, Stage, StageTable
from adapter.rules.access.principals import Caller
from adapter.rules.results.tool_results import without_paths
from adapter.upstream.port import UpstreamReply
from adapter.wire.envelope import parse, value_at
from adapter.wire.spans import Insert, edit
from adapter.wire.sse import encode

if TYPE_CHECKING:
    # Only an adapter with files has any.
    from adapter.rules.files.redaction import Redaction


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
    deferred: DeferredAnswers
    notifications: Notifications

    async def listen(self, ask: ClientRequest, session: Session | None) -> ClientResponse:
        """Open a stream, or resume one. Raises AdapterError."""
        ask.server.require_healthy()
        if session is None:
            return await self._listen(ask, None)
        # Another process may end the session before there is a stream to end.
        session.opening_streams += 1
        try:
            return await self._listen(ask, session)
        finally:
            session.opening_streams -= 1

    async def _listen(self, ask: ClientRequest, session: Session | None) -> ClientResponse:
        read_timeout = ask.server.timeouts.request
        stages = ask.server.stages
        if session is not None and not stages.empty:
            await self.deferred.find(session, resumed=ask.sender.last_event_id is not None)
        # What stages wait for must not pass by them compressed; anything else may come as it likes.
        # Nothing waits without a session, but a list or a notification may come all the same.
        needed = stages.refuses if session is None else stages.guards or self.deferred.waits(session)
        # News of changed tools could not be heard either, but no stream is refused for that.
        observe = ask.server.listener()
        if needed or observe is not None:
            ask.headers = asking_plain(ask.headers)
        reply = await self.call_gate.upstream_sessions.send(ask, session, b"", read_timeout)
        if session is not None and session.over:
            reply.abort()
            raise SessionUnknown()
        headers = ask.server.rules.answer_headers.to_client(reply.headers)
        streams = media_type(reply.headers) == "text/event-stream"
        rewrite = None
        if streams and needed:
            require_plain(reply)
            rewrite = partial(self._heard, session, stages, ask.sender.caller)
        if reply.whole is not None and rewrite is None:
            if observe is not None:
                observe(reply.whole)
            return ClientResponse(reply.status, headers, reply.whole)
        if not streams:
            return await piped_answer(reply, headers, read_timeout)
        release = _held(session, reply)
        if rewrite is not None:
            reply = EditedStream(reply, rewrite, ask.server.rules.answer_limit, observe=observe or nothing)
            observe = None
        stream = GetStream(reply, observe)
        answer = ClientResponse(
            reply.status, headers, stream.body(), release=release, last_words=stream.last_words
        )
        if rewrite is None or session is None:
            return answer
        scope = self.call_gate.scope_of(session, ask.sender.party or ask.sender.principal)
        inbox = self.notifications.open(scope, session.key, resumed=ask.sender.last_event_id is not None)
        answer.release = both(release, partial(self.notifications.close, scope, session.key, inbox))
        answer.body = noticing(stream.body(), inbox)
        return answer

    async def _heard(self, session: Session | None, stages: StageTable, caller: Caller, data: bytes) -> bytes:
        """The data of an event as it may leave."""
        claimed = None if session is None else await self.deferred.claim(session, data)
        if claimed is not None:
            return claimed
        if stages.access is not None and not (data := stages.access.heard(caller, data)):
            return data
        if stages.planned and session is not None:
            data = session.guarded.withheld(data)
        return without_lists(data) if stages.refuses else data


def _held(session: Session | None, reply: UpstreamReply) -> Callable[[], None]:
    """Have the stream end with its session; returned is what lets go of both."""
    if session is None:
        return reply.abort
    session.hold(reply.abort)
    return both(reply.abort, partial(session.release, reply.abort))


class TaskTexts(Stage):
    """The stage of ``tasks/get`` and ``tasks/result``, in whose texts no path of the store is to be seen."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction

    async def ask(self, call: Call) -> bytes | None:
        call.withheld = self._redaction
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:  # noqa: ARG002 - a stage
        return without_paths(response, self._redaction)


ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class ResourceSubscription:
    """One stream whose client wants to hear that the list of resources changed.

    The adapter speaks only after the upstream has acknowledged the subscription, which is the first word on a stream.
    """

    def __init__(self, notifications: Notifications, call: Call) -> None:
        self._notifications = notifications
        self._scope = call.scope
        self._inbox = Inbox()
        self._agreed = False
        self._event = encode(
            b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed",'
            b'"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%b}}}' % call.envelope.id_bytes
        )

    def heard(self, data: bytes) -> bytes:
        """A message of the upstream's on this stream, as it shall leave."""
        try:
            message = parse(data)
        except BadJson:
            return data
        if not isinstance(message, dict) or message.get("method") != ACKNOWLEDGED:
            return data
        self._agreed = True
        self._notifications.subscribe(self._scope, self._inbox, self._event)
        if _honours(message):
            return data
        return edit(data, [Insert(("params", "notifications", "resourcesListChanged"), b"true")])

    async def joined(self, stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The stream with the adapter's own words between its events, none of them before it is agreed to."""
        async with aclosing(stream):
            while not self._agreed and (piece := await anext(stream, b"")):
                yield piece
            async with aclosing(noticing(stream, self._inbox)) as pieces:
                async for piece in pieces:
                    yield piece

    def end(self) -> None:
        """The stream is over. Harmless when said twice."""
        self._notifications.unsubscribe(self._scope, self._inbox)


class SubscriptionStage(Stage):
    """The stage of ``subscriptions/listen`` where artifacts are resources."""

    def __init__(self, notifications: Notifications) -> None:
        self._notifications = notifications

    async def ask(self, call: Call) -> bytes | None:
        wanted = value_at(parse(call.request), "params", "notifications", "resourcesListChanged")
        if wanted is True:
            subscription = ResourceSubscription(self._notifications, call)
            call.heard.append(subscription.heard)
            call.joined = subscription.joined
            call.defer(subscription.end)
        return None


def _honours(message: dict[str, Any]) -> bool:
    """True where the upstream tells of changed resources itself, or its words cannot be added to."""
    agreed = value_at(message, "params", "notifications")
    return not isinstance(agreed, dict) or agreed.get("resourcesListChanged") is True
