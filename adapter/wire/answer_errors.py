"""Errors in answers, in the words of OpenTelemetry's conventions for MCP ("error.type").

An answer is looked into without parsing where its bytes hold no sign of an error, as those of most calls.
"""

from __future__ import annotations

from adapter.errors import BadJson, MessageTooLong
from adapter.wire.envelope import parse, read_response
from adapter.wire.sse import SseReader

LOOKED_INTO = 64 << 10
"""Bytes of an answer, or of the end of a stream, that are looked into. Answers with errors are short."""

TOOL_ERROR = "tool_error"
OTHER = "_OTHER"
"""An error whose code is no integer that JSON-RPC knows."""

_TOOL_ERROR_KEY = b'"isError"'
_BETWEEN = 16
"""Bytes behind a key that are looked into; more white space stands before no value that is meant to be read."""


def error_in(data: bytes) -> str | None:
    """The error that a JSON-RPC response tells, or the first one of a batch: its code, or TOOL_ERROR for a tool's own.

    None where there is none, or where ``data`` is no response or longer than LOOKED_INTO.
    """
    if len(data) > LOOKED_INTO or not (b'"error"' in data or _says_true(data)):
        return None
    try:
        message = parse(data)
    except BadJson:
        return None
    found = (_error_of(each) for each in (message if isinstance(message, list) else (message,)))
    return next((each for each in found if each is not None), None)


def error_in_events(data: bytes) -> str | None:
    """As ``error_in``, of the last response among these events: "" for one without an error, None where there is no
    response. The first event may be cut.
    """
    reader = SseReader(LOOKED_INTO, skip=True)
    try:
        events = [event.data for event in reader.feed(data) if event.data]
    except MessageTooLong:
        return None
    for event in reversed(events):
        if (response := read_response(event)) is not None:
            return _error_of(response.message) or ""
    return None


def _says_true(data: bytes) -> bool:
    """Tell whether any ``isError`` of this text is true."""
    at = data.find(_TOOL_ERROR_KEY)
    while at >= 0:
        at += len(_TOOL_ERROR_KEY)
        if data[at : at + _BETWEEN].lstrip(b" \t\r\n:").startswith(b"true"):
            return True
        at = data.find(_TOOL_ERROR_KEY, at)
    return False


def _error_of(message: object) -> str | None:
    if not isinstance(message, dict) or "method" in message:
        return None
    error = message.get("error")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        return str(code) if type(code) is int and abs(code) < 1 << 31 else OTHER
    result = message.get("result")
    return TOOL_ERROR if isinstance(result, dict) and result.get("isError") is True else None
