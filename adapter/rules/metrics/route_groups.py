"""The groups of routes, by which requests are counted: their paths are never labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from adapter.rules.metrics.catalogue import OTHER

MCP, UPLOAD, ARTIFACT, CONSOLE, API = "mcp", "upload", "artifact", "console", "api"

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RouteGroup(NamedTuple):
    """``name`` is mcp, upload, artifact, health, api, console, well_known, metrics or other; ``server`` is an id of
    the settings, or empty."""

    name: str
    server: str = ""


class RouteGroups:
    """``exact`` are groups of whole paths, ``prefixes`` those of all paths below; longer ones come first.

    ``servers`` are the ids that may stand behind a prefix.
    """

    def __init__(
        self, exact: Mapping[str, RouteGroup], prefixes: Mapping[str, str], servers: frozenset[str]
    ) -> None:
        self.exact = exact
        self._prefixes = tuple(sorted(prefixes.items(), key=lambda each: -len(each[0])))
        self._servers = servers

    def __repr__(self) -> str:
        return f"<RouteGroups: {len(self.exact)} paths, {len(self._prefixes)} prefixes>"

    def of(self, path: str) -> RouteGroup:
        """The group of a path."""
        found = self.exact.get(path)
        if found is None:
            found = self.exact.get(path.rstrip("/")) or self._below(path)
        return found

    def _below(self, path: str) -> RouteGroup:
        for prefix, name in self._prefixes:
            if path == prefix or path.startswith(f"{prefix}/"):
                first, _, behind = path[len(prefix) + 1 :].partition("/")
                server = first if first in self._servers else ""
                # The tools of a server stand below its page.
                return RouteGroup(API if name == CONSOLE and server and behind else name, server)
        return RouteGroup(OTHER)


def method_label(method: str) -> str:
    """The label of an HTTP method; a client may send any."""
    return method if method in METHODS else OTHER


def status_class(status: int | None) -> str:
    """``2xx`` and so on; ``none`` where no answer began."""
    return "none" if status is None else f"{status // 100}xx"
