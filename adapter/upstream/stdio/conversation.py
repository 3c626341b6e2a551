"""The messages between one child and those who speak with it.

The receivers of what a child says outside of requests, and of what clients say to it without asking.

A child of one session speaks with that session. For one that several share see shared.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, AnswerTooLarge, BadJson, LimitReached
from adapter.rules.calls.arguments import annotated, check_parameters
from adapter.upstream.local.correlation import Correlation, RequestUnderWay, Taker
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import LocalAnswer, PendingReply, notification
from adapter.upstream.local.sessions import LocalSession
from adapter.upstream.stdio.child import ChildOwner, ChildProcess
from adapter.upstream.stdio.failures import (
    ChildExit,
    DroppedLines,
    exited,
    never_answered,
    not_started,
    stopped,
)
from adapter.upstream.stdio.pipes import MessagePipe
from adapter.wire.envelope import METHOD_NOT_FOUND, Envelope, Kind, dump, error_response, list_at, parse
from adapter.wire.line_messages import (
    Line,
    LineMessage,
    LongLine,
    RpcId,
    as_line,
    messages_of,
    number_of_long_line,
)
from adapter.wire.shared_ids import CANCELLED

StartChild = Callable[[ChildOwner], Awaitable[ChildProcess]]


class Audience(Protocol):
    """Those who speak with a child, and hear what belongs to no request."""

    def ask(self, request: LocalRequest, session: LocalSession) -> LocalAnswer | PendingReply:
        """Take a session's request."""

    def take(self, message: LineMessage) -> None:
        """Take a request or notification of the child's."""

    def observe(self, envelope: Envelope, session: LocalSession) -> None:
        """Take a notification or response of a client's."""


