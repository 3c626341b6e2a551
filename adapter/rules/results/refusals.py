"""The results of calls that never reached their tool, or were ended on the way. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from adapter.rules.results import outcomes as envelopes
from adapter.rules.results.outcomes import Result, failed, spelled, tool_error_text, validation_error_text
from adapter.rules.text.events import shortened

_LONGEST_SENT = 50
_LONGEST_NAME = 100
_LONGEST_FIELD = 300
_LONGEST_LIST = 1_000


class _Missing(Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING
"""What was sent for a field that was not sent."""


class AsShown(str):
    """A value that was sent, already in the form in which it is shown."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong with a call's arguments: where, what, what was sent there, and what to send instead."""

    path: tuple[str | int, ...]
    message: str
    sent: Any = MISSING
    advice: str = ""

    @property
    def field(self) -> str:
        return (
            shortened(".".join(shortened(str(part), _LONGEST_FIELD) for part in self.path), _LONGEST_FIELD)
            or "(root)"
        )

    @property
    def shown(self) -> str:
        """The value that was sent, shortened so that the rest of the text stays easy to read."""
        return _shown(self.sent)

    @property
    def text(self) -> str:
        parts = (self.message, f"You sent: {self.shown}.", self.advice)
        return " ".join(part for part in parts if part)


def missing(path: Sequence[str | int], expected: str) -> Issue:
    """A field that has to be there; ``expected`` is its type as JSON Schema says it."""
    return Issue(tuple(path), "Required", MISSING, f"Expected type: {expected}.")


def wrong_type(path: Sequence[str | int], sent: Any, expected: str) -> Issue:
    """A field of another type than JSON Schema's ``expected``."""
    message = f"Expected {expected}, received {json_type(sent)}"
    return Issue(tuple(path), message, sent, f"Expected type: {expected}.")


def not_an_option(path: Sequence[str | int], sent: Any, options: Iterable[Any]) -> Issue:
    """A field with a value that is none of its options."""
    listed = _enumerated(_shown(option) for option in options)
    return Issue(tuple(path), "Invalid option", sent, f"Valid options: {listed}.")


def unrecognized(path: Sequence[str | int], keys: Iterable[str]) -> Issue:
    """Members of an object that knows no such."""
    listed = _enumerated(f"'{shortened(key, _LONGEST_NAME)}'" for key in keys)
    advice = f"Remove or correct unrecognized fields: {listed}. Check for typos."
    return Issue(tuple(path), f"Unrecognized key(s) in object: {listed}", MISSING, advice)


def json_type(value: Any) -> str:
    """The type of a value, by JSON Schema's word for it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return (
        "object" if isinstance(value, Mapping) else "array" if isinstance(value, list | tuple) else "unknown"
    )


# --- results --------------------------------------------------------------------------------------------------


def invalid(tool: str, issues: Iterable[Issue]) -> Result:
    """The arguments are not what the tool declares; all that is wrong is said at once."""
    found = list(issues)
    text = validation_error_text(tool, ((issue.field, issue.text) for issue in found))
    message = "; ".join(f"{issue.field}: {issue.message}" for issue in found)
    return failed(text, message=message, code="VALIDATION_ERROR")


def busy(tool: str, *, active: int, queued: int) -> Result:
    """As many calls of the tool run and wait as may."""
    message = f'Tool "{tool}" is at capacity ({active} active, {queued} queued). Retry after a short delay.'
    return _refused("SERVER_BUSY", message, recovery=envelopes.RETRY)


def rate_limited(tool: str, *, limit: int, window: float, retry_after: float) -> Result:
    """The caller has made ``limit`` calls of the tool in the last ``window`` seconds."""
    message = f'Tool "{tool}" allows {limit} calls in {spelled(window)} seconds.'
    return _refused("RATE_LIMITED", message, retry_after=retry_after)


def unauthorized(tool: str, reason: str) -> Result:
    """The tool's own check of the caller failed, for a reason that may be told."""
    return _refused("UNAUTHORIZED", f"[{tool}] {reason}", recovery=envelopes.FORBIDDEN)


def timed_out(tool: str, *, seconds: float) -> Result:
    """The tool took longer than it may."""
    return _refused("TIMEOUT", f"[{tool}] No answer within {spelled(seconds)} seconds.")


def cancelled(tool: str) -> Result:
    """The adapter itself ended the call."""
    message = f"[{tool}] Request cancelled."
    text = tool_error_text(message)
    return failed(text, message=message, code="CANCELLED")


def threw(tool: str, message: str) -> Result:
    """The tool's code raised, with a message that may be told."""
    return _refused("INTERNAL_ERROR", f"[{tool}] {message}", recovery=envelopes.RETRY)


def misshapen(message: str) -> Result:
    """The refusal for a tool that returned something that could not be presented.

    Repeating the call does not change that.
    """
    return _refused("INTERNAL_ERROR", message, recovery=envelopes.BROKEN)


def _refused(
    code: str, message: str, *, recovery: str | None = None, retry_after: float | None = None
) -> Result:
    text = tool_error_text(message, code=code, severity="error", recovery=recovery, retry_after=retry_after)
    return failed(text, message=message, code=code, retry_after=retry_after)


def _enumerated(texts: Iterable[str]) -> str:
    """All of them, or as many as fit and a sign that there are more."""
    listed: list[str] = []
    left = _LONGEST_LIST
    for text in texts:
        left -= len(text) + 2
        if left < 0:
            return ", ".join((*listed, "…"))
        listed.append(text)
    return ", ".join(listed)


def _shown(value: Any) -> str:
    if value is MISSING:
        return "(missing)"
    if isinstance(value, AsShown):
        return str(value)
    if isinstance(value, str):
        cut = value if len(value) <= _LONGEST_SENT else value[: _LONGEST_SENT - 3] + "..."
        return f"'{cut}'"
    if isinstance(value, list | tuple):
        return f"array({len(value)})"
    if isinstance(value, Mapping):
        return f"object({len(value)})"
    if isinstance(value, int) and value.bit_length() > 1024:
        return f"an integer of {value.bit_length()} bits"
    return (
        json.dumps(value) if value is None or isinstance(value, bool | int | float) else type(value).__name__
    )
