"""Counts of HTTP requests, around the front door: each one by its route group, whatever became of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.edge.http.limits import Handler
from adapter.edge.http.request import Request
from adapter.errors import AdapterError
from adapter.rules.metrics.catalogue import (
    ARTIFACT_BYTES,
    ARTIFACT_DOWNLOADS,
    ARTIFACT_DURATION,
    AUTH_REJECTIONS,
    HTTP_DURATION,
    HTTP_REQUESTS,
    OTHER,
    REJECTIONS,
    REQUEST_BYTES,
    RESPONSE_BYTES,
    UPLOAD_BATCHES,
    UPLOAD_FAILURES,
)
from adapter.rules.metrics.port import MetricSink
from adapter.rules.metrics.route_groups import (
    ARTIFACT,
    MCP,
    UPLOAD,
    RouteGroup,
    RouteGroups,
    method_label,
    status_class,
)
from adapter.rules.metrics.waiting_times import MOST_WAITING, WaitingTimes

_REFUSED = (401, 403)


class RouteCounts:
    """The requests of one route group: ``active`` ones, and bytes that came and left since the last count."""

    __slots__ = ("active", "group", "received", "sent")

    def __init__(self, group: RouteGroup) -> None:
        self.group = group
        self.active = 0
        self.received = 0
        self.sent = 0


class FinishedRequest(NamedTuple):
    """A request that was answered, as far as it is counted."""

    route: RouteCounts
    method: str
    status: int | None
    failure: type[AdapterError] | None
    seconds: float
    sent: int

    @property
    def reason(self) -> str:
        """The code of the error that it ended with."""
        if self.failure is not None:
            return self.failure.code
        return "client_gone" if self.status is None else f"http_{self.status}"


_Alike = tuple[RouteCounts, str, int | None]
"""What requests have in common that are counted together: route, method and status."""


class RequestMetrics:
    """Counts into ``sink``; what waits to be counted is counted by ``flush``."""

    def __init__(self, sink: MetricSink, groups: RouteGroups) -> None:
        self._sink = sink
        self._groups = groups
        self._routes: dict[RouteGroup, RouteCounts] = {}
        self._exact = {path: self._of_group(group) for path, group in groups.exact.items()}
        self._waiting: WaitingTimes[_Alike] = WaitingTimes(self._count)

    def __repr__(self) -> str:
        return f"<RequestMetrics: {self._waiting!r}>"

    def in_flight(self) -> Iterator[tuple[str, int]]:
        """The name of each route group, and how many of its requests are being answered."""
        found: dict[str, int] = {}
        for route in self._routes.values():
            found[route.group.name] = found.get(route.group.name, 0) + route.active
        yield from found.items()

    def around(self, handler: Handler) -> Handler:
        """The handler, each of whose requests is counted when its last byte has left."""
        exact, waiting, clock = self._exact, self._waiting.seconds, time.perf_counter

        async def counted(request: Request) -> None:
            route = exact.get(request.path) or self._of_group(self._groups.of(request.path))
            route.active += 1
            began = clock()
            try:
                await handler(request)
            finally:
                seconds, reply = clock() - began, request.reply
                route.active -= 1
                route.received += request.body.arrived
                route.sent += reply.sent
                alike = waiting.get((route, request.method, reply.status))
                if alike is None or request.failure is not None or len(alike) >= MOST_WAITING:
                    self._end(
                        FinishedRequest(
                            route, request.method, reply.status, request.failure, seconds, reply.sent
                        )
                    )
                else:
                    # Nearly all calls: what it costs to count them is nearly all that metrics cost.
                    alike.append(seconds)

        return counted

    def _end(self, each: FinishedRequest) -> None:
        alike = (each.route, each.method, each.status)
        if each.route.group.name == MCP:
            self._waiting.add(alike, each.seconds)
            if each.failure is None:
                return
        else:
            self._count(alike, (each.seconds,))
        self._count_apart(each)

    def _of_group(self, group: RouteGroup) -> RouteCounts:
        known = self._routes.get(group)
        if known is None:
            # There are few groups: one for each server and kind of route.
            known = self._routes[group] = RouteCounts(group)
        return known

    def refuse(self, reason: str) -> None:
        """Count what was refused before it was a request."""
        self._sink.count(REJECTIONS, "", reason, OTHER)

    def flush(self) -> Iterator[None]:
        """Count what waits; see WaitingTimes."""
        yield from self._waiting.flush()
        for route in self._routes.values():
            if route.received or route.sent:
                name, server = route.group
                self._sink.count(REQUEST_BYTES, server, name, by=route.received)
                self._sink.count(RESPONSE_BYTES, server, name, by=route.sent)
                route.received = route.sent = 0

    def _count(self, requests: _Alike, seconds: Sequence[float], _: Sequence[str] = ()) -> None:
        route, method, status = requests
        name, server = route.group
        labels = (server, method_label(method), name, status_class(status))
        self._sink.count(HTTP_REQUESTS, *labels, by=len(seconds))
        self._sink.observe_all(HTTP_DURATION, seconds, *labels)

    def _count_apart(self, each: FinishedRequest) -> None:
        """Count what is not common to all requests."""
        name, server = each.route.group
        if name == UPLOAD and each.method == "POST":
            self._upload(each, server)
        elif name in (UPLOAD, ARTIFACT) and each.method == "GET":
            self._download(each, server)
        if each.failure is not None:
            self._reject(each.failure.code, each.failure.http, each.route.group)
        elif each.status is not None and each.status >= 400:
            # An answer of the HTTP API, whose errors have no code; what an upstream answers is no refusal.
            self._reject(each.reason, each.status, each.route.group)

    def _upload(self, each: FinishedRequest, server: str) -> None:
        if each.status == 200:
            self._sink.count(UPLOAD_BATCHES, server)
        else:
            self._sink.count(UPLOAD_FAILURES, server, each.reason)

    def _download(self, each: FinishedRequest, server: str) -> None:
        delivered = each.status is not None and each.status < 400 and each.failure is None
        result = "ok" if delivered else each.reason
        self._sink.count(ARTIFACT_DOWNLOADS, server, result)
        self._sink.observe(ARTIFACT_DURATION, each.seconds, server, result)
        self._sink.count(ARTIFACT_BYTES, server, by=each.sent)

    def _reject(self, reason: str, status: int, group: RouteGroup) -> None:
        metric = AUTH_REJECTIONS if status in _REFUSED else REJECTIONS
        self._sink.count(metric, group.server, reason, group.name)
