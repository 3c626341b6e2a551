"""Families of paths beside the mounts: what one is, and which names a request's path holds behind its prefix."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from adapter.edge.http.request import Request
from adapter.wire.signed_urls import parameters

Names = tuple[str, ...]
"""The parts of a path behind a branch's prefix, each decoded by itself, so one may hold a slash."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Serves the paths that have exactly ``depth`` names behind ``prefix``.

    ``serve`` answers through ``request.reply``, with the given fields besides its own. It raises AdapterError,
    and ClientGone. ``exposed`` are fields of its answers that a page at an allowed origin may read. ``public``: what it
    serves is everybody's, so a request is not refused for its Origin.
    """

    prefix: str
    depth: int
    methods: tuple[str, ...]
    exposed: tuple[str, ...]
    serve: Callable[[Request, Names, list[tuple[str, str]]], Awaitable[object]]
    public: bool = field(default=False, kw_only=True)

    def names(self, request: Request) -> Names | None:
        """The names behind the prefix in the request's path; None if the request is not this branch's."""
        names = names_behind(self.prefix, request)
        return names if names is not None and len(names) == self.depth else None


def names_behind(prefix: str, request: Request) -> Names | None:
    """All names behind a prefix in a request's path; None where it does not begin so, or one of them is empty."""
    # Most requests ask several branches, most of them in vain.
    prefix = prefix.rstrip("/")
    if not request.path.startswith(prefix) or request.path[len(prefix) : len(prefix) + 1] != "/":
        return None
    behind = _path(request.target).split("/")[prefix.count("/") + 1 :]
    if not all(behind):
        return None
    try:
        return tuple(_decoded(name) for name in behind)
    except UnicodeDecodeError:
        return None


def query_of(request: Request) -> Mapping[str, str]:
    """The parameters of the request's query, without those that stand there twice."""
    query = request.target.partition("?")[2]
    try:
        return parameters(query) if query else {}
    except ValueError:
        return {}


def _path(target: str) -> str:
    """The path of a target in origin or absolute form, still encoded."""
    path = target.partition("?")[0]
    return path if path.startswith("/") else "/" + path.partition("://")[2].partition("/")[2]


def _decoded(name: str) -> str:
    if "%" not in name and name.isascii():
        return name
    # A target is bytes, read as Latin-1; and a name may hold whatever its sender called the file.
    return unquote_to_bytes(name.encode("latin-1")).decode("utf-8", "surrogatepass")
