"""Messages of a server that writes all of them to one stream, each brought to the request that it belongs to.

Source of the rules: JSON-RPC 2.0 (a response has the id of its request), MCP 2025-11-25, "Progress" (a token is that of
one request) and "Streamable HTTP" (anything else goes to one stream of the client).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, BadJson, BadRequest
from adapter.upstream.local.messages import LocalAnswer
from adapter.upstream.local.port import LocalRequest, ProgressToken
from adapter.upstream.local.replies import UNREAD_AT_MOST, UNREAD_BYTES, PendingReply
from adapter.upstream.local.sessions import LocalSession, RequestId
from adapter.wire.envelope import RpcResponse, parse, read_response
from adapter.wire.spans import items

PROGRESS = "notifications/progress"

Answered = Callable[[RpcResponse, bytes], LocalAnswer]
"""Makes the answer of a request from the server's response and its bytes."""


def as_it_came(_: RpcResponse, data: bytes) -> LocalAnswer:
    """The response itself."""
    return LocalAnswer(data)


class _Expected(NamedTuple):
    reply: PendingReply
    id_bytes: bytes
    answered: Answered
    token: ProgressToken | None
    streams: bool


class Correlation:
    """The requests that are under way in one session with a server, by id and by progress token.

    Messages without an owner go to the session's GET stream, or while the client has none open to the newest request
    that takes a stream; but not progress, whose request may have been given up. Those that come before the session is
    opened wait for it. A response that nobody waits for is dropped: its client has given up, or never asked.
    """

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._session: LocalSession | None = None
        self._early: deque[bytes] = deque(maxlen=UNREAD_AT_MOST)
        self._expected: dict[RequestId, _Expected] = {}
        self._tokens: dict[ProgressToken, _Expected] = {}

    def __repr__(self) -> str:
        return f"<Correlation: {len(self._expected)} under way>"

    def __len__(self) -> int:
        return len(self._expected)

    def __contains__(self, number: RequestId) -> bool:
        return number in self._expected

    # --- requests -----------------------------------------------------------------------------------------------

    def expect(self, request: LocalRequest, reply: PendingReply, answered: Answered = as_it_came) -> None:
        """Have ``reply`` filled with what the server says to this request, before it is sent.

        Raises BadRequest where a request of the same id is under way: one stream could not tell their answers apart.
        """
        number, token = request.envelope.id, request.progress_token
        assert number is not None, "a request has an id"
        if number in self._expected:
            raise BadRequest("A request with this id is under way in this session already.")
        streams = request.head.streams and request.session is not None
        expected = _Expected(reply, request.id_bytes, answered, token if streams else None, streams)
        self._expected[number] = expected
        if expected.token is not None:
            self._tokens[expected.token] = expected

    def forget(self, number: RequestId, reply: PendingReply) -> None:
        """Drop the request of this id: nobody waits for its answer any more."""
        expected = self._expected.get(number)
        if expected is not None and expected.reply is reply:
            self._pop(number)

    def fail(self, error: AdapterError) -> None:
        """End every request that is under way with this failure, under its own id."""
        for number in list(self._expected):
            expected = self._pop(number)
            expected.reply.fail(error, expected.id_bytes)

    def opened(self, session: LocalSession) -> None:
        """Take the session that the messages belong to from now on."""
        self._session = session
        while self._early:
            session.send(self._early.popleft(), keep=True)

    # --- messages of the server ---------------------------------------------------------------------------------

    async def take(self, data: bytes) -> None:
        """Bring a message, or each one of a batch, to where it belongs. Waits while that client's stream is full.

        What is no JSON-RPC message is logged and dropped.
        """
        if data.lstrip()[:1] == b"[":
            for member in _members(data):
                await self._take(member)
        else:
            await self._take(data)

    async def _take(self, data: bytes) -> None:
        response = read_response(data)
        if response is not None:
            self._settle(response, data)
            return
        message = _parsed(data)
        if message is None or not isinstance(message.get("method"), str):
            self._log.warning("a message of the server is no JSON-RPC and was dropped", bytes=len(data))
            return
        progress = message["method"] == PROGRESS
        owner = self._owner(message) if progress else self._listener()
        if owner is not None:
            await owner.reply.send(data)
        elif self._session is not None:
            self._session.send(data, keep=not progress)
        elif len(data) + sum(map(len, self._early)) <= UNREAD_BYTES:
            self._early.append(data)

    def _settle(self, response: RpcResponse, data: bytes) -> None:
        number = response.id
        if number is None and len(self._expected) == 1:
            # An error without an id is that of the only request which it can be about.
            number = next(iter(self._expected))
        if number is None or number not in self._expected:
            self._log.debug("a response that nobody waits for was dropped", bytes=len(data))
            return
        expected = self._pop(number)
        expected.reply.answer(expected.answered(response, data))

    def _owner(self, message: dict[str, Any]) -> _Expected | None:
        """The request that progress belongs to; None where it is under way no more, or was never."""
        params = message.get("params")
        token = params.get("progressToken") if isinstance(params, dict) else None
        # True is 1 to a dict, but not to JSON.
        if isinstance(token, str | int | float) and not isinstance(token, bool):
            return self._tokens.get(token)
        return None

    def _listener(self) -> _Expected | None:
        """The request on whose stream the client can hear what is for nobody; None where it listens by GET."""
        if self._session is None or self._session.listening:
            return None
        return next((each for each in reversed(self._expected.values()) if each.streams), None)

    def _pop(self, number: RequestId) -> _Expected:
        expected = self._expected.pop(number)
        if expected.token is not None and self._tokens.get(expected.token) is expected:
            del self._tokens[expected.token]
        return expected


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        message = parse(data)
    except BadJson:
        return None
    return message if isinstance(message, dict) else None


def _members(data: bytes) -> list[bytes]:
    try:
        return [data[start:end] for start, end in items(data)]
    except ValueError:
        return [data]
