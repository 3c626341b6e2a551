"""``GET /`` on this machine: a few lines of text that say what is served where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapter.edge.http.request import Branch, Names, Request
from adapter.rules.access.host_and_origin_check import NOSNIFF, is_local


@dataclass(frozen=True)
class LandingPage(Branch):
    """Serves ``/`` to requests with a loopback name as Host that no proxy has passed on; to others it is not there."""

    def names(self, request: Request) -> Names | None:
        """No names for a request that is answered, None for others."""
        if request.path != "/" or request.method not in self.methods or not is_local(request.headers):
            return None
        return ()


def landing_page(places: Sequence[tuple[str, str]]) -> LandingPage:
    """The page with a line for each place: its name and its path."""

    async def serve(request: Request, _: Names, extra: list[tuple[str, str]]) -> None:
        fields = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store"), NOSNIFF]
        request.reply.send(200, [*fields, *extra], _text(places, request.headers.get("Host") or ""))

    return LandingPage("/", 0, ("GET", "HEAD"), (), serve)


def _text(places: Sequence[tuple[str, str]], host: str) -> bytes:
    width = max((len(name) for name, _ in places), default=0)
    lines = [f"{name:<{width}}  http://{host}{path}" for name, path in places]
    return "\n".join(("mcp-file-adapter serves here:", "", *lines, "")).encode()
