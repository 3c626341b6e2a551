"""Labels of MCP operations: few values, whatever clients and servers say."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from adapter.rules.calls.request_outcomes import UNANSWERED, RequestOutcome
from adapter.rules.metrics.catalogue import OTHER
from adapter.wire.envelope import Batch, Envelope

_METHODS = frozenset(
    {
        *("completion/complete", "elicitation/create", "initialize", "logging/setLevel", "ping"),
        *("notifications/cancelled", "notifications/initialized", "notifications/message"),
        *("notifications/progress", "notifications/roots/list_changed", "prompts/get", "prompts/list"),
        *("resources/list", "resources/read", "resources/subscribe", "resources/templates/list"),
        *("resources/unsubscribe", "roots/list", "sampling/createMessage", "server/discover"),
        *("subscriptions/listen", "tasks/cancel", "tasks/get", "tasks/list", "tasks/result", "tasks/update"),
        *("tools/call", "tools/list"),
    }
)
_VERSIONS = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"})
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
