"""Messages that may be sent to an upstream twice, because twice does no more than once. Pure."""

from __future__ import annotations

from collections.abc import Callable

from adapter.errors import BadJson
from adapter.wire.envelope import Batch, Envelope, Kind, parse

READING = frozenset(
    {
        "completion/complete",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "subscriptions/listen",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tools/list",
    }
)
"""Requests that change nothing, of all protocol versions. ``initialize`` is none of them: it opens a session."""

TELLING = frozenset(
    {
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/progress",
        "notifications/roots/list_changed",
    }
)
"""Notifications of the protocol's own that say the same when they come twice."""

ToolRepeatable = Callable[[str | None], bool]
"""Tells of a tool's name whether calling it twice does no more than calling it once."""


def is_repeatable(message: Envelope | Batch, tool: ToolRepeatable | None) -> bool:
    """Tell whether ``message`` may be sent twice; a batch may where all its members may.

    Without ``tool`` nothing is known of any tool, so no call is repeatable.
    """
    if isinstance(message, Batch):
        return all(is_repeatable(member, tool) for member in message.members)
    if message.kind is Kind.NOTIFICATION:
        return message.method in TELLING
    if message.method == "tools/call":
        return tool is not None and tool(message.name)
    return message.kind is Kind.REQUEST and message.method in READING


def says_repeatable(definition: bytes) -> bool:
    """Tell whether a tool's definition (JSON) has the annotation ``readOnlyHint`` or ``idempotentHint`` (MCP 2025-03-26
    and later, "ToolAnnotations").
    """
    try:
        value = parse(definition)
    except BadJson:
        return False
    hints = value.get("annotations") if isinstance(value, dict) else None
    if not isinstance(hints, dict):
        return False
    return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True
