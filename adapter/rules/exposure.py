"""What a caller may read of an exception: its first line, without credentials, connection strings and paths. Pure.

Sentences that were written for callers are passed on as they are; everything else was written for a log.
"""

from __future__ import annotations

import re
from typing import Literal

from adapter.errors import AdapterError
from adapter.rules.outcomes import ToolUserError

Expose = Literal["message", "safe"]

LONGEST = 500
HIDDEN = "[redacted]"
_READ = 10_000

_TELLING = (
    r"passw(?:or)?d|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential"
    r"|authorization|connection[_-]?string|dsn|session[_-]?id|cookie|signature"
)
_SCHEMES = (
    r"postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|sqlite|libsql|amqps?|mssql|oracle|jdbc|odbc|kafka|ldaps?"
)
_VALUE = r"""(?: "(?:[^"\\]|\\.)*"? | '(?:[^'\\]|\\.)*'? | (?:(?:bearer|basic|token)\s+)? [^\s&"']+ )"""
_BARE = (
    r"eyJ[\w-]{6,}\.[\w.-]+|(?:sk|pk|xox[abprs])[-_][\w-]{12,}|gh[opsu]_\w{12,}|glpat-[\w-]{12,}"
    r"|A[KS]IA\w{12,}"
)
_PART = r"""[^\s/"'<>|()\[\],;:]"""

_TOLD = re.compile(
    rf"""
      (?P<connection> \b(?:{_SCHEMES})(?:[+:][\w+.:-]{{1,40}})? :/{{1,3}} [^\s"'<>]* )
    | (?P<key> \b[\w.-]{{0,40}}(?:{_TELLING})[\w-]{{0,40}} ["']? \s{{0,3}} (?:=>|[=:]) \s{{0,3}} ) {_VALUE}
    | (?P<said> \b(?:{_TELLING}) \s{{1,3}} (?:is\s{{1,3}})? ) (?: "[^"]+" | '[^']+' )
    | (?P<scheme> \b(?:bearer|basic)\s+ ) [\w.~+/=-]{{8,}}
    | (?P<file> \bfile:[^\s"'<>]+ )
    | (?P<user> \b[a-z][a-z0-9+.-]{{1,20}}:// ) [^\s"'<>]+ @ (?P<host> [^\s"'<>]* )
    | (?P<url> \b[a-z][a-z0-9+.-]{{1,20}}:// [^\s?"'<>]* )
    | (?P<token> \b(?:{_BARE}) )
    | (?P<quoted> (?P<quote>["']) (?:/|~/|[A-Za-z]:[\\/]|\\\\) [^"'\n]* (?P=quote) )
    | (?P<path> (?<![\w.~/])
        (?: ~?/{_PART}+ (?:/{_PART}*)+ | [A-Za-z]:[\\/][^\s"'<>|,;]+ | \\\\[^\s"'<>|,;]+ ) )
    """,
    re.IGNORECASE | re.VERBOSE,
)


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
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    if len(line) > _READ:
        # Not in the middle of a word: half of a secret would not be known for one.
        line = line[:_READ].rpartition(" ")[0]
    return _cut(without_secrets(line))


def without_secrets(text: str) -> str:
    """The text without credentials, connection strings, the values of telling keys, and absolute paths."""
    return _TOLD.sub(_shown, text)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # An exception of somebody's code, whose __str__ is that code too.
        return ""


def _shown(found: re.Match[str]) -> str:
    if found["key"] or found["said"] or found["scheme"]:
        return (found["key"] or found["said"] or found["scheme"]) + HIDDEN
    if found["user"]:
        return f"{found['user']}{HIDDEN}@{found['host']}"
    if found["url"]:
        return found[0]
    return "[path]" if found["path"] or found["quoted"] or found["file"] else HIDDEN


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
