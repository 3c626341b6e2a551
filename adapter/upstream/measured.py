"""An upstream with counts of the operations that the adapter sends it, its own included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from adapter.errors import AdapterError
from adapter.rules.metrics.catalogue import CLIENT_OPERATION
from adapter.rules.metrics.operations import (
    CLIENT_GONE,
    OperationOutcome,
    failed_in,
    method_name,
    outcome_of_status,
    version_label,
)
from adapter.rules.metrics.port import MetricSink
from adapter.upstream.port import (
    Headers,
    Pouring,
    Sink,
    Upstream,
    UpstreamReply,
    UpstreamRequest,
    header,
    pour,
)
from adapter.wire.envelope import Batch, parse
from adapter.wire.spans import find

ToolLabel = Callable[[str | None, OperationOutcome], str]
"""The label of a tool by its name and the outcome of a call of it."""


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

    def __repr__(self) -> str:
        return f"<MeasuredUpstream of {self._upstream!r}>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        if request.method != "POST":
            return await self._upstream.send(request, read_timeout)
        operation = _Sent(self, request)
        try:
            reply = await self._upstream.send(request, read_timeout)
        except AdapterError as error:
            operation.end(OperationOutcome(error.code, error.code))
            raise
        except asyncio.CancelledError:
            operation.end(CLIENT_GONE)
            raise
        if reply.whole is not None:
            operation.end(failed_in(reply.whole) or outcome_of_status(reply.status))
            return reply
        return MeasuredReply(reply, operation)

    async def close(self) -> None:
        """See Upstream."""
        await self._upstream.close()

    def count(
        self,
        operations: list[tuple[str, str | None]],
        version: str,
        seconds: float,
        outcome: OperationOutcome,
    ) -> None:
        """Count operations with these methods and names, all of one message."""
        for method, name in operations:
            tool = self._tool(name, outcome) if method == "tools/call" else ""
            labels = (
                method_name(method),
                tool,
                outcome.error_type,
                outcome.status_code,
                version,
                self._transport,
            )
            self._sink.observe(CLIENT_OPERATION, seconds, self._server, *labels)

    def operations(self, request: UpstreamRequest) -> list[tuple[str, str | None]]:
        """Method and name of each message in a request; none for a response."""
        envelope = request.envelope
        if envelope is None:
            # One of the adapter's own, which are short and know no tool.
            span = find(request.body, ("method",))
            method = parse(request.body[slice(*span)]) if span is not None else ""
            return [(method, None)] if isinstance(method, str) and method else []
        members = envelope.members if isinstance(envelope, Batch) else (envelope,)
        return [(each.method, each.name) for each in members if each.method]


class _Sent:
    """A message on its way to an upstream. It ends once, however often that is said."""

    __slots__ = ("_began", "_operations", "_owner", "_version")

    def __init__(self, owner: MeasuredUpstream, request: UpstreamRequest) -> None:
        self._owner = owner
        self._operations = owner.operations(request)
        self._version = version_label(header(request.headers, "mcp-protocol-version"))
        self._began = time.perf_counter()

    def end(self, outcome: OperationOutcome) -> None:
        operations, self._operations = self._operations, []
        self._owner.count(operations, self._version, time.perf_counter() - self._began, outcome)


class MeasuredReply(Pouring):
    """A reply that ends an operation when its last byte has come, or nobody reads on."""

    __slots__ = ("_failed", "_operation", "_reply")

    def __init__(self, reply: UpstreamReply, operation: _Sent) -> None:
        self._reply = reply
        self._operation = operation
        self._failed: OperationOutcome | None = None

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Headers:
        return self._reply.headers

    @property
    def whole(self) -> bytes | None:
        return self._reply.whole

    @property
    def needs_request(self) -> bool:
        return self._reply.needs_request

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
            await pour(self._reply, _LookingSink(sink, self.look), read_timeout)
        except AdapterError as error:
            self._operation.end(OperationOutcome(error.code, error.code))
            raise
        self._end()


class _LookingSink:
    """A sink that shows each chunk before it goes on."""

    __slots__ = ("_look", "_sink", "drained")

    def __init__(self, sink: Sink, look: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._look = look
        self.drained = sink.drained

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Sink."""
        self._look(chunk)
        return self._sink.put(chunk, more=more)
