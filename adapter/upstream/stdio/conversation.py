"""The messages between one child and those who speak with it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, AnswerTooLarge, BadJson, LimitReached, UpstreamBroken
from adapter.upstream.local.events import StreamBounds
from adapter.upstream.local.messages import LocalAnswer, notification
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession
from adapter.upstream.stdio.child import ChildExit, ChildOwner, ChildProcess
from adapter.upstream.stdio.congestion import OF_CALLS, OF_LISTENERS, Congestion
from adapter.upstream.stdio.failures import exited, never_answered, not_started, stopped
from adapter.upstream.stdio.outgoing import Outgoing
from adapter.upstream.stdio.under_way import RequestsUnderWay, RequestUnderWay, Taker
from adapter.wire.envelope import Envelope, Kind, dump
from adapter.wire.eras import Era
from adapter.wire.line_messages import (
    LineMessage,
    RpcId,
    as_line,
    messages_of,
    number_of_long_line,
    renumbered,
    token_in,
)
from adapter.wire.lines import LongLine
from adapter.wire.shared_ids import CANCELLED

BOUNDS = StreamBounds(messages=4096, size=1 << 20, waiting=1 << 20)
"""Of each stream to a client, and of what is kept for one that comes back."""

MOST_ABANDONED = 64
"""Requests that go on although their clients have left. The oldest of more is cancelled."""


StartChild = Callable[[ChildOwner], Awaitable[ChildProcess]]
UNREAD = "The client read its stream too slowly, so the answer was given up; the call may have run."


_OURS = "mcp-file-adapter"
"""The beginning of an id in place of one that a client uses twice at a time."""


class Audience(Protocol):
    """Those who speak with a child, and hear what belongs to no request."""

    @property
    def sessions(self) -> list[LocalSession]:
        """Their sessions."""

    def ask(self, request: LocalRequest, session: LocalSession) -> LocalAnswer | PendingReply:
        """Take a session's request."""

    def take(self, message: LineMessage) -> None:
        """Take a request or notification of the child's."""

    def observe(self, envelope: Envelope, session: LocalSession) -> None:
        """Take a notification or response of a client's."""


class ConversationTerms(NamedTuple):
    """``server`` is the server's id. ``start_timeout``: seconds within which its child answers for the first time.

    ``shared``: several clients speak with one child, so their requests are renumbered.
    """

    server: str
    start_timeout: float
    shared: bool = False


