"""The part of an exception that a caller may read. Pure.

It is the first line, without credentials, connection strings and paths. Sentences that were written for callers
are passed on as they are; everything else was written for a log.
"""

from __future__ import annotations

from typing import Literal

from adapter.errors import AdapterError
from adapter.rules.results.outcomes import ToolUserError
from adapter.rules.text.secrets import for_caller

Expose = Literal["message", "safe"]

LONGEST = 500
_READ = 10_000


def exposed(error: BaseException, *, expose: Expose = "message", trace_id: str | None = None) -> str:
    """The text of an exception that a caller may read, at most LONGEST characters of it.

    A ToolUserError's is verbatim, and a failure of the catalogue's its own sentence, in either mode. ``safe`` says
    nothing of any other, but where its trace is found.
    """
    if isinstance(error, ToolUserError | AdapterError):
        return str(error)
    if expose == "safe":
        return "The call failed." if not trace_id else f"The call failed. Trace: {trace_id}"
    return told(_message(error)) or type(error).__name__


def told(message: str) -> str:
    """The first line of a message without what is nobody's business, at most LONGEST characters of it."""
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
