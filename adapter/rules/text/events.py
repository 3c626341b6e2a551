"""Secrets in text, and events of the log as they may be written: bounded, valid Unicode, without secrets. Pure.

Names, methods and messages come from strangers, in any length, depth and number; an event has one budget for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TELLING = (
    r"passw(?:or)?d|passwd|passphrase|pwd|secret|token|api[ _-]?key|access[ _-]?key|private[ _-]?key|credential"
    r"|authorization|connection[ _-]?string|dsn|session[ _-]?id|cookie|signature"
)
_SCHEMES = (
    r"postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|sqlite|libsql|amqps?|mssql|oracle|jdbc|odbc|kafka|ldaps?"
)
_VALUE = (
    r"""(?: "(?:[^"\\]++|\\.)*+"? | '(?:[^'\\]++|\\.)*+'? | (?:(?:bearer|basic|token)\s{1,3})? [^\s&"']++ )"""
)
_BARE = (
    r"eyJ[\w-]{6,}+\.[\w.-]++|(?:sk|pk|xox[abprs])[-_][\w-]{12,}+|gh[opsu]_\w{12,}+|glpat-[\w-]{12,}+"
    r"|A[KS]IA\w{12,}+"
)
_PART = r"""[^\s/"'<>|()\[\],;:]"""

_CONNECTION = rf"""
  (?P<connection> \b(?:{_SCHEMES})(?:[+:][\w+.:-]{{1,40}})? :/{{1,3}} [^\s"'<>]*+ )
"""
# What stands before the telling word stays anyway, so the search begins at the word itself.
_CREDENTIALS = rf"""
  (?P<key> (?:{_TELLING})[\w-]{{0,40}}+ ["']?+ \s{{0,3}}+ (?:=>|[=:]) \s{{0,3}}+ ) {_VALUE}
| (?P<said> \b(?:{_TELLING}) \s{{1,3}}+ (?:is\s{{1,3}}+)? ) (?: "[^"]++" | '[^']++' )
| (?P<scheme> \b(?:bearer|basic)\s{{1,3}} ) [^\s,;"']{{6,}}+
| (?P<token> \b(?:{_BARE}) )
"""
_URL = r"""(?P<url> (?<=[a-z0-9+.-]):// ) (?P<rest> [^\s"'<>]*+ )"""
_HOST_AND_PATH = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]++)(?P<port>:[0-9]{1,5})?/")
_FILE = r"""(?P<file> \bfile:[^\s"'<>]++ )"""
_PATHS = rf"""
  (?P<quoted> (?P<quote>["']) (?:/|~/|[A-Za-z]:[\\/]|\\\\) [^"'\n]*+ (?P=quote) )
| (?P<path> (?<![\w.~/])
    (?: ~?/{_PART}++ (?:/{_PART}*+)++ | [A-Za-z]:[\\/][^\s"'<>|,;]++ | \\\\[^\s"'<>|,;]++ ) )
"""


def _any_of(*kinds: str) -> re.Pattern[str]:
    return re.compile("|".join(kinds), re.IGNORECASE | re.VERBOSE)


_KEY = re.compile(_TELLING, re.IGNORECASE)


class Redactor:
    """Called with a text, returns it with ``hidden`` in place of each credential. With ``places`` connection strings
    are credentials too, and absolute paths are ``[path]``.
    """

    def __init__(self, hidden: str, *, places: bool = False) -> None:
        self._hidden = hidden
        more = (_PATHS,) if places else ()
        self._within_url = _any_of(_CREDENTIALS, *more)
        self._anywhere = (
            _any_of(_CONNECTION, _CREDENTIALS, _FILE, _URL, _PATHS) if places else _any_of(_CREDENTIALS, _URL)
        )

    def __repr__(self) -> str:
        return f"<Redactor: {self._hidden}>"

    def __call__(self, text: str) -> str:
        return self._anywhere.sub(self._shown, text)

    def _shown(self, found: re.Match[str]) -> str:
        kind = found.lastgroup
        if kind == "rest":
            return found["url"] + self._without_user(found["rest"])
        if kind in ("key", "said", "scheme"):
            return found[kind] + self._hidden
        return "[path]" if kind in ("path", "quoted", "file") else self._hidden

    def _without_user(self, rest: str) -> str:
        """Return the text behind ``://`` with its user hidden.

        The last ``@`` ends the user, wherever it stands, because passwords hold all characters. But a host and a
        path may hold one as well: ``registry.example/@scope/name``.
        """
        user, at, host = ("", "", rest) if _is_host_and_path(rest) else rest.rpartition("@")
        place, mark, query = host.partition("?")
        hidden = self._hidden if user else ""
        return hidden + at + place + mark + self._within_url.sub(self._shown, query)


