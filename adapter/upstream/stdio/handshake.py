"""The opening of legacy sessions: of a session's own process, and of one that many sessions share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from adapter.upstream.local.messages import LocalAnswer
from adapter.upstream.local.port import LocalRequest
from adapter.upstream.local.replies import PendingReply
from adapter.upstream.local.sessions import LocalSession
from adapter.upstream.local.under_way import RequestUnderWay
from adapter.upstream.stdio.audiences import ManySessions
from adapter.upstream.stdio.conversation import ChildConversation
from adapter.wire.envelope import Envelope, envelope_of, parse
from adapter.wire.line_messages import LineMessage, agreed_version, answered, without_capabilities
from adapter.wire.spans import find

INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'

Join = Callable[[ChildConversation, str, LocalRequest], LocalSession]
"""Opens a session of a conversation, in the version that was agreed on, for an ``initialize``."""


class _Agreement(NamedTuple):
    """The result of an ``initialize`` as the child wrote it, and the protocol version in it."""

    result: bytes
    version: str


class SharedHandshake:
    """Opens a child with the ``initialize`` of the first client, and answers those of all others with its result.

    ``refused`` is called when the child opens no session. ``strangers``: the clients are of several principals, so the
    child hears of no capability of any.
    """

    def __init__(
        self,
        conversation: ChildConversation,
        audience: ManySessions,
        join: Join,
        refused: Callable[[], None],
        *,
        strangers: bool,
    ) -> None:
        self.conversation = conversation
        self._audience = audience
        self._join = join
        self._refused = refused
        self._strangers = strangers
        self._asked = False
        self._agreement: _Agreement | None = None
        self._waiting: list[tuple[LocalRequest, PendingReply]] = []

    @property
    def is_open(self) -> bool:
        """True when the child has opened. Until then, one may take any request for a violation and end."""
        return self._agreement is not None

    def open(self, request: LocalRequest) -> LocalAnswer | PendingReply:
        """Answer an ``initialize``, at once or when the child has agreed. Raises what ChildConversation.ask raises."""
        if self._agreement is not None:
            return self._opened(request, self._agreement)
        if not self._asked:
            self._asked = True
            self.conversation.ask(self._for_child(request), None, self._take)
        reply = PendingReply(lambda: self._left(reply))
        self._waiting.append((request, reply))
        return reply

    def fail(self) -> None:
        """Answer those who wait with the failure of the child."""
        failure = self.conversation.failure
        for request, reply in self._taken():
            if failure is not None:
                reply.fail(failure, request.id_bytes)

    def _for_child(self, request: LocalRequest) -> LocalRequest:
        if not self._strangers:
            return request
        body = without_capabilities(request.envelope)
        message = parse(body)
        envelope = envelope_of(message, body)
        assert isinstance(envelope, Envelope), "an initialize is one message"
        return replace(request, envelope=envelope, params=message.get("params"))

    def _take(self, way: RequestUnderWay, message: LineMessage) -> None:
        version = agreed_version(message)
        if version is None:
            for request, reply in self._taken():
                reply.answer(LocalAnswer(answered(message, request.id_bytes)))
            self._refused()
            return
        span = find(message.data, ("result",))
        assert span is not None, "there is a version in it"
        self._agreement = _Agreement(message.data[slice(*span)], version)
        self.conversation.try_write(INITIALIZED)
        for request, reply in self._taken():
            reply.answer(self._opened(request, self._agreement))
        way.end()

    def _opened(self, request: LocalRequest, agreement: _Agreement) -> LocalAnswer:
        session = self._join(self.conversation, agreement.version, request)
        self._audience.join(session)
        body = b'{"jsonrpc":"2.0","id":' + request.id_bytes + b',"result":' + agreement.result + b"}"
        return LocalAnswer(body, session_id=session.id)

    def _taken(self) -> list[tuple[LocalRequest, PendingReply]]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _left(self, reply: PendingReply) -> None:
        """Answer no client that waits no more. The child goes on to start, for those that come next."""
        self._waiting = [each for each in self._waiting if each[1] is not reply]
        reply.end()
