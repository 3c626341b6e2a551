"""Answers of a local server: those that are waited for, under one timer, since to set and cancel one for each call
takes 2 µs; and results and errors of both eras as bytes, with the HTTP status they leave with.

Source of the rules: MCP 2025-11-25 and 2026-07-28, "Streamable HTTP", and the schemas of both revisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from adapter.errors import AdapterError, UpstreamBroken
from adapter.rules.access.headers import SharedFields
from adapter.upstream.local.events import BOUNDS, CallEvents, EventStream, StreamBounds
from adapter.upstream.port import Headers, UpstreamReply, WholeReply, silent
from adapter.upstream.reply import again
from adapter.wire.envelope import dump, error_response, failure
from adapter.wire.eras import Era
from adapter.wire.rpc_refusals import INVALID_REQUEST as INVALID_REQUEST
from adapter.wire.rpc_refusals import UNSUPPORTED_VERSION as UNSUPPORTED_VERSION
from adapter.wire.rpc_refusals import RpcRefused as RpcRefused
from adapter.wire.rpc_refusals import require_version as require_version
from adapter.wire.rpc_refusals import status_of as status_of
from adapter.wire.sse import encode

JSON = SharedFields([("Content-Type", "application/json")])

INTERNAL_ERROR = -32603

_PREFIX = "io.modelcontextprotocol/"
CAPABILITIES_KEY = _PREFIX + "clientCapabilities"
SERVER_INFO_KEY = _PREFIX + "serverInfo"


# Not frozen: each call makes one, and a frozen one costs three times as much.
@dataclass(slots=True)
class LocalAnswer:
    """A JSON-RPC response, the HTTP status and fields it leaves with (None: JSON), and the id of the session
    that it opens.
    """

    body: bytes
    status: int = 200
    session_id: str | None = None
    headers: Headers | None = None


def result(id_bytes: bytes, value: Mapping[str, Any]) -> bytes:
    """A JSON-RPC response with this result."""
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"result":' + dump(value) + b"}"


def refusal(id_bytes: bytes, code: int, message: str, data: Any, era: Era) -> LocalAnswer:
    """A JSON-RPC error with the status of its era: a legacy client takes any status but 200 for a broken server."""
    body = error_response(id_bytes, code, message, data)
    return LocalAnswer(body, status_of(code, era))


def notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A JSON-RPC notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return dump(message)


_APART = 0.05
"""Seconds between two looks at all deadlines, at least: each look takes time for every reply that is waited for."""


class Deadlines:
    """Calls ``late`` functions when their time is over, at most 50 ms after it.

    The timer outlives the waits: it is set when a wait could end before it rings, and looks at what is left then.
    """

    def __init__(self) -> None:
        self._waits: dict[Callable[[], None], float] = {}
        self._alarm: asyncio.TimerHandle | None = None

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, asked for once: in Python 3.11 each look for it is a system call."""
        return asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._waits)

    def set(self, late: Callable[[], None], seconds: float) -> None:
        """Call ``late`` once when so many seconds have passed, unless it is dropped before."""
        when = self._waits[late] = self.loop.time() + seconds
        if self._alarm is None or when < self._alarm.when():
            self._ring_at(when)

    def drop(self, late: Callable[[], None]) -> None:
        """Call it no more. Idempotent."""
        self._waits.pop(late, None)

    def close(self) -> None:
        """Forget all deadlines."""
        self._waits.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring_at(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self.loop.time()
        for late in [late for late, when in self._waits.items() if when <= now]:
            self.drop(late)
            late()
        if self._waits:
            self._ring_at(max(min(self._waits.values()), now + _APART))


def _nothing() -> None:
    """Nobody is to be told."""


class PendingReply:
    """The reply to a request whose answer is not known yet: an event stream from its first message on, else JSON.

    ``give_up`` is called when nobody waits for the answer any more; it may be called again. ``withdrawn`` says that
    the client cancelled the request, ``overdue`` that the time for its answer has passed. ``limit`` is the time in
    seconds after which the server answers by itself. ``kept`` are the events that a client can come back for.
    The server ends every reply, with ``answer``, ``fail`` or ``end``; only the first of them counts.
    """

    __slots__ = (
        "_answer", "_failure", "_give_up", "_limit", "_settled", "forget", "kept", "over", "overdue", "stream",
        "withdrawn",
    )  # fmt: skip

    def __init__(self, give_up: Callable[[], None] = _nothing, limit: float | None = None) -> None:
        self._give_up = give_up
        self._limit = limit
        self.kept: CallEvents | None = None
        # There is one while somebody waits.
        self._settled: asyncio.Future[None] | None = None
        self.stream: EventStream | None = None
        self._answer: LocalAnswer | None = None
        self._failure: AdapterError | None = None
        self.over = False
        self.overdue = False
        self.withdrawn = False
        self.forget: Callable[[], None] | None = None

    # --- the server -------------------------------------------------------------------------------------------

    def event(self, message: bytes) -> bytes:
        """A message as an event of its stream."""
        return encode(message)

    async def send(self, message: bytes) -> None:
        """Send the client a notification or request ahead of the answer, when there is room for it."""
        if not self.over:
            await self.streamed().put(message)

    def offer(self, message: bytes, bounds: StreamBounds) -> bool:
        """Do the same at once; False where more is unread than ``bounds`` allow, and the message is lost."""
        return self.over or self.streamed(bounds).offer(self.event(message))

    def streamed(self, bounds: StreamBounds = BOUNDS) -> EventStream:
        """The stream of the reply, which is one from now on."""
        if self.stream is None:
            self.stream = EventStream(self.give_up, bounds=bounds)
            self._settle()
        return self.stream

    def answer(self, answer: LocalAnswer) -> None:
        """End the reply with its answer."""
        if not self.over:
            self._answer = answer
            self._finish(answer.body)

    def fail(self, error: AdapterError, id_bytes: bytes) -> None:
        """End the reply with a failure: its caller gets it, or on a stream the client under this id."""
        if self.stream is not None:
            self.answer(LocalAnswer(failure(error, id_bytes)))
        elif not self.over:
            self._failure = error
            self._finish(None)

    def end(self) -> None:
        """End the reply without an answer: the caller gets UpstreamBroken, or 202 where the client withdrew."""
        if not self.over:
            self._finish(None)

    # --- the transport ----------------------------------------------------------------------------------------

    async def head(self, read_timeout: float | None, deadlines: Deadlines) -> UpstreamReply:
        """Wait until the kind of the reply is known. ``deadlines`` are those of all who wait for the server.

        Raises UpstreamSilent, the failure of the reply, and UpstreamBroken when it ends without an answer. Then, as
        when the caller is cancelled, the request is given up.
        """
        if not self.over and self.stream is None:
            # One future and a deadline: asyncio.wait would cost a quarter of a call whose result was kept. A server
            # with a limit has a timer already.
            limited = read_timeout is None or (self._limit is not None and self._limit < read_timeout)
            late = None if limited else self._settle
            if late is not None and read_timeout is not None:
                deadlines.set(late, read_timeout)
            self._settled = deadlines.loop.create_future()
            try:
                await self._settled
            except BaseException:
                self.give_up()
                raise
            finally:
                if late is not None:
                    deadlines.drop(late)
        if self.stream is not None:
            return self.stream
        if self._answer is not None:
            return whole(self._answer)
        if self.over and self.withdrawn:
            return WholeReply(202)
        if self.over:
            # One failure may end many requests.
            raise again(self._failure or UpstreamBroken())
        self.overdue = True
        self.give_up()
        raise silent(read_timeout)

    def withdraw(self) -> None:
        """Give the request up because its client sent ``notifications/cancelled``."""
        self.withdrawn = True
        self.give_up()

    def give_up(self) -> None:
        """Tell the server that nobody waits for the answer any more."""
        if not self.over:
            self._give_up()

    def _finish(self, last: bytes | None) -> None:
        self.over = True
        # It knows this reply.
        self._give_up = _nothing
        if self.stream is not None:
            self.stream.end(None if last is None else self.event(last))
        if self.kept is not None:
            self.kept.close()
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)
        if self.forget is not None:
            self.forget()
            self.forget = None

    def _settle(self) -> None:
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)


def whole(answer: LocalAnswer) -> WholeReply:
    """The reply with this answer as JSON."""
    headers: Headers = JSON if answer.headers is None else answer.headers
    if answer.session_id is not None:
        headers = (*headers, ("Mcp-Session-Id", answer.session_id))
    return WholeReply(answer.status, headers, answer.body)
