"""Counts of HTTP requests, around the front door: each one by its route group, whatever became of it."""

from __future__ import annotations

import time
from collections import Counter

from adapter.edge.http.limits import Handler
from adapter.edge.http.request import Reply, Request, Sendable
from adapter.rules.metrics.catalogue import (
    AUTH_REJECTIONS,
    HTTP_DURATION,
    HTTP_REQUESTS,
    REJECTIONS,
    REQUEST_BYTES,
    RESPONSE_BYTES,
)
from adapter.rules.metrics.port import MetricSink
from adapter.rules.metrics.route_groups import MCP, RouteGroup, RouteGroups, method_label, status_class

_REFUSED = (401, 403)


class CountedReply:
    """A Reply that counts the bytes of its body."""

    __slots__ = ("_reply", "sent")

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.sent = 0

    @property
    def status(self) -> int | None:
        """See Reply."""
        return self._reply.status

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        """See Reply."""
        self.sent += len(body)
        self._reply.send(status, fields, body)

    def begin(self, status: int, fields: list[tuple[str, str]], length: int | None) -> None:
        """See Reply."""
        self._reply.begin(status, fields, length)

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Reply."""
        self.sent += len(chunk)
        return self._reply.put(chunk, more=more)

    async def drained(self) -> None:
        """See Reply."""
        await self._reply.drained()

    async def write(self, piece: bytes) -> None:
        """See Reply."""
        self.sent += len(piece)
        await self._reply.write(piece)

    async def write_file(self, file: Sendable, offset: int, length: int) -> None:
        """See Reply."""
        await self._reply.write_file(file, offset, length)
        self.sent += length

    def end(self) -> None:
        """See Reply."""
        self._reply.end()

    def abort(self) -> None:
        """See Reply."""
        self._reply.abort()


class RequestMetrics:
    """Counts into ``sink``. ``in_flight`` has the requests that are being answered, by route group."""

    def __init__(self, sink: MetricSink, groups: RouteGroups) -> None:
        self.in_flight: Counter[str] = Counter()
        self._sink = sink
        self._groups = groups

    def __repr__(self) -> str:
        return f"<RequestMetrics: {self.in_flight.total()} in flight>"

    def around(self, handler: Handler) -> Handler:
        """The handler, each of whose requests is counted when its last byte has left."""

        async def counted(request: Request) -> None:
            group = self._groups.of(request.path)
            reply = request.reply = CountedReply(request.reply)
            began = time.perf_counter()
            self.in_flight[group.name] += 1
            try:
                await handler(request)
            finally:
                self.in_flight[group.name] -= 1
                self._count(request, group, reply, time.perf_counter() - began)

        return counted

    def _count(self, request: Request, group: RouteGroup, reply: CountedReply, seconds: float) -> None:
        name, server = group
        labels = (server, method_label(request.method), name, status_class(reply.status))
        self._sink.count(HTTP_REQUESTS, *labels)
        self._sink.observe(HTTP_DURATION, seconds, *labels)
        if request.body.arrived:
            self._sink.count(REQUEST_BYTES, server, name, by=request.body.arrived)
        if reply.sent:
            self._sink.count(RESPONSE_BYTES, server, name, by=reply.sent)
        if request.failure is not None:
            self._reject(request.failure.code, request.failure.http, group)
        elif reply.status is not None and reply.status >= 400 and name != MCP:
            # An answer of the HTTP API, whose errors have no code; what an upstream answers is no refusal.
            self._reject(f"http_{reply.status}", reply.status, group)

    def _reject(self, reason: str, status: int, group: RouteGroup) -> None:
        metric = AUTH_REJECTIONS if status in _REFUSED else REJECTIONS
        self._sink.count(metric, group.server, reason, group.name)
