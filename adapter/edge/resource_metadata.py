"""The metadata of the protected resources (RFC 9728): open to everybody, for a client reads it to learn to sign in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from adapter.edge.http.request import Branch, Names, Request
from adapter.rules.access.host_and_origin_check import NOSNIFF

MAX_AGE = 300
"""Seconds that a client may keep the metadata."""

_METHODS = ("GET", "HEAD", "OPTIONS")
_OPEN = [
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", ", ".join(_METHODS)),
    # A literal * does not cover Authorization, and older browsers do not know it.
    ("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, MCP-Protocol-Version, *"),
    ("Access-Control-Max-Age", str(MAX_AGE)),
]


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

    async def serve(request: Request, names: Names, _: list[tuple[str, str]]) -> None:
        (path,) = names
        if request.method == "OPTIONS":
            request.reply.send(204, [("Allow", ", ".join(_METHODS)), *_OPEN])
            return
        document = documents[path]
        if not isinstance(document, bytes):
            document = await document()
        caching = ("Cache-Control", f"public, max-age={MAX_AGE}")
        fields = [("Content-Type", "application/json"), caching, NOSNIFF, *_OPEN]
        request.reply.send(200, fields, document)

    return MetadataBranch("/", 0, _METHODS, (), serve, public=True, documents=documents)