def _is_host_and_path(rest: str) -> bool:
    """Tell whether no user stands behind ``://``. What looks like a port may be a password's beginning."""
    found = _HOST_AND_PATH.match(rest)
    return found is not None and (found["port"] is None or "@" not in rest.replace("/@", "/"))


for_log = Redactor("***")
"""For the log: without credentials."""

for_caller = Redactor("[redacted]", places=True)
"""For whoever called: without credentials, connection strings and absolute paths."""


def is_telling(key: str) -> bool:
    """Tell whether the value under such a key is a secret, whatever the value is."""
    return _KEY.search(key) is not None


LONGEST_TEXT = 500
"""Characters of one text."""

LONGEST_TRACEBACK = 4_000
"""Characters of a traceback, whose end says most."""

LONGEST_EVENT = 8_000
"""Characters of all texts and names of one event together."""

LONGEST_NAME = 100
MOST_MEMBERS = 50
DEEPEST = 5

_READ = 2
"""Times as much is read as may be shown, so that no secret is cut in two where the text ends."""

_MORE = "…"
_MASK = "***"
_SMALL = range(-(2**63), 2**63)
_NESTED = (Mapping, list, tuple, set, frozenset)


def writable(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event with nothing in it that JSON cannot say, that is a secret, or that is beyond the bounds.

    Values under telling names are masked at any depth; what is no plain value is its ``str``, an exception its
    ``repr``. Nested values come last, so that they leave room for everything else.
    """
    writing = _Writing()
    nested = {key: value for key, value in event.items() if isinstance(value, _NESTED)}
    plain = {key: value for key, value in event.items() if key not in nested}
    return {**writing.members(plain), **writing.members(nested)}


def encodable(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 cannot hold, as JSON's escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text, at most so many characters; the last one tells that there was more."""
    return text if len(text) <= most else text[: most - 1] + _MORE


class _Writing:
    """One event while it is made writable."""

    def __init__(self) -> None:
        self._left = LONGEST_EVENT

    def members(self, members: Mapping[Any, Any], depth: int = 0) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for key, value in members.items():
            if len(written) >= MOST_MEMBERS or self._left <= 0:
                written[_MORE] = f"{len(members) - len(written)} more"
                break
            name = self._text(key if isinstance(key, str) else _said(key), LONGEST_NAME)
            written[name] = self._under(name, value, depth)
        return written

    def _under(self, name: str, value: Any, depth: int) -> Any:
        if is_telling(name):
            return value if value is None or isinstance(value, bool) else _MASK
        return self._value(name, value, depth)

    def _value(self, name: str, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._traceback(value) if name == "exception" else self._text(value, LONGEST_TEXT)
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return value if value in _SMALL else f"an integer of {value.bit_length()} bits"
        if depth >= DEEPEST:
            return _MORE
        if isinstance(value, Mapping):
            return self.members(value, depth + 1)
        if isinstance(value, list | tuple | set | frozenset):
            return self._items(name, value, depth + 1)
        return self._text(_said(value), LONGEST_TEXT)

    def _items(self, name: str, items: Any, depth: int) -> list[Any]:
        written: list[Any] = []
        for item in items:
            if len(written) >= MOST_MEMBERS or self._left <= 0:
                return [*written, f"{len(items) - len(written)} more"]
            written.append(self._value(name, item, depth))
        return written

    def _text(self, text: str, most: int) -> str:
        most = max(1, min(most, self._left))
        shown = shortened(encodable(for_log(_whole_words(text, most * _READ))), most)
        self._left -= len(shown)
        return shown

    def _traceback(self, text: str) -> str:
        half = LONGEST_TRACEBACK // 2
        if len(text) <= LONGEST_TRACEBACK:
            return self._text(text, LONGEST_TRACEBACK)
        begin, end = _whole_words(text[:half], half - 1), text[-half:]
        return self._text(f"{begin}\n{_MORE}\n{end.partition(' ')[2] or end}", LONGEST_TRACEBACK)


def _said(value: object) -> str:
    try:
        if isinstance(value, bytes | bytearray):
            return repr(bytes(value[:LONGEST_TEXT]))
        return repr(value) if isinstance(value, BaseException) else str(value)
    except Exception:
        # Somebody's __str__ or __repr__, which is somebody's code.
        return f"<{type(value).__name__}>"


def _whole_words(text: str, most: int) -> str:
    """Return the beginning of a text, if possible at the end of a word: half of a secret cannot be recognized."""
    if len(text) <= most:
        return text
    cut = text[:most]
    return cut.rpartition(" ")[0] or cut