class ChildConversation:
    """Starts a child and passes messages on, until ``leave`` is called or the child ends.

    ``ended`` is called once, when it is over; its caller closes it then. ``failure`` is why it is over, and
    ``was_left`` says that the adapter wanted it so. ``answered`` tells whether the child ever answered anything,
    ``used`` when it last answered (seconds of the loop's clock); a ping is no use.
    """

    def __init__(
        self,
        terms: ConversationTerms,
        start: StartChild,
        ended: Callable[[ChildConversation], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self.terms = terms
        self.requests = RequestsUnderWay()
        self.audience: Audience | None = None
        self.failure: AdapterError | None = None
        self.answered = False
        self.was_left = False
        self.used = loop.time()
        self.congestion = Congestion(self._pause, self._resume, pauses=not terms.shared)
        self._start = start
        self._child: ChildProcess | None = None
        self._ended = ended
        self._log = log
        self._outgoing = Outgoing(terms.server)
        self._numbers = itertools.count(1)
        self._abandoned: deque[RequestUnderWay] = deque()
        self._running = loop.create_task(self._run())
        self._alarm = loop.call_later(terms.start_timeout, self._late)

    def __repr__(self) -> str:
        state = "over" if self.failure else "answering" if self.answered else "starting"
        return f"<ChildConversation with {self.terms.server!r}: {state}, {len(self.requests)} under way>"

    # --- the life of the child --------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            self._child = await self._start(self)
            await self._outgoing.write(self._child)
        except AdapterError as error:
            # A child that has ended while it was written to says so itself, and why.
            if self._child is None:
                self.finish(not_started(self.terms.server, error))

    def _late(self) -> None:
        if not self.answered:
            self.finish(never_answered(self.terms.server, self.terms.start_timeout))

    def exited(self, child_exit: ChildExit) -> None:
        """See ChildOwner."""
        self.finish(exited(self.terms.server, child_exit, answered=self.answered))

    def finish(self, failure: AdapterError) -> None:
        """End what is under way with this failure, and take nothing more. Idempotent."""
        if self.failure is not None:
            return
        self.failure = failure
        self._alarm.cancel()
        self.congestion.close()
        for request in self.requests:
            self.requests.take(request.number)
            request.reply.fail(failure, request.id_bytes)
            request.close()
        self._ended(self)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is under way and nobody listens."""
        sessions = self.audience.sessions if self.audience is not None else []
        return not self.requests and all(session.idle for session in sessions)

    def leave(self) -> None:
        """End what is under way because the child is needed no more."""
        if self.failure is None:
            self.was_left = True
            self.finish(stopped(self.terms.server))

    async def close(self) -> None:
        """Stop the child; returns when nothing of it is left."""
        self._running.cancel()
        await asyncio.wait((self._running,))
        if self._child is not None:
            await self._child.stop()

    def _pause(self) -> None:
        if self._child is not None:
            self._child.pause()

    def _resume(self) -> None:
        if self._child is not None:
            self._child.resume()

    # --- from clients -----------------------------------------------------------------------------------------

    def ask(
        self, request: LocalRequest, session: LocalSession | None, taker: Taker | None = None
    ) -> PendingReply:
        """Send a client's request and give the reply that will be filled.

        ``taker`` gets the response in place of the client. Raises LimitReached for a child that does not read.
        """
        if self.failure is not None:
            raise self.failure
        envelope, head = request.envelope, request.head
        way = RequestUnderWay(envelope.method, request.id_bytes, head.era, session, head.streams, taker)
        reply = way.reply = PendingReply(partial(self._give_up, way), events=way.event)
        data = self._numbered(way, request)
        self.write(data)
        self.requests.add(way)
        return reply

    def _numbered(self, way: RequestUnderWay, request: LocalRequest) -> bytes:
        """Give a request its ids at the child. Returns the bytes that the child reads."""
        envelope = request.envelope
        assert envelope.id is not None, "a request has an id"
        if self.terms.shared:
            return self._renumber(way, envelope, next(self._numbers))
        if envelope.id in self.requests:
            # The answers to both have to be told apart, and the child may go by ids as well.
            return self._renumber(way, envelope, f"{_OURS}-{next(self._numbers)}")
        way.number = envelope.id
        if way.streams:
            way.token = token_in(envelope.body)
        return envelope.body

    def _renumber(self, way: RequestUnderWay, envelope: Envelope, number: RpcId) -> bytes:
        data, way.token_bytes = renumbered(envelope, dump(number))
        way.number, way.renumbered = number, True
        way.token = None if way.token_bytes is None else number
        return data

    def write(self, message: bytes) -> None:
        """Send the child a message. Raises LimitReached where it does not read."""
        self._outgoing.put(as_line(message))

    def try_write(self, message: bytes) -> None:
        """Send the child a message that nobody waits for; one that does not read does not get it."""
        with contextlib.suppress(LimitReached):
            self.write(message)

    def _give_up(self, way: RequestUnderWay) -> None:
        """A client has gone or waits no longer. In the legacy era that cancels nothing (MCP 2025-11-25)."""
        reply = way.reply
        if way.method == "initialize" and way.session is not None:
            way.session.end()
            return
        if way.era is Era.LEGACY and not (reply.withdrawn or reply.overdue):
            self._abandon(way)
            return
        if self.requests.take(way.number) is None:
            return
        # The client's own notification follows, where the child knows the request under the same id.
        if way.renumbered or not reply.withdrawn:
            self._cancel(way)
        way.close()
        reply.end()

    def _abandon(self, way: RequestUnderWay) -> None:
        self._abandoned.append(way)
        if len(self._abandoned) > MOST_ABANDONED:
            oldest = self._abandoned.popleft()
            if self.requests.take(oldest.number) is oldest:
                self._cancel(oldest)
                oldest.close()
                oldest.reply.end()

    def _cancel(self, way: RequestUnderWay) -> None:
        if way.method != "initialize":
            params = {"requestId": way.number, "reason": "Nobody waits for the answer any more."}
            self.try_write(notification(CANCELLED, params))

    # --- from the child ---------------------------------------------------------------------------------------

    def received(self, line: bytes) -> None:
        """See ChildOwner. A line that holds no message is dropped."""
        if self.failure is not None:
            return
        try:
            messages = messages_of(line)
        except BadJson:
            self._log.warning("dropped a line that is no message", bytes=len(line))
            return
        for message in messages:
            if message.kind is Kind.RESPONSE:
                self._take_response(message)
            else:
                self._take(message)

    def dropped(self, line: LongLine) -> None:
        """See ChildOwner. The request that a line was too long an answer to fails."""
        self._log.warning("dropped a line that is too long", bytes=line.size)
        way = self.requests.take(number_of_long_line(line.head, line.tail))
        if way is not None:
            way.reply.fail(AnswerTooLarge(), way.id_bytes)
            way.close()

    def _take_response(self, message: LineMessage) -> None:
        if not self.answered:
            self.answered = True
            self._alarm.cancel()
        way = self.requests.take(message.number)
        if way is None:
            self._log.debug("dropped an answer to no request")
            return
        if way.method != "ping":
            self.used = self._loop.time()
        if way.taker is not None:
            way.taker(way, message)
        else:
            way.answer(message)

    def _take(self, message: LineMessage) -> None:
        way = self.requests.of(message)
        if way is None:
            if self.audience is not None:
                self.audience.take(message)
        elif message.method == CANCELLED:
            # The child ends a subscription (MCP 2026-07-28, "Subscriptions").
            self.requests.take(way.number)
            way.close()
            way.reply.end()
        else:
            self.pass_on(way, message)

    def pass_on(self, way: RequestUnderWay, message: LineMessage) -> None:
        """Send a message ahead of the answer of a request. A client that leaves too much unread loses its answer."""
        if way.reply.offer(way.as_sent(message), BOUNDS):
            self.congestion.watch(way.reply.stream, partial(self._break, way), OF_CALLS)
        else:
            self._break(way)

    def _break(self, way: RequestUnderWay) -> None:
        if self.requests.take(way.number) is not None:
            self._cancel(way)
            way.reply.fail(UpstreamBroken(UNREAD), way.id_bytes)
            way.close()

    def tell(self, session: LocalSession, data: bytes) -> None:
        """Send a session a message that belongs to none of its requests.

        It goes to the GET stream; where none is open, to the newest request that can be answered by a stream, else it
        waits for one.
        """
        if session.listener is None:
            ways = self.requests.streaming(session)
            if ways:
                self.pass_on(ways[0], LineMessage(Kind.NOTIFICATION, data))
                return
        session.send(data)
        stream = session.listener
        if stream is not None:
            self.congestion.watch(stream, stream.end, OF_LISTENERS)
