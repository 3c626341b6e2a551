"""One message of a host until it is answered, the answers that come for it, and what is remembered of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from adapter.errors import (
    AdapterError,
    AnswerTooLarge,
    BadJson,
    MessageTooLong,
    UpstreamBroken,
    UpstreamSilent,
)
from adapter.relay.replies import EVENT_STREAM, decoded, media_type, read_body, require_plain
from adapter.rules.calls.arguments import Headers, annotated
from adapter.rules.calls.rounds import is_repeatable
from adapter.upstream.port import UpstreamReply
from adapter.wire.envelope import (
    Batch,
    Envelope,
    Kind,
    dump,
    error_response,
    failure,
    list_at,
    parse,
    value_at,
)
from adapter.wire.line_messages import LineMessage, RpcId, as_line, messages_of
from adapter.wire.spans import Insert, edit
from adapter.wire.sse import SseReader

LONGEST_ANSWER = 256 << 20
"""Bytes of an answer, or of one event of a stream."""

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_TAIL = 1.0
"""Seconds for which a stream may go on behind the answer."""

Deliver = Callable[[bytes, "HostExchange"], Awaitable[None]]
"""Writes one message of the server to the host."""


class HostExchange:
    """A message of the host. ``waiting`` are the ids that are not answered yet, each with its spelling.

    Without a message it is a stream of whatever the server says by itself. ``session_id`` came with its answer;
    ``last_id`` and ``retry`` (seconds) are those of its stream. ``preparing``: nothing of it was sent yet.
    ``handles`` are those of the local files that it names.
    """

    def __init__(self, message: Envelope | Batch | None, deliver: Deliver) -> None:
        self.message = message
        members = message.members if isinstance(message, Batch) else [message] if message else []
        self.waiting: dict[RpcId, bytes] = {
            each.id: each.id_bytes for each in members if each.kind is Kind.REQUEST and each.id is not None
        }
        self.method = message.method if isinstance(message, Envelope) else ""
        self.modern = self.preparing = False
        self.handles: dict[tuple[str, str], str] = {}
        self.session_id: str | None = None
        self.last_id, self.retry = b"", 1.0
        self._listens = not self.waiting
        self._deliver = deliver
        self._acknowledged = False

    def repeatable(self) -> bool:
        """Tell whether it may be sent a second time. A session that nobody knows of is in nobody's way."""
        return self.message is not None and (self.method == "initialize" or is_repeatable(self.message, None))

    async def fail(self, error: AdapterError) -> None:
        """Answer all that is not answered with this failure."""
        if isinstance(error, AnswerTooLarge):
            error = AnswerTooLarge(f"The server's answer is larger than {LONGEST_ANSWER} bytes.")
        await self._answer(lambda spelled: failure(error, spelled))

    async def refuse(self, why: str) -> None:
        """Answer a call that is not sent with a result that tells the model why."""
        result: dict[str, object] = {"content": [{"type": "text", "text": why}], "isError": True}
        body = dump(({"resultType": "complete"} if self.modern else {}) | result)
        await self._answer(lambda spelled: b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (spelled, body))

    async def read(self, reply: UpstreamReply) -> None:
        """Pass on all of an answer, or of a stream as far as it comes. Raises AdapterError for what cannot be read."""
        if media_type(reply.headers) == EVENT_STREAM:
            require_plain(reply)
            await self._follow(reply)
            return
        body = decoded(await read_body(reply, None, LONGEST_ANSWER), reply, LONGEST_ANSWER)
        if body.strip():
            await self._take(body)
        cure = " Check the path of its URL." if reply.status in (404, 405) else ""
        why = f"The server answers with HTTP status {reply.status} and no message of MCP.{cure}"
        await self._answer(lambda spelled: error_response(spelled, -32000, why))

    async def _follow(self, reply: UpstreamReply) -> None:
        reader = SseReader(LONGEST_ANSWER)
        try:
            while chunk := await reply.read(None if self.waiting or self._listens else _TAIL):
                for event in reader.feed(chunk):
                    if event.data and event.event == b"message":
                        await self._take(event.data)
        except (UpstreamBroken, UpstreamSilent):
            pass  # what is missing tells itself
        except MessageTooLong:
            raise AnswerTooLarge from None
        finally:
            reply.abort()
            self.last_id = reader.last_id or self.last_id
            self.retry = self.retry if reader.retry is None else reader.retry / 1000

    async def _take(self, data: bytes) -> None:
        """Pass on one message of the server, or a batch. What is neither goes nowhere."""
        try:
            messages = messages_of(data)
        except BadJson:
            return
        if len(messages) == 1:
            if messages[0].method == _ACKNOWLEDGED:
                again, self._acknowledged = self._acknowledged, True
                if again:
                    return  # of a subscription that the host does not know to be another one
            data = self._under_own_id(messages[0])
        for message in messages:
            if message.kind is Kind.RESPONSE and message.number is not None:
                self.waiting.pop(message.number, None)
        await self._deliver(as_line(data), self)

    def _under_own_id(self, message: LineMessage) -> bytes:
        """The message; an error that names no request is that of the only one here."""
        if message.kind is not Kind.RESPONSE or message.number is not None or len(self.waiting) != 1:
            return message.data
        _, spelled = self.waiting.popitem()
        return edit(message.data, [Insert(("id",), spelled)])

    async def _answer(self, response: Callable[[bytes], bytes]) -> None:
        waiting, self.waiting = self.waiting, {}
        for spelled in waiting.values():
            await self._deliver(response(spelled), self)


# --- arguments that headers mirror -------------------------------------------------------------------------


def mirrored_in(data: bytes) -> dict[str, Headers]:
    """The header fields of the calls of each tool in a list that the host is about to see. Raises BadJson."""
    tools = list_at(parse(data), "result", "tools")
    named = [tool for tool in tools if isinstance(value_at(tool, "name"), str)]
    return {tool["name"]: dict(annotated(tool.get("inputSchema"))) for tool in named}


# --- standing requests -------------------------------------------------------------------------------------


MOST_SUBSCRIPTIONS = 1000

_LEVEL, _SUBSCRIBE, _UNSUBSCRIBE = "logging/setLevel", "resources/subscribe", "resources/unsubscribe"


class StandingRequests:
    """The requests that another session of the same host needs as well, as the host spelled them."""

    def __init__(self) -> None:
        self._level: list[bytes] = []
        self._subscriptions: dict[str | None, bytes] = {}

    def note(self, message: Envelope | Batch | None) -> None:
        """Take note of a request that was answered."""
        if not isinstance(message, Envelope):
            return
        if message.method == _LEVEL:
            self._level = [message.body]
        elif message.method == _SUBSCRIBE and len(self._subscriptions) < MOST_SUBSCRIPTIONS:
            self._subscriptions[message.name] = message.body
        elif message.method == _UNSUBSCRIBE:
            self._subscriptions.pop(message.name, None)

    def bodies(self) -> list[bytes]:
        """The requests, with the host's ids."""
        return [*self._level, *self._subscriptions.values()]
