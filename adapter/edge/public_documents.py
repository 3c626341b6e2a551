"""Documents that need no credentials: the landing page, and the metadata of the protected resources (RFC 9728)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from adapter.edge.http.request import Branch, Names, Request
from adapter.rules.access.host_and_origin_check import NOSNIFF, is_local

MAX_AGE = 300
"""Seconds that a client may keep the metadata."""

_METHODS = ("GET", "HEAD", "OPTIONS")
_OPEN = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", ", ".join(_METHODS)),
    # A literal * does not cover Authorization, and older browsers do not know it.
    ("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, MCP-Protocol-Version, *"),
    ("Access-Control-Max-Age", str(MAX_AGE)),
)


Document = bytes | Callable[[], Awaitable[bytes]]
"""A document, or a function that fetches it and raises an AdapterError where there is none."""


@dataclass(frozen=True, slots=True)
class MetadataBranch(Branch):
    """Serves ``documents``, JSON by decoded path without a slash at its end."""

    documents: Mapping[str, Document] = field(default_factory=dict)

    def names(self, request: Request) -> Names | None:
        """See Branch: the path of the document."""
        path = request.path.rstrip("/")
        return (path,) if path in self.documents else None


def metadata_branch(documents: Mapping[str, Document]) -> MetadataBranch:
    """The branch of these documents. They are the same for everybody, so any page may read them."""

    async def serve(request: Request, names: Names) -> None:
        (path,) = names
        if request.method == "OPTIONS":
            request.reply.extra = _OPEN
            request.reply.send(204, [("Allow", ", ".join(_METHODS))])
            return
        document = documents[path]
        if not isinstance(document, bytes):
            document = await document()
        caching = ("Cache-Control", f"public, max-age={MAX_AGE}")
        fields = [("Content-Type", "application/json"), caching, NOSNIFF]
        request.reply.extra = _OPEN
        request.reply.send(200, fields, document)

    return MetadataBranch("/", 0, _METHODS, (), serve, public=True, documents=documents)


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

    async def serve(request: Request, _: Names) -> None:
        fields = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store"), NOSNIFF]
        request.reply.send(200, fields, _text(places, request.headers.get("Host") or ""))

    return LandingPage("/", 0, ("GET", "HEAD"), (), serve)


def _text(places: Sequence[tuple[str, str]], host: str) -> bytes:
    width = max((len(name) for name, _ in places), default=0)
    lines = [f"{name:<{width}}  http://{host}{path}" for name, path in places]
    return "\n".join(("mcp-file-adapter serves here:", "", *lines, "")).encode()
