"""The route of metrics: a scrape for operators on the adapter's port, or without credentials on a port of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from adapter.edge.console.status import Viewers
from adapter.edge.http.request import Branch, Names, Request
from adapter.edge.http.response import SERVER
from adapter.rules.access.host_and_origin_check import NOSNIFF, host_allowed

_METHODS = ("GET", "HEAD")
_FIELDS = [("Cache-Control", "no-store"), NOSNIFF]

Scraping = Callable[[str], Awaitable[tuple[str, bytes]]]
"""Writes the numbers down, in the form that an Accept field asks for: its content type, and the text."""


@dataclass(frozen=True)
class MetricsBranch(Branch):
    """Serves ``prefix`` itself and nothing below it."""

    def names(self, request: Request) -> Names | None:
        """See Branch."""
        return () if request.path == self.prefix else None


def metrics_branch(path: str, scrape: Scraping, viewers: Viewers) -> MetricsBranch:
    """The branch of the adapter's own port, for operators among the ``viewers``."""

    async def serve(request: Request, _: Names, extra: list[tuple[str, str]]) -> None:
        viewers.of(request.headers).require_operator()
        await _answer(request, scrape, extra)

    return MetricsBranch(path, 0, _METHODS, (), serve)


def metrics_handler(
    path: str, scrape: Scraping, *, bound_to_loopback: bool
) -> Callable[[Request], Awaitable[None]]:
    """The handler of a port that serves metrics and nothing else."""

    async def serve(request: Request) -> None:
        # No page may read them under a name of its own that it points here.
        host = request.headers.get("Host")
        if not host_allowed(host, bound_to_loopback=bound_to_loopback, allowed=None):
            text = (
                f"{SERVER}: this port serves loopback names only; telemetry.prometheus.host is its address\n"
            )
            request.reply.send(421, [("Content-Type", "text/plain"), NOSNIFF], text.encode())
        elif request.path != path:
            request.reply.send(404, [("Content-Type", "text/plain"), NOSNIFF], f"{SERVER}: {path}\n".encode())
        elif request.method not in _METHODS:
            request.reply.send(405, [("Allow", ", ".join(_METHODS)), NOSNIFF])
        else:
            await _answer(request, scrape, [])

    return serve


async def _answer(request: Request, scrape: Scraping, extra: list[tuple[str, str]]) -> None:
    content_type, body = await scrape(request.headers.get("Accept", ""))
    request.reply.send(200, [("Content-Type", content_type), *_FIELDS, *extra], body)
