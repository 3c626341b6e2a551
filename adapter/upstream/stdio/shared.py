"""Sessions that share a child: opened by one handshake, and told what the child says to nobody in particular.

It cannot tell whom it means: the classes say which messages go to all of them, and which are refused. ``docs/stdio.md``
has the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from adapter.errors import LimitReached
from adapter.upstream.local.correlation import RequestUnderWay
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import LocalAnswer, PendingReply, notification, result
from adapter.upstream.local.sessions import LocalSession
from adapter.upstream.stdio.conversation import LOGGED, ChildConversation, refusal_of, refuse
from adapter.wire.envelope import METHOD_NOT_FOUND, Envelope, Kind, dump, parse
from adapter.wire.line_messages import LineMessage, RpcId, agreed_version, answered, without_capabilities
from adapter.wire.shared_ids import CANCELLED, PROGRESS, named
from adapter.wire.spans import find

INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'

UPDATED = "notifications/resources/updated"
OF_EVERYBODY = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    }
)
"""Notifications that say nothing about any client, so that strangers may hear them. Others may name a task or a URL."""

SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"

MOST_ASKED = 1024
"""Requests of a child that wait for clients. The oldest of more is refused."""

MOST_SUBSCRIPTIONS = 10_000
"""Resources of one child of which sessions want to hear."""

MOST_OF_A_SESSION = 1000
"""Resources of which one session may want to hear, so that it takes nobody else's place."""

LONGEST_URI = 8192
"""Characters of the URI of such a resource."""

Join = Callable[[ChildConversation, str], LocalSession]
"""Opens a session of a conversation, in the version that was agreed on, for an ``initialize``."""


@dataclass(slots=True)
class _Asked:
    """A request of the child's: the sessions that have not answered it, and its progress token."""

    sessions: list[LocalSession]
    token: RpcId | None


class ManySessions:
    """Sessions with one child: of one principal, or with ``strangers`` of several, who must not learn of each other.

    The child is opened with the ``initialize`` of the first client, and those of all others are answered with its
    result. Of strangers it hears no capability. ``refused`` is called when it opens no session.
    """

    def __init__(
        self, conversation: ChildConversation, join: Join, refused: Callable[[], None], *, strangers: bool
    ) -> None:
        self.conversation = conversation
        self._join = join
        self._refused = refused
        self._strangers = strangers
        self._opens = False
        self._version: str | None = None
        self._result = b""
        """That of the child's ``initialize``, as it was written."""
        self._waiting: dict[PendingReply, LocalRequest] = {}
        self._asked: dict[RpcId, _Asked] = {}
        self._subscriptions = SharedSubscriptions()

    # --- opening ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True when the child has opened. Until then, one may take any request for a violation and end."""
        return self._version is not None

    def open(self, request: LocalRequest) -> LocalAnswer | PendingReply:
        """Answer an ``initialize``, at once or when the child has agreed. Raises what ChildConversation.ask raises."""
        if self._version is not None:
            return self._opened(request, self._version)
        if not self._opens:
            self._opens = True
            self.conversation.ask(self._for_child(request), None, self._agreed)
        reply = PendingReply(lambda: self._forget(reply))
        self._waiting[reply] = request
        return reply

    def fail(self) -> None:
        """Answer those who wait with the failure of the child."""
        failure = self.conversation.failure
        for reply, request in self._taken():
            if failure is not None:
                reply.fail(failure, request.id_bytes)

    def _for_child(self, request: LocalRequest) -> LocalRequest:
        if not self._strangers:
            return request
        envelope = request.envelope
        return replace(request, envelope=envelope.with_body(without_capabilities(envelope)))

    def _agreed(self, way: RequestUnderWay, message: LineMessage) -> None:
        version = agreed_version(message)
        if version is None:
            for reply, request in self._taken():
                reply.answer(LocalAnswer(answered(message, request.id_bytes)))
            self._refused()
            return
        span = find(message.data, ("result",))
        assert span is not None, "there is a version in it"
        self._version, self._result = version, message.data[slice(*span)]
        self.conversation.try_write(INITIALIZED)
        for reply, request in self._taken():
            reply.answer(self._opened(request, version))
        way.end()

    def _opened(self, request: LocalRequest, version: str) -> LocalAnswer:
        session = self._join(self.conversation, version)
        body = b'{"jsonrpc":"2.0","id":' + request.id_bytes + b',"result":' + self._result + b"}"
        return LocalAnswer(body, session_id=session.id)

    def _taken(self) -> list[tuple[PendingReply, LocalRequest]]:
        waiting, self._waiting = self._waiting, {}
        return list(waiting.items())

    def _forget(self, reply: PendingReply) -> None:
        """Answer no client that waits no more. The child goes on to start, for those that come next."""
        self._waiting.pop(reply, None)
        reply.end()

    # --- requests ---------------------------------------------------------------------------------------------

    def leave(self, session: LocalSession) -> None:
        """Forget a session. What it alone was asked is refused."""
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
        return self.conversation.ask(request, session)

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
            self._tell(self.conversation.sessions, message.data)

    def _tell(self, sessions: Iterable[LocalSession], data: bytes) -> None:
        for session in list(sessions):
            self.conversation.correlation.tell(session, data)

    def _all_unless_strangers(self) -> list[LocalSession]:
        return [] if self._strangers else self.conversation.sessions

    def _addressees(self) -> list[LocalSession]:
        """The session that has requests under way, if it is the only one; else all, or none of strangers."""
        if self._strangers:
            return []
        only, sessions = self.conversation.correlation.requests.only_session, self.conversation.sessions
        return sessions if only is None or only not in sessions else [only]

    def _ask(self, message: LineMessage) -> None:
        assert message.number is not None, "a request has an id"
        if message.method == "ping":
            self.conversation.try_write(b'{"jsonrpc":"2.0","id":' + dump(message.number) + b',"result":{}}')
            return
        sessions = list(self._addressees())
        if not sessions or message.number in self._asked:
            refuse(self.conversation, message)
            return
        if len(self._asked) >= MOST_ASKED:
            oldest = next(iter(self._asked))
            del self._asked[oldest]
            self.conversation.try_write(refusal_of(oldest))
        self._asked[message.number] = _Asked(sessions, message.token)
        self._tell(sessions, message.data)

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
                self.conversation.write(envelope.body)
        elif envelope.method == "notifications/roots/list_changed" and not self._strangers:
            self.conversation.write(envelope.body)
        # The adapter itself has sent initialized, and tells of cancellations under the child's ids.

    def _take_response(self, response: Envelope, session: LocalSession) -> None:
        asked = None if response.id is None else self._asked.get(response.id)
        if asked is None or session not in asked.sessions:
            return
        assert response.id is not None, "it was just found"
        if response.failed and len(asked.sessions) > 1 and _is_incapable(response.body):
            asked.sessions.remove(session)
            return
        self.conversation.write(response.body)
        del self._asked[response.id]
        asked.sessions.remove(session)
        params = {"requestId": response.id, "reason": "Another client has answered."}
        self._tell(asked.sessions, notification(CANCELLED, params))

    def _left(self, number: RpcId, asked: _Asked, session: LocalSession) -> None:
        asked.sessions.remove(session)
        if not asked.sessions:
            del self._asked[number]
            self.conversation.try_write(refusal_of(number))


