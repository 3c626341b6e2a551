"""An upstream with counts of the operations that the adapter sends it, its own included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from adapter.errors import AdapterError
from adapter.rules.metrics.catalogue import CLIENT_OPERATION
from adapter.rules.metrics.operations import (
    CLIENT_GONE,
    OK,
    SHORT_MESSAGE,
    OperationOutcome,
    failed_in,
    method_name,
    named_in,
    outcome_of_status,
)
from adapter.rules.metrics.port import MetricSink
from adapter.upstream.port import (
    Along,
    ReplyAround,
    Sink,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    pour,
)
from adapter.wire.envelope import Envelope, parse
from adapter.wire.spans import find

FAILING = b'rror"'
"""A part of every answer that tells an error: the end of the names ``error`` and ``isError``."""

MOST_WAITING = 512
"""Operations that wait to be counted: together they cost a fraction of what they would cost one by one."""

ToolLabel = Callable[[str | None, OperationOutcome], str]
"""The label of a tool by its name and the outcome of a call of it."""


_Messages = tuple[tuple[str, str | None], ...]
"""Method and name of each message in a request."""


class MeasuredUpstream:
    """Counts the operations of ``server`` (its id) into ``sink``. ``transport`` is tcp or pipe, empty for a server in
    this process.
    """

    def __init__(
        self, upstream: Upstream, server: str, sink: MetricSink, tool: ToolLabel, transport: str
    ) -> None:
        self._upstream = upstream
        self._server = server
        self._sink = sink
        self._tool = tool
        self._transport = transport
        self._waiting: list[tuple[_Messages, float, OperationOutcome]] = []

    def __repr__(self) -> str:
        return f"<MeasuredUpstream of {self._upstream!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        if request.method != "POST":
            return await self._upstream.send(request, read_timeout)
        envelope, began = request.envelope, time.perf_counter()
        messages: _Messages
        if type(envelope) is Envelope and len(request.body) <= SHORT_MESSAGE:
            messages = ((envelope.method, envelope.name),)
        else:
            messages = _messages(request)
        try:
            reply = await self._upstream.send(request, read_timeout)
        except AdapterError as error:
            self.end(messages, began, OperationOutcome(error.code, error.code))
            raise
        except asyncio.CancelledError:
            self.end(messages, began, CLIENT_GONE)
            raise
        whole = reply.whole
        if whole is None:
            return MeasuredReply(reply, _Sent(self, messages, began))
        if FAILING not in whole and reply.status < 400:
            self.end(messages, began, OK)
        else:
            self.end(messages, began, failed_in(whole) or outcome_of_status(reply.status))
        return reply

    async def close(self) -> None:
        """See Upstream."""
        await self._upstream.close()

    def end(self, messages: _Messages, began: float, outcome: OperationOutcome) -> None:
        """Note that messages with these methods and names, which left at that moment, were answered."""
        self._waiting.append((messages, time.perf_counter() - began, outcome))
        if len(self._waiting) >= MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Count what waits."""
        alike: dict[tuple[_Messages, OperationOutcome], list[float]] = {}
        for messages, seconds, outcome in self._waiting:
            alike.setdefault((messages, outcome), []).append(seconds)
        self._waiting.clear()
        for (messages, outcome), all_seconds in alike.items():
            for method, name in messages:
                # A response to the server is no operation of the adapter's.
                if method:
                    tool = self._tool(name, outcome) if method == "tools/call" else ""
                    labels = (method_name(method), tool, outcome.error_type, outcome.status_code, "")
                    self._sink.observe_all(
                        CLIENT_OPERATION, all_seconds, self._server, *labels, self._transport
                    )


def _messages(request: UpstreamRequest) -> _Messages:
    """Method and name of each message in a request; none for a response."""
    if request.envelope is not None:
        return named_in(request.envelope)
    # One of the adapter's own, which are short and know no tool.
    span = find(request.body, ("method",))
    method = parse(request.body[slice(*span)]) if span is not None else ""
    return ((method, None),) if isinstance(method, str) else ()


class _Sent:
    """A message on its way to an upstream. It ends once, however often that is said."""

    __slots__ = ("_began", "_messages", "_owner")

    def __init__(self, owner: MeasuredUpstream, messages: _Messages, began: float) -> None:
        self._owner = owner
        self._messages = messages
        self._began = began

    def end(self, outcome: OperationOutcome) -> None:
        messages, self._messages = self._messages, ()
        if messages:
            self._owner.end(messages, self._began, outcome)


class MeasuredReply(ReplyAround):
    """A reply that ends an operation when its last byte has come, or nobody reads on."""

    __slots__ = ("_failed", "_operation")

    def __init__(self, reply: UpstreamReply, operation: _Sent) -> None:
        super().__init__(reply)
        self._operation = operation
        self._failed: OperationOutcome | None = None

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        try:
            chunk = await self._reply.read(read_timeout)
        except AdapterError as error:
            self._operation.end(OperationOutcome(error.code, error.code))
            raise
        if chunk:
            self.look(chunk)
        else:
            self._end()
        return chunk

    def look(self, chunk: bytes) -> None:
        """See a chunk that has come."""
        self._failed = failed_in(chunk) or self._failed

    def _end(self) -> None:
        self._operation.end(self._failed or outcome_of_status(self._reply.status))

    def abort(self) -> None:
        """See UpstreamReply."""
        self._end()
        self._reply.abort()

    async def pour(self, sink: Sink, read_timeout: float | None) -> None:
        """See Pouring."""
        try:
            await pour(self._reply, Along(sink, self.look), read_timeout)
        except AdapterError as error:
            self._operation.end(OperationOutcome(error.code, error.code))
            raise
        self._end()
