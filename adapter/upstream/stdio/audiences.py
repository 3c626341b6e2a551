"""The receivers of what a child says outside of requests, and of what clients say to it without asking.

A child of one session speaks with that session. One of several sessions cannot tell whom it means: the classes say
which messages go to all of them, and which are refused. ``docs/stdio.md`` has the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from adapter.rules.calls.arguments import annotated, check_parameters
from adapter.upstream.local.messages import METHOD_NOT_FOUND, LocalAnswer, notification, result
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession
from adapter.upstream.local.under_way import RequestUnderWay
from adapter.upstream.stdio.conversation import ChildConversation
from adapter.upstream.stdio.subscriptions import SharedSubscriptions
from adapter.wire.envelope import Envelope, Kind, dump, error_response, parse
from adapter.wire.line_messages import LineMessage, RpcId
from adapter.wire.shared_ids import CANCELLED, PROGRESS, named

UPDATED = "notifications/resources/updated"
LOGGED = "notifications/message"
OF_EVERYBODY = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    }
)
"""Notifications that say nothing about any client, so that strangers may hear them. Others may name a task or a URL."""

DISCOVER = "server/discover"
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"

ANNOTATION = b"x-mcp-header"

LONGEST_LIST = 4 << 20
"""Bytes of a list of tools that is read for the fields that mirror arguments."""

MOST_TOOLS = 10_000

MOST_ASKED = 1024
"""Requests of a child that wait for clients. The oldest of more is refused."""


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
            return self.conversation.ask(request, session, self._take_discovery)
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
        """True if the child refused ``server/discover`` and was asked nothing else: its clients use the other era."""
        return self._refused and not self._used

    def _take_discovery(self, way: RequestUnderWay, message: LineMessage) -> None:
        self._refused = message.code is not None
        way.respond(message)

    def _take_tools(self, way: RequestUnderWay, message: LineMessage) -> None:
        if len(message.data) <= LONGEST_LIST and ANNOTATION in message.data:
            result = parse(message.data).get("result")
            tools = result.get("tools") if isinstance(result, dict) else None
            for tool in tools if isinstance(tools, list) else ():
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
        under_way = self.conversation.correlation.requests.streaming(None)
        if message.method == LOGGED and len(under_way) == 1:
            self.conversation.correlation.pass_on(under_way[0], message)

    def observe(self, envelope: Envelope, session: LocalSession) -> None:
        """See Audience. There is no session that could say anything."""


@dataclass(slots=True)
class _Asked:
    """A request of the child's: the sessions that have not answered it, and its progress token."""

    sessions: list[LocalSession]
    token: RpcId | None


