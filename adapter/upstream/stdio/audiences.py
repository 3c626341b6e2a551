"""The receivers of what a child says outside of requests, and of what clients say to it without asking.

A child of one session speaks with that session. For one that several share see shared.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from adapter.rules.calls.arguments import annotated, check_parameters
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession
from adapter.upstream.local.under_way import RequestUnderWay
from adapter.upstream.stdio.conversation import ChildConversation
from adapter.wire.envelope import METHOD_NOT_FOUND, Envelope, Kind, dump, error_response, list_at, parse
from adapter.wire.line_messages import LineMessage, RpcId

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

    @property
    def sessions(self) -> list[LocalSession]:
        """See Audience."""
        return [self._session]

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

    @property
    def sessions(self) -> list[LocalSession]:
        """See Audience."""
        return []

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
