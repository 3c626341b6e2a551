"""Labels of MCP operations: few values, whatever clients and servers say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from adapter.errors import AdapterError, BadJson
from adapter.rules.calls.audit_record import outcome_of
from adapter.rules.metrics.catalogue import OTHER
from adapter.wire.envelope import Batch, Envelope, parse
from adapter.wire.sse import SseReader

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

FAILING = b'rror"'
"""A part of every answer that tells an error: the end of the names ``error`` and ``isError``."""

_MAY_FAIL = re.compile(rb'"error"|"isError"[ \t\r\n]*:[ \t\r\n]*true')
_RESULT = b'"result"'

LOOKED_INTO = 1 << 20
"""Bytes of an answer that are looked into; a larger one counts as accepted."""

LONGEST_KEPT = 256
"""Characters of the others' methods and names: more than any label has, so what is cut is not known either."""

LINES_LOOKED_INTO = 8192
"""Line ends among events that are looked into at once: each event takes a hundred times what its bytes would in a
body, and the relay itself reads most streams without looking at each of theirs.
"""


class OperationOutcome(NamedTuple):
    """The end of an operation. ``label`` is that of tool calls; ``error_type`` and ``status_code`` are those of
    OpenTelemetry's conventions, empty where nothing failed. ``has_result`` tells that a result was seen.
    """

    label: str
    error_type: str = ""
    status_code: str = ""
    has_result: bool = False


OK = OperationOutcome("ok", has_result=True)
ACCEPTED = OperationOutcome("ok")
"""No failure, as far as the answer can be read: it has no body, or one that is compressed or too long."""

TOOL_ERROR = OperationOutcome("tool_error", "tool_error")
CLIENT_GONE = OperationOutcome("client_gone", "cancelled")
UNANSWERED = OperationOutcome("unanswered", "unanswered")
"""The stream ended, and its client may ask for the answer on another one."""


def outcome_of_error(error: type[AdapterError]) -> OperationOutcome:
    """The outcome of what the adapter itself refused, or could not do."""
    return OperationOutcome(error.code, str(error.rpc), str(error.rpc))


def outcome_of_status(status: int) -> OperationOutcome:
    """The outcome of an answer over HTTP that holds no JSON-RPC response."""
    if status < 400:
        return ACCEPTED
    # A server may answer with any number of three digits.
    return OperationOutcome(f"http_{status // 100}xx", str(status) if status in _STATUSES else OTHER)


def combined(outcomes: Iterable[OperationOutcome | None]) -> OperationOutcome | None:
    """The outcome of several messages: a failure among them, else a result; None where no message tells any."""
    told = [each for each in outcomes if each is not None]
    return next((each for each in told if each.error_type), OK if OK in told else ACCEPTED if told else None)


def failed_in(chunk: bytes) -> OperationOutcome | None:
    """The failure that a chunk of an answer tells, a whole body or whole events; None if it tells none.

    A failure that is cut in two is not seen, as the chunks of most answers are not.
    """
    if len(chunk) > LOOKED_INTO or _MAY_FAIL.search(chunk) is None:
        return None
    found = combined(map(outcome_in, _messages_in(chunk)))
    return found if found is not None and found.error_type else None


def has_result(chunk: bytes) -> bool:
    """Tell whether a chunk of an answer in which no failure was seen holds a result, as far as a glance tells."""
    # Not ``in``, which first takes bytes for a number: the error that it swallows costs more than the search.
    return chunk.find(_RESULT) >= 0


def outcome_of_body(status: int, body: bytes) -> OperationOutcome:
    """The outcome of an answer that is there as a whole, be it one message or events."""
    failure = failed_in(body)
    if failure is not None:
        return failure
    is_read = len(body) <= LOOKED_INTO and not has_many_lines(body)
    return OK if is_read and status < 400 and has_result(body) else outcome_of_status(status)


def _messages_in(chunk: bytes) -> list[bytes]:
    """The messages of a whole body or of whole events; none of more events than are looked into."""
    if chunk.lstrip()[:1] in (b"{", b"["):
        return [chunk]
    return data_of_events(chunk)


def data_of_events(events: bytes) -> list[bytes]:
    """The data of whole events; none of more lines than are looked into."""
    return [] if has_many_lines(events) else data_read(SseReader(LOOKED_INTO, skip=True), events)


def data_read(reader: SseReader, chunk: bytes) -> list[bytes]:
    """The data of the events that ``chunk`` completes."""
    return [event.data for event in reader.feed(chunk) if event.data]


def has_many_lines(chunk: bytes) -> bool:
    """Tell whether events have so many lines that they are not looked into."""
    return chunk.count(b"\n") + chunk.count(b"\r") > LINES_LOOKED_INTO


def outcome_in(data: bytes) -> OperationOutcome | None:
    """The outcome that a message, or the only response of a batch, tells; None if it is no response.

    Most answers are results without an error, which is seen without reading them.
    """
    if len(data) > LOOKED_INTO:
        return ACCEPTED
    if _MAY_FAIL.search(data) is None:
        return OK if has_result(data) else None
    try:
        message = parse(data)
    except BadJson:
        return None
    messages = message if isinstance(message, list) else [message]
    return combined(
        _of_message(each) for each in messages if isinstance(each, dict) and each.keys() & {"result", "error"}
    )


def _of_message(message: dict[str, object]) -> OperationOutcome:
    kind, code = outcome_of(message)
    if kind == "tool_error":
        return TOOL_ERROR
    if kind == "error":
        shown = str(code) if code in _CODES else OTHER
        return OperationOutcome("rpc_error", shown, shown)
    return OK


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