class ChildConversation:
    """Starts a child of the server ``name`` and passes messages on, until ``leave`` is called or the child ends.

    It has to answer for the first time within ``start_timeout`` seconds. ``shared``: several clients speak with it, so
    their requests are renumbered.

    ``ended`` is called once, when it is over; its caller closes it then. ``failure`` is why it is over, and
    ``was_left`` says that the adapter wanted it so. ``answered`` tells whether the child ever answered anything,
    ``used`` when it last answered (seconds of the loop's clock); a ping is no use. ``sessions`` are those that it
    serves.
    """

    def __init__(
        self,
        name: str,
        start_timeout: float,
        start: StartChild,
        ended: Callable[[ChildConversation], None],
        log: FilteringBoundLogger,
        *,
        shared: bool,
    ) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._name = name
        self._start_timeout = start_timeout
        self.audience: Audience | None = None
        self.sessions: list[LocalSession] = []
        self.failure: AdapterError | None = None
        self.answered = False
        self.was_left = False
        self.used = loop.time()
        self.correlation = Correlation(self, shared=shared)
        self._start = start
        self._child: ChildProcess | None = None
        self._ended = ended
        self._log = log
        self._drops = DroppedLines(log, loop.time)
        self.outgoing = MessagePipe(name)
        self._starting = loop.create_task(self._run())
        self._alarm = loop.call_later(start_timeout, self._late)

    def __repr__(self) -> str:
        state = "over" if self.failure else "answering" if self.answered else "starting"
        return f"<ChildConversation with {self._name!r}: {state}, {len(self.correlation.requests)} under way>"

    # --- the life of the child --------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            self._child = await self._start(self)
        except AdapterError as error:
            self._log.warning("a server's process was not started", why=error.reason or str(error))
            self.finish(not_started(self._name, error))

    def _late(self) -> None:
        if not self.answered:
            self.finish(never_answered(self._name, self._start_timeout))

    def exited(self, child_exit: ChildExit) -> None:
        """See ChildOwner."""
        self.finish(exited(self._name, child_exit, answered=self.answered))

    def finish(self, failure: AdapterError) -> None:
        """End what is under way with this failure, and take nothing more. Idempotent."""
        if self.failure is not None:
            return
        self.failure = failure
        self._alarm.cancel()
        self._drops.report_left_out()
        self.correlation.close()
        self.correlation.fail(failure)
        self._ended(self)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is under way and nobody listens."""
        return not self.correlation.requests and all(session.idle for session in self.sessions)

    def leave(self) -> None:
        """End what is under way because the child is needed no more."""
        if self.failure is None:
            self.was_left = True
            self.finish(stopped(self._name))

    def start_again(self) -> None:
        """Have the child open sessions, which it has to prove as one does that was started just now."""
        self.answered = False
        self._alarm.cancel()
        self._alarm = self._loop.call_later(self._start_timeout, self._late)

    def serve_one(self) -> None:
        """Belong to one client from now on. Nothing may be under way."""
        self.start_again()
        self.correlation.close()
        self.correlation = Correlation(self)

    async def close(self) -> None:
        """Stop the child; returns when nothing of it is left."""
        self._starting.cancel()
        await asyncio.wait((self._starting,))
        if self._child is not None:
            await self._child.stop()

    def pause(self) -> None:
        """See ServerLine."""
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        """See ServerLine."""
        if self._child is not None:
            self._child.resume()

    # --- from clients -----------------------------------------------------------------------------------------

    def ask(
        self, request: LocalRequest, session: LocalSession | None, taker: Taker | None = None
    ) -> RequestUnderWay:
        """Send a client's request and give the reply that will be filled.

        ``taker`` gets the response in place of the client. Raises LimitReached for a child that does not read.
        """
        if self.failure is not None:
            raise self.failure
        way = RequestUnderWay(request, session, self.correlation.give_up, taker)
        self.write(self.correlation.numbered(way, request.envelope))
        self.correlation.requests.add(way)
        return way

    def write(self, message: bytes) -> None:
        """Send the child a message. Raises LimitReached where it does not read."""
        self.outgoing.put(as_line(message))

    def try_write(self, message: bytes) -> None:
        """Send the child a message that nobody waits for; one that does not read does not get it."""
        with contextlib.suppress(LimitReached):
            self.write(message)

    def cancel(self, request: RequestUnderWay) -> None:
        """See ServerLine."""
        if request.method != "initialize":
            params = {"requestId": request.number, "reason": "Nobody waits for the answer any more."}
            self.try_write(notification(CANCELLED, params))

    # --- from the child ---------------------------------------------------------------------------------------

    def received(self, line: Line) -> None:
        """See ChildOwner. A line that holds no message is dropped."""
        if self.failure is not None:
            return
        if isinstance(line, LongLine):
            self._dropped(line)
            return
        try:
            messages = messages_of(line)
        except BadJson:
            self._drops.note(logging.WARNING, "dropped a line that is no message", len(line))
            return
        for message in messages:
            self._receive(message)

    def _receive(self, message: LineMessage) -> None:
        if message.kind is Kind.RESPONSE and not self.answered:
            self.answered = True
            self._alarm.cancel()
        way = self.correlation.receive(message)
        if way is not None:
            if way.method != "ping":
                self.used = self._loop.time()
        elif message.kind is Kind.RESPONSE:
            self._drops.note(logging.DEBUG, "dropped an answer to no request", len(message.data))

    def take(self, message: LineMessage) -> None:
        """See ServerLine."""
        if self.audience is not None:
            self.audience.take(message)

    def _dropped(self, line: LongLine) -> None:
        """Fail the request that a line was too long an answer to."""
        self._drops.note(logging.WARNING, "dropped a line that is too long", line.size)
        way = self.correlation.requests.take(number_of_long_line(line.head, line.tail))
        if way is not None:
            way.break_off(AnswerTooLarge())


LOGGED = "notifications/message"
DISCOVER = "server/discover"
LISTEN = "subscriptions/listen"
ANNOTATION = b"x-mcp-header"

LONGEST_LIST = 4 << 20
"""Bytes of a list of tools that is read for the fields that mirror arguments."""

MOST_TOOLS = 10_000


class OneSession:
    """All messages are those of one session, and keep their bytes."""

    def __init__(self, conversation: ChildConversation, session: LocalSession) -> None:
        self._conversation = conversation
        self._session = session

    def ask(self, request: LocalRequest, session: LocalSession) -> PendingReply:
        """See Audience."""
        return self._conversation.ask(request, session)

    def take(self, message: LineMessage) -> None:
        """See Audience."""
        self._conversation.correlation.tell(self._session, message.data)

    def observe(self, envelope: Envelope, session: LocalSession) -> None:  # noqa: ARG002 (the port's: it is the one)
        """See Audience."""
        self._conversation.write(envelope.body)


class NoSession:
    """Clients of MCP 2026-07-28: whatever they hear belongs to a request, and they are asked nothing.

    With ``strangers`` they are of several principals.
    """

    def __init__(self, conversation: ChildConversation, *, strangers: bool) -> None:
        self.conversation = conversation
        self._strangers = strangers
        self._refused = False
        self._used = False
        self._discovery: RequestUnderWay | None = None
        # By tool: what its calls repeat in header fields, as far as the child has listed it.
        self._mirrored: dict[str, Mapping[tuple[str, ...], str]] = {}

    def ask(self, request: LocalRequest, session: LocalSession | None = None) -> PendingReply:
        """See Audience. Raises HeaderMismatch for a call whose Mcp-Param fields say something else than its arguments.

        A child sees no fields, so the check is the adapter's (MCP 2026-07-28, "Server Validation").
        """
        if request.envelope.method == DISCOVER:
            self._discovery = self.conversation.ask(request, session, self._take_discovery)
            return self._discovery
        self._used = True
        if request.envelope.method == "tools/list":
            return self.conversation.ask(request, session, self._take_tools)
        if request.envelope.method == "tools/call" and self._mirrored:
            arguments = request.params.get("arguments") if isinstance(request.params, dict) else None
            mirrored = self._mirrored.get(request.envelope.name or "")
            if mirrored and isinstance(arguments, dict):
                check_parameters(mirrored, arguments, request.head.fields)
        return self.conversation.ask(request, session)

    @property
    def is_left(self) -> bool:
        """True if the child refused ``server/discover``, or was silent, and was asked nothing else: its clients use the
        other era.
        """
        return (self._refused or self.is_silent) and not self._used

    @property
    def is_silent(self) -> bool:
        """True if the child has not answered that in time."""
        return self._discovery is not None and self._discovery.overdue

    def _take_discovery(self, way: RequestUnderWay, message: LineMessage) -> None:
        self._refused = message.code is not None
        way.respond(message)

    def _take_tools(self, way: RequestUnderWay, message: LineMessage) -> None:
        if len(message.data) <= LONGEST_LIST and ANNOTATION in message.data:
            for tool in list_at(parse(message.data), "result", "tools"):
                if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                    self._mirrored[name] = dict(annotated(tool.get("inputSchema")))
            while len(self._mirrored) > MOST_TOOLS:
                del self._mirrored[next(iter(self._mirrored))]
        way.respond(message)

    def take(self, message: LineMessage) -> None:
        """See Audience. A log message names no request, so it is passed on only if it can be of one alone.

        Of strangers none gets it: it may be about a call that was answered before.
        """
        if message.kind is Kind.REQUEST:
            refuse(self.conversation, message)
        if message.kind is Kind.REQUEST or self._strangers:
            return
        # Nothing but changes is told on a subscription (MCP 2026-07-28, "Subscriptions").
        streaming = self.conversation.correlation.requests.streaming(None)
        under_way = [each for each in streaming if each.method != LISTEN]
        if message.method == LOGGED and len(under_way) == 1:
            self.conversation.correlation.pass_on(under_way[0], message)

    def observe(self, envelope: Envelope, session: LocalSession) -> None:
        """See Audience. There is no session that could say anything."""


def refuse(conversation: ChildConversation, message: LineMessage) -> None:
    """Answer a request of the child's that no client is to see."""
    assert message.number is not None, "a request has an id"
    conversation.try_write(refusal_of(message.number))


def refusal_of(number: RpcId) -> bytes:
    return error_response(
        dump(number), METHOD_NOT_FOUND, "The adapter cannot tell which client is meant, so none is asked."
    )