class ManySessions:
    """Sessions with one child: of one principal, or with ``strangers`` of several, who must not learn of each other."""

    def __init__(self, conversation: ChildConversation, *, strangers: bool) -> None:
        self._conversation = conversation
        self._strangers = strangers
        self._sessions: list[LocalSession] = []
        self._asked: dict[RpcId, _Asked] = {}
        self._subscriptions = SharedSubscriptions()

    @property
    def sessions(self) -> list[LocalSession]:
        """See Audience."""
        return list(self._sessions)

    def join(self, session: LocalSession) -> None:
        """Add a session."""
        self._sessions.append(session)

    def leave(self, session: LocalSession) -> None:
        """Forget a session. What it alone was asked is refused."""
        if session not in self._sessions:
            return
        self._sessions.remove(session)
        for number, asked in list(self._asked.items()):
            if session in asked.sessions:
                self._left(number, asked, session)
        self._subscriptions.leave(session)

    def ask(self, request: LocalRequest, session: LocalSession) -> LocalAnswer | PendingReply:
        """See Audience. The child keeps a subscription until the last session that wants it has had enough.

        Raises LimitReached for one subscription too many.
        """
        method, uri = request.envelope.method, request.envelope.name
        if uri is not None and method == SUBSCRIBE:
            self._subscriptions.add(uri, session)
        elif uri is not None and method == UNSUBSCRIBE and self._subscriptions.remove(uri, session):
            return LocalAnswer(result(request.id_bytes, {}))
        return self._conversation.ask(request, session)

    # --- from the child ---------------------------------------------------------------------------------------

    def take(self, message: LineMessage) -> None:
        """See Audience."""
        if message.kind is Kind.REQUEST:
            self._ask(message)
        elif message.method == CANCELLED:
            self._withdraw(message)
        elif message.method == UPDATED and message.uri is not None:
            self._tell(self._subscriptions.of(message.uri) or self._all_unless_strangers(), message.data)
        elif message.method == LOGGED:
            self._tell(self._addressees(), message.data)
        elif message.method in OF_EVERYBODY or (message.method != PROGRESS and not self._strangers):
            self._tell(self._sessions, message.data)

    def _tell(self, sessions: Iterable[LocalSession], data: bytes) -> None:
        for session in list(sessions):
            self._conversation.correlation.tell(session, data)

    def _all_unless_strangers(self) -> list[LocalSession]:
        return [] if self._strangers else self._sessions

    def _addressees(self) -> list[LocalSession]:
        """The session that has requests under way, if it is the only one; else all, or none of strangers."""
        if self._strangers:
            return []
        only = self._conversation.correlation.requests.only_session
        return self._sessions if only is None or only not in self._sessions else [only]

    def _ask(self, message: LineMessage) -> None:
        assert message.number is not None, "a request has an id"
        if message.method == "ping":
            self._conversation.try_write(b'{"jsonrpc":"2.0","id":' + dump(message.number) + b',"result":{}}')
            return
        sessions = list(self._addressees())
        if not sessions or message.number in self._asked:
            refuse(self._conversation, message)
            return
        if len(self._asked) >= MOST_ASKED:
            self._refuse_oldest()
        self._asked[message.number] = _Asked(sessions, message.token)
        self._tell(sessions, message.data)

    def _refuse_oldest(self) -> None:
        number = next(iter(self._asked))
        del self._asked[number]
        self._conversation.try_write(_refusal(number))

    def _withdraw(self, message: LineMessage) -> None:
        asked = None if message.about is None else self._asked.pop(message.about, None)
        if asked is not None:
            self._tell(asked.sessions, message.data)

    # --- from clients -----------------------------------------------------------------------------------------

    def observe(self, envelope: Envelope, session: LocalSession) -> None:
        """See Audience. A session's word on what it was not asked is dropped."""
        if envelope.kind is Kind.RESPONSE:
            self._take_response(envelope, session)
        elif envelope.method == PROGRESS:
            token = named(parse(envelope.body), "progressToken")
            if any(session in each.sessions and each.token == token for each in self._asked.values()):
                self._conversation.write(envelope.body)
        elif envelope.method == "notifications/roots/list_changed" and not self._strangers:
            self._conversation.write(envelope.body)
        # The adapter itself has sent initialized, and tells of cancellations under the child's ids.

    def _take_response(self, response: Envelope, session: LocalSession) -> None:
        asked = None if response.id is None else self._asked.get(response.id)
        if asked is None or session not in asked.sessions:
            return
        assert response.id is not None, "it was just found"
        if response.failed and len(asked.sessions) > 1 and _is_incapable(response.body):
            asked.sessions.remove(session)
            return
        self._conversation.write(response.body)
        del self._asked[response.id]
        asked.sessions.remove(session)
        params = {"requestId": response.id, "reason": "Another client has answered."}
        self._tell(asked.sessions, notification(CANCELLED, params))

    def _left(self, number: RpcId, asked: _Asked, session: LocalSession) -> None:
        asked.sessions.remove(session)
        if not asked.sessions:
            del self._asked[number]
            self._conversation.try_write(_refusal(number))


def refuse(conversation: ChildConversation, message: LineMessage) -> None:
    """Answer a request of the child's that no client is to see."""
    assert message.number is not None, "a request has an id"
    conversation.try_write(_refusal(message.number))


def _refusal(number: RpcId) -> bytes:
    return error_response(
        dump(number), METHOD_NOT_FOUND, "The adapter cannot tell which client is meant, so none is asked."
    )


def _is_incapable(response: bytes) -> bool:
    """Tell whether a client says that it cannot answer a request of this kind at all."""
    error = parse(response).get("error")
    return isinstance(error, dict) and error.get("code") == METHOD_NOT_FOUND
