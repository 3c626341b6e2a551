"""An upstream with counts of the operations that the adapter sends it, its own included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from adapter.errors import AdapterError
from adapter.rules.metrics.catalogue import CLIENT_OPERATION
from adapter.rules.metrics.operations import (
    CLIENT_GONE,
    FAILING,
    OK,
    OperationOutcome,
    failed_in,
    has_result,
    method_name,
    named_in,
    outcome_of_body,
    outcome_of_status,
)
from adapter.rules.metrics.port import MetricSink
from adapter.rules.metrics.waiting_times import MOST_WAITING, WaitingTimes
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

ToolLabel = Callable[[str | None, OperationOutcome], str]
"""The label of a tool by its name and the outcome of a call of it."""

_Messages = tuple[tuple[str, str | None], ...]
"""Method and name of each message in a request."""

_Alike = tuple[str, str | None, OperationOutcome]
"""What operations have in common that are counted together: method, name and outcome."""


class MeasuredUpstream:
    """Counts the operations of ``server`` (its id) into ``sink``. ``transport`` is tcp or pipe, empty for a server in
    this process. What is ``waiting`` is counted when that is flushed.
    """

    def __init__(
        self, upstream: Upstream, server: str, sink: MetricSink, tool: ToolLabel, transport: str
    ) -> None:
        self._upstream = upstream
        self._server = server
        self._sink = sink
        self._tool = tool
        self._transport = transport
        self.waiting: WaitingTimes[_Alike] = WaitingTimes(self._count)

    def __repr__(self) -> str:
        return f"<MeasuredUpstream of {self._upstream!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        if request.method != "POST":
            return await self._upstream.send(request, read_timeout)
        began = time.perf_counter()
        try:
            reply = await self._upstream.send(request, read_timeout)
        except AdapterError as error:
            self.end(_messages(request), began, OperationOutcome(error.code, error.code))
            raise
        except asyncio.CancelledError:
            self.end(_messages(request), began, CLIENT_GONE)
            raise
        whole, envelope = reply.whole, request.envelope
        if whole is None:
            return MeasuredReply(reply, _Sent(self, _messages(request), began))
        if (
            whole.find(FAILING) < 0
            and reply.status < 400
            and type(envelope) is Envelope
            and (alike := self.waiting.seconds.get((envelope.method, envelope.name, OK))) is not None
            and len(alike) < MOST_WAITING
        ):
            # Nearly all calls: what it costs to count them is nearly all that metrics cost.
            alike.append(time.perf_counter() - began)
        else:
            self.end(_messages(request), began, outcome_of_body(reply.status, whole))
        return reply

    async def close(self) -> None:
        """See Upstream."""
        await self._upstream.close()

    def end(self, messages: _Messages, began: float, outcome: OperationOutcome) -> None:
        """Note that messages with these methods and names, which left at that moment, were answered."""
        seconds = time.perf_counter() - began
        for method, name in messages:
            # A response to the server is no operation of the adapter's.
            if method:
                self.waiting.add((method, name, outcome), seconds)

    def _count(self, operation: _Alike, seconds: Sequence[float], _: Sequence[str]) -> None:
        method, name, outcome = operation
        tool = self._tool(name, outcome) if method == "tools/call" else ""
        labels = (method_name(method), tool, outcome.error_type, outcome.status_code, "", self._transport)
        self._sink.observe_all(CLIENT_OPERATION, seconds, self._server, *labels)


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

    __slots__ = ("_failed", "_has_result", "_operation")

    def __init__(self, reply: UpstreamReply, operation: _Sent) -> None:
        super().__init__(reply)
        self._operation = operation
        self._failed: OperationOutcome | None = None
        self._has_result = False

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
        self._failed = self._failed or failed_in(chunk)
        self._has_result = self._has_result or has_result(chunk)

    def _end(self) -> None:
        self._operation.end(self._failed or outcome_of_status(self._reply.status))

    def abort(self) -> None:
        """See UpstreamReply."""
        if self._failed is None and not self._has_result and self._reply.status < 400:
            self._operation.end(CLIENT_GONE)
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
