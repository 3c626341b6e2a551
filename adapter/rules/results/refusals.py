"""The results of calls that failed before or at their tool, and the part of an exception that a caller may read. Pure.

That part is the first line, without credentials, connection strings and paths. Sentences that were written for
callers are passed on as they are; everything else was written for a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from adapter.errors import AdapterError
from adapter.rules.results import outcomes as envelopes
from adapter.rules.results.outcomes import (
    Result,
    ToolUserError,
    failed,
    spelled,
    tool_error_text,
    validation_error_text,
)
from adapter.rules.text.events import for_caller, shortened

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
    """Return the refusal of arguments that do not fit the tool's declaration, with all issues at once."""
    found = list(issues)
    text = validation_error_text(tool, ((issue.field, issue.text) for issue in found))
    message = "; ".join(f"{issue.field}: {issue.message}" for issue in found)
    return failed(text, message)


def busy(tool: str, *, active: int, queued: int) -> Result:
    """Return the refusal of a call for which there is no place."""
    message = f'Tool "{tool}" is at capacity ({active} active, {queued} queued). Retry after a short delay.'
    return _refused("SERVER_BUSY", message, recovery=envelopes.RETRY)


def rate_limited(tool: str, *, limit: int, window: float, retry_after: float) -> Result:
    """Return the refusal of a caller that has made ``limit`` calls of the tool in the last ``window`` seconds."""
    message = f'Tool "{tool}" allows {limit} calls in {spelled(window)} seconds.'
    return _refused("RATE_LIMITED", message, retry_after=retry_after)


def timed_out(tool: str, *, seconds: float) -> Result:
    """The tool took longer than it may."""
    return _refused("TIMEOUT", f"[{tool}] No answer within {spelled(seconds)} seconds.")


def misshapen(message: str) -> Result:
    """The refusal for a tool that returned something that could not be presented.

    Repeating the call does not change that.
    """
    return _refused("INTERNAL_ERROR", message, recovery=envelopes.BROKEN)


def _refused(
    code: str, message: str, *, recovery: str | None = None, retry_after: float | None = None
) -> Result:
    text = tool_error_text(message, code=code, severity="error", recovery=recovery, retry_after=retry_after)
    return failed(text, message, retry_after=retry_after)


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


# --- exceptions --------------------------------------------------------------------------------------------


Expose = Literal["message", "safe"]

LONGEST = 500
_READ = 10_000


def exposed(error: BaseException, *, expose: Expose = "message", trace_id: str | None = None) -> str:
    """Return the text of an exception that a caller may read, at most LONGEST characters.

    The sentence of a ToolUserError and of an AdapterError is verbatim in either mode. ``safe`` says nothing of any
    other, except where its trace is found.
    """
    if isinstance(error, ToolUserError | AdapterError):
        return str(error)
    if expose == "safe":
        return "The call failed." if not trace_id else f"The call failed. Trace: {trace_id}"
    return public_line(_message(error)) or type(error).__name__


def public_line(message: str) -> str:
    """Return the first line of a message without credentials, connection strings and paths, at most LONGEST
    characters.
    """
    # Only so much is split into lines, for a message may be as long as whatever broke.
    line = next(iter(message.lstrip()[: _READ + 1].splitlines()), "").strip()
    if len(line) > _READ:
        # Not in the middle of a word: half of a secret would not be known for one.
        line = line[:_READ].rpartition(" ")[0]
    return _cut(for_caller(line))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # An exception of somebody's code, whose __str__ is that code too.
        return ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