class SharedSubscriptions:
    """The sessions that want to hear of each resource. The child has one subscription for all of them."""

    def __init__(self) -> None:
        self._subscribers: dict[str, dict[LocalSession, None]] = {}
        self._wanted: Counter[LocalSession] = Counter()

    def of(self, uri: str) -> list[LocalSession]:
        """The sessions that want to hear of a resource."""
        return list(self._subscribers.get(uri, ()))

    def add(self, uri: str, session: LocalSession) -> None:
        """Note that a session wants to hear of a resource. Raises LimitReached for one too many."""
        subscribers = self._subscribers.get(uri, {})
        if session in subscribers:
            return
        if (
            self._wanted[session] >= MOST_OF_A_SESSION
            or len(uri) > LONGEST_URI
            or (not subscribers and len(self._subscribers) >= MOST_SUBSCRIPTIONS)
        ):
            raise LimitReached(
                f"At most {MOST_OF_A_SESSION} resources of one session, and {MOST_SUBSCRIPTIONS} of one process can be "
                f"subscribed to, each with a URI of at most {LONGEST_URI} characters."
            )
        self._subscribers.setdefault(uri, {})[session] = None
        self._wanted[session] += 1

    def remove(self, uri: str, session: LocalSession) -> bool:
        """Note that a session wants to hear of a resource no more. Returns True where others still do."""
        subscribers = self._subscribers.get(uri, {})
        if session in subscribers:
            del subscribers[session]
            self._wanted[session] -= 1
        if not subscribers:
            self._subscribers.pop(uri, None)
        return bool(subscribers)

    def leave(self, session: LocalSession) -> None:
        """Forget a session."""
        for uri in [uri for uri, subscribers in self._subscribers.items() if session in subscribers]:
            self.remove(uri, session)
        del self._wanted[session]


def _is_incapable(response: bytes) -> bool:
    """Tell whether a client says that it cannot answer a request of this kind at all."""
    error = parse(response).get("error")
    return isinstance(error, dict) and error.get("code") == METHOD_NOT_FOUND
