"""Credentials in text: the words that tell of them, and the text without them. Pure; work is linear in the text.

There is one vocabulary. What is written to the log keeps paths and the hosts of URLs, because operators need them;
what a caller reads keeps neither, nor connection strings.
"""

from __future__ import annotations

import re

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
    """Called with a text, gives it with ``hidden`` in place of each credential. With ``places`` connection strings are
    credentials too, and absolute paths are ``[path]``.
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

        The last ``@`` ends the user, wherever it stands, because passwords hold all characters.
        """
        user, at, host = rest.rpartition("@")
        place, mark, query = host.partition("?")
        hidden = self._hidden if user else ""
        return hidden + at + place + mark + self._within_url.sub(self._shown, query)


for_log = Redactor("***")
"""For the log: without credentials."""

for_caller = Redactor("[redacted]", places=True)
"""For whoever called: without credentials, connection strings and absolute paths."""


def is_telling(key: str) -> bool:
    """Tell whether the value under such a key is a secret, whatever the value is."""
    return _KEY.search(key) is not None
