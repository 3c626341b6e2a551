"""The results of calls that failed before or at their tool, and the part of an exception that a caller may read. Pure.

That part is the first line, without credentials, connection strings and paths. Sentences that were written for
callers are passed on as they are; everything else was written for a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from adapter.errors import AdapterError
from adapter.rules.results import outcomes as envelopes
from adapter.rules.results.outcomes import (
    ToolUserError,
    spelled,
    tool_error_text,
    validation_error_text,
)
from adapter.rules.text.events import for_caller, shortened

_LONGEST_SENT = 50
_LONGEST_NAME = 100
_LONGEST_FIELD = 300
_LONGEST_POINTER = 1_000
_LONGEST_LIST = 1_000


class Fault(NamedTuple):
    """One thing that is wrong with a call's arguments: of a missing member the path is its own.

    ``keyword`` is the schema's, ``message`` what programs read, ``sentence`` for whoever reads of the first fault only.
    Models read the ``problem``, what was ``sent`` there, and what to send instead.
    """

    keyword: str
    path: tuple[str | int, ...]
    message: str
    sentence: str
    problem: str
    sent: str
    advice: str

    @classmethod
    def of(
        cls,
        keyword: str,
        path: Sequence[str | int],
        problem: str,
        advice: str = "",
        *,
        sent: str = "(missing)",
        why: str | None = None,
        message: str | None = None,
        field: str | None = None,
    ) -> Fault:
        """Word a fault: ``why`` is the reason in its sentence, and the message where there is no other."""
        why = f"type validation failed: {problem}" if why is None else why
        sentence = f"input validation failed: validation error for field '{field or field_of(path)}': {why}"
        return cls(keyword, tuple(path), why if message is None else message, sentence, problem, sent, advice)

    def written(self) -> list[Any]:
        """The fault as JSON, for ``read_fault``."""
        keyword, path, *words = self
        short = [shortened(part, _LONGEST_POINTER) if isinstance(part, str) else part for part in path]
        return [keyword, short, *words]

    @property
    def field(self) -> str:
        """The name of the field, for sentences."""
        return field_of(self.path)

    @property
    def text(self) -> str:
        """The part of it that a model reads."""
        return " ".join(filter(None, (self.problem, f"You sent: {self.sent}.", self.advice)))

    @property
    def error(self) -> dict[str, str]:
        """The fault as the HTTP API has it: ``path`` (a JSON Pointer), ``message`` and ``keyword``."""
        parts = (shortened(str(part), _LONGEST_POINTER) for part in self.path)
        pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
        return {
            "path": shortened(pointer, _LONGEST_POINTER),
            "message": self.message,
            "keyword": self.keyword,
        }


def read_fault(written: Sequence[Any]) -> Fault:
    """The fault that was written."""
    keyword, path, *words = written
    return Fault(keyword, tuple(path), *words)


def field_of(path: Sequence[str | int]) -> str:
    """The name of the field at a path, for sentences."""
    return _dotted(path) or "(root)"


def _dotted(path: Sequence[str | int]) -> str:
    parts = (shortened(str(part), _LONGEST_FIELD) for part in path)
    return shortened(".".join(parts), _LONGEST_FIELD)


def missing(path: Sequence[str | int], expected: str, message: str | None = None) -> Fault:
    """A field that has to be there; ``expected`` is its type as JSON Schema says it."""
    why = f"required input '{field_of(path)}' is missing"
    return Fault.of("required", path, "Required", f"Expected type: {expected}.", why=why, message=message)


def wrong_type(
    path: Sequence[str | int], sent: Any, expected: str, keyword: str = "type", message: str | None = None
) -> Fault:
    """A field of another type than JSON Schema's ``expected``."""
    problem = f"Expected {expected}, received {json_type(sent)}"
    return Fault.of(keyword, path, problem, f"Expected type: {expected}.", sent=shown(sent), message=message)


def not_an_option(
    path: Sequence[str | int], sent: Any, options: Iterable[Any], keyword: str = "enum", **words: str
) -> Fault:
    """A field with a value that is none of its options; ``words`` as ``Fault.of`` has them."""
    advice = f"Valid options: {_enumerated(map(shown, options))}."
    return Fault.of(keyword, path, "Invalid option", advice, sent=shown(sent), **words)


def unrecognized(path: Sequence[str | int], names: Sequence[str]) -> Fault:
    """Members of an object that knows no such."""
    listed = _enumerated(f"'{shortened(name, _LONGEST_NAME)}'" for name in names)
    first = _dotted((*path, names[0]))
    quoted = ", ".join(f"'{shortened(name, _LONGEST_FIELD)}'" for name in names[: _LONGEST_FIELD // 4])
    verb = "was" if len(names) == 1 else "were"
    return Fault.of(
        "additionalProperties",
        path,
        f"Unrecognized key(s) in object: {listed}",
        f"Remove or correct unrecognized fields: {listed}. Check for typos.",
        why=f"unknown input field '{first}'",
        message=one_line(f"Additional properties are not allowed ({quoted} {verb} unexpected)"),
        field=first,
    )


def uncheckable(sentence: str) -> Fault:
    """Arguments that nobody can judge, and why not."""
    return Fault.of("schema", (), sentence, why=sentence)


def one_line(text: str) -> str:
    """The first line of a text for programs, cut."""
    return shortened(text.partition("\n")[0], _LONGEST_FIELD)


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


class RefusalWords(NamedTuple):
    """A call that is refused: the bare ``sentence``, and the ``text`` in its place. ``retry_after`` is in seconds."""

    sentence: str
    text: str
    retry_after: float | None = None


def invalid(tool: str, faults: Sequence[Fault], sentence: str | None = None) -> RefusalWords:
    """Return the refusal of arguments that do not fit the tool's declaration, with all faults at once."""
    text = validation_error_text(tool, ((fault.field, fault.text) for fault in faults))
    return RefusalWords(sentence or faults[0].sentence, text)


def busy(tool: str, *, active: int, queued: int) -> RefusalWords:
    """Return the refusal of a call for which there is no place."""
    message = f'Tool "{tool}" is at capacity ({active} active, {queued} queued). Retry after a short delay.'
    return _refused("SERVER_BUSY", message, recovery=envelopes.RETRY)


def rate_limited(tool: str, *, limit: int, window: float, retry_after: float) -> RefusalWords:
    """Return the refusal of a caller that has made ``limit`` calls of the tool in the last ``window`` seconds."""
    message = f'Tool "{tool}" allows {limit} calls in {spelled(window)} seconds.'
    return _refused("RATE_LIMITED", message, retry_after=retry_after)


def timed_out(tool: str, *, seconds: float) -> RefusalWords:
    """The tool took longer than it may."""
    return _refused("TIMEOUT", f"[{tool}] No answer within {spelled(seconds)} seconds.")


def misshapen(message: str) -> RefusalWords:
    """The refusal for a tool that returned something that could not be presented.

    Repeating the call does not change that.
    """
    return _refused("INTERNAL_ERROR", message, recovery=envelopes.BROKEN)


def _refused(
    code: str, message: str, *, recovery: str | None = None, retry_after: float | None = None
) -> RefusalWords:
    text = tool_error_text(message, code=code, severity="error", recovery=recovery, retry_after=retry_after)
    return RefusalWords(message, text, retry_after)


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


def shown(value: Any) -> str:
    """A value that was sent, shortened so that the rest of the text stays easy to read."""
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
