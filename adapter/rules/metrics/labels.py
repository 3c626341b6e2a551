"""Labels of MCP operations, of routes and of tools: few values, whatever clients and servers say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from adapter.errors import BadJson
from adapter.rules.calls.request_outcomes import OK, UNANSWERED, RequestOutcome, data_of_events
from adapter.rules.metrics.catalogue import OTHER
from adapter.wire.envelope import Batch, Envelope, list_at, parse, value_at
from adapter.wire.eras import LEGACY_VERSIONS, MODERN_VERSIONS
from adapter.wire.names import METHODS as METHODS_OF_MCP

_METHODS = (METHODS_OF_MCP.plain - {"notifications/tasks/status"}) | {
    *("elicitation/create", "notifications/message", "roots/list", "sampling/createMessage"),
}
_VERSIONS = frozenset((*LEGACY_VERSIONS, *MODERN_VERSIONS))
_CODES = frozenset(
    {-32700, -32600, -32601, -32602, -32603, -32042, -32001, -32002, -32003, -32004, *range(-32024, -32009)}
)
"""Codes of JSON-RPC, of MCP and of the adapter."""

_STATUSES = frozenset(map(int, HTTPStatus))

LONGEST_KEPT = 256
"""Characters of the others' methods and names: more than any label has, so what is cut is not known either."""


class OperationLabels(NamedTuple):
    """The labels of an end. ``outcome`` is that of tool calls; ``error_type`` and ``status_code`` are those of
    OpenTelemetry's conventions, empty where nothing failed.
    """

    outcome: str
    error_type: str = ""
    status_code: str = ""


_NOT_FAILED = OperationLabels("ok")
_LABELS = {
    "tool_error": OperationLabels("tool_error", "tool_error"),
    "client_gone": OperationLabels("client_gone", "cancelled"),
    "deferred": OperationLabels("unanswered", "unanswered"),
}


def labels_of(outcome: RequestOutcome) -> OperationLabels:
    """The labels of what a client asked for."""
    kind, code = outcome
    if isinstance(code, type):
        return OperationLabels(code.code, str(code.rpc), str(code.rpc))
    if kind == "rpc_error":
        shown = str(code) if code in _CODES else OTHER
        return OperationLabels(kind, shown, shown)
    if kind == "http" and code is not None:
        # A server may answer with any number of three digits.
        return OperationLabels(f"http_{code // 100}xx", str(code) if code in _STATUSES else OTHER)
    return _LABELS.get(kind, _NOT_FAILED)


def labels_upstream(outcome: RequestOutcome) -> OperationLabels:
    """The labels of what the adapter asked for, which knows its own failures by their names."""
    if isinstance(outcome.code, type):
        return OperationLabels(outcome.code.code, outcome.code.code)
    return _NOT_FAILED if outcome == UNANSWERED else labels_of(outcome)


def named_in(message: Envelope | Batch) -> tuple[tuple[str, str | None], ...]:
    """Method and name of each message in a request, cut to what labels may need; "" and None for a response."""
    members = message.members if isinstance(message, Batch) else (message,)
    return tuple(
        (each.method[:LONGEST_KEPT], None if each.name is None else each.name[:LONGEST_KEPT])
        for each in members
    )


def method_name(method: str) -> str:
    """The label of an MCP method; of another one the fallback of OpenTelemetry's conventions."""
    return method if method in _METHODS else "_OTHER"


def known_version(version: str | None) -> str | None:
    """A protocol version, None for one that is not known: a client may name any, of any length."""
    return version if version in _VERSIONS else None


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


MOST_NAMES = 128
"""Names of one server's tools."""

LONGEST_NAME = 128
"""Characters of a name."""

LONGEST_LIST = 256 << 10
"""Bytes of a list of tools from which names are learned."""


class ToolNames:
    """The names of one server's tools, beginning with those that the settings ``configured``.

    A client may call a tool by any name, so a name counts as one only when its server has listed it, or has answered a
    call of it with a result that is no error.
    """

    def __init__(self, configured: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._unread: tuple[bytes, bool] | None = None
        self._learn(configured)

    def __repr__(self) -> str:
        return f"<ToolNames: {len(self._known)}>"

    def _learn(self, names: Iterable[str]) -> None:
        for name in names:
            if len(self._known) >= MOST_NAMES:
                return
            if 0 < len(name) <= LONGEST_NAME:
                self._known.add(name)

    def listed(self, body: bytes, *, streams: bool) -> None:
        """Keep a list, which is read when a tool is called that is not known."""
        if len(body) <= LONGEST_LIST and len(self._known) < MOST_NAMES:
            self._unread = (body, streams)

    def label(self, name: str | None, outcome: RequestOutcome) -> str:
        """The label of a tool that was called, with that outcome."""
        if name is None:
            return OTHER
        if name not in self._known:
            if outcome == OK:
                self._learn((name,))
            elif self._unread is not None:
                body, streams = self._unread
                self._unread = None
                for data in data_of_events(body) if streams else [body]:
                    self._learn(names_in_list(data))
        return name if name in self._known else OTHER


def names_in_list(response: bytes) -> list[str]:
    """The names of the tools in a response to ``tools/list``; none in anything else."""
    try:
        names = [value_at(each, "name") for each in list_at(parse(response), "result", "tools")]
    except BadJson:
        return []
    return [name for name in names if isinstance(name, str)]
