"""The record of one call as a line of JSON: who, what and with which outcome, and nothing of what was said. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import orjson

from adapter.rules.access.principals import told_name
from adapter.rules.access.sessions import session_key
from adapter.rules.calls.request_outcomes import RequestOutcome
from adapter.rules.text.canonical_json import canonical
from adapter.rules.text.unicode import shown

LONGEST_LINE = 4096
"""Bytes of a line: what the systems write to a pipe in one piece (POSIX, PIPE_BUF on Linux)."""

LONGEST_NAME = 200
"""Characters of the name of a tool, a prompt, or a resource."""

LONGEST_PRINCIPAL = 280
"""Characters of a principal, which are all of it."""

LONGEST_TEXT = 100
"""Characters of any other text that comes from a client."""

ProcessName: TypeAlias = tuple[tuple[str, str | int], ...]
"""Members of an object that name a process."""

AUDITED = frozenset(("tools/call", "prompts/get", "resources/read"))
"""The methods that are recorded."""


@dataclass(slots=True)
class AuditRecord:
    """One request and what became of it.

    ``began`` is a time of RFC 3339, ``since`` the same moment of the monotonic clock. ``session`` is the key of
    the session, ``id`` that of the request, and ``id_bytes`` as its body spells it. ``name`` is of the tool, the
    prompt, the resource or the file; ``via`` is the tool of code mode that was called in its place. ``request`` and
    ``answer`` are bytes. ``outcome`` is ``ok``, ``tool_error`` (a failed result), ``error`` (a JSON-RPC error, or a
    failure of the upstream or the adapter), ``refused`` (by the adapter), ``client_gone``, ``deferred`` (the answer
    comes on another stream) or ``answered`` (not looked into); ``code`` is that of the failure.
    """

    method: str
    server: str
    name: str
    principal: str
    entrance: str
    began: str
    since: float
    id: str | int | float | None = None
    session: str | None = None
    request: int = 0
    arguments: str | None = None
    id_bytes: bytes = b"null"
    via: str | None = None
    outcome: str = "ok"
    code: str | int | None = None
    answer: int = 0
    milliseconds: float = 0.0
    written: bool = False

    def end(self, outcome: RequestOutcome) -> None:
        """Note what became of it."""
        self.outcome, self.code = outcome.kind, None
        if isinstance(outcome.code, type):
            self.outcome = "error" if outcome.code.http >= 500 else "refused"
            self.code = outcome.code.code
        elif outcome.kind in ("rpc_error", "http"):
            self.outcome = "error"
            self.code = f"http_{outcome.code}" if outcome.kind == "http" else outcome.code

    def line(self, place: ProcessName = ()) -> bytes:
        """The record in one line of at most LONGEST_LINE bytes, with its end. ``place`` are members behind its own."""
        caller = self.method, self.server, self.name, self.via, self.principal, self.entrance, self.session
        # What is long is told in part, and is not kept.
        kept = len(self.name) <= LONGEST_NAME and len(self.via or "") <= LONGEST_NAME
        told = _told(*caller) if kept else _told.__wrapped__(*caller)
        code = b"" if self.code in (None, "") else b',"code":' + _value(self.code)
        line = b'{"time":"%b",%b,"outcome":"%b"%b' % (self.began.encode(), told, self.outcome.encode(), code)
        measured = self.milliseconds, self.request, self.answer
        line += b',"duration_ms":%.3f,"request_bytes":%d,"answer_bytes":%d' % measured
        if isinstance(self.id, int):
            line += b',"request_id":"%d"' % self.id
        elif self.id is not None:
            line += b',"request_id":%b' % _value(str(self.id))
        if self.arguments is not None:
            line += b',"arguments_digest":%b' % _value(self.arguments)
        return b"%b%b}\n" % (line, _members(place))

    @staticmethod
    @lru_cache(maxsize=1024)
    def success(caller: tuple[str, str, str, str, str, str | None], place: ProcessName) -> bytes:
        """The line of a call that has succeeded, but for second, millisecond, duration, both sizes and id, an integer.

        ``caller`` are method, server, name of at most LONGEST_NAME characters, principal, entrance and id of the
        session. Nearly all lines are made of one: to make a record takes as long as to write it.
        """
        method, server, name, principal, entrance, session_id = caller
        session = None if session_id is None else session_key(session_id)
        told = _told(method, server, name, None, principal, entrance, session).replace(b"%", b"%%")
        measured = b'"duration_ms":%.3f,"request_bytes":%d,"answer_bytes":%d,"request_id":"%d"'
        begin, end = b'{"time":"%b.%03dZ",', _members(place).replace(b"%", b"%%") + b"}\n"
        return begin + told + b',"outcome":"ok",' + measured + end


# The calls of one session are alike in these; so few are kept that foreign names fill no memory.
@lru_cache(maxsize=1024)
def _told(
    method: str, server: str, name: str, via: str | None, principal: str, entrance: str, session: str | None
) -> bytes:
    """Who asked for what, as members of an object without its braces."""
    members: dict[str, Any] = {
        "event": method,
        "server": shown(server, LONGEST_TEXT),
        "name": shown(_without_secrets(name, method), LONGEST_NAME),
        "via": None if via is None else shown(via, LONGEST_TEXT),
        "principal": shown(told_name(principal), LONGEST_PRINCIPAL) if principal else None,
        "entrance": entrance,
        "session": None if session is None else session_digest(session),
    }
    return orjson.dumps({key: value for key, value in members.items() if value is not None})[1:-1]


@lru_cache(maxsize=4)
def _members(place: ProcessName) -> bytes:
    """Members behind others of an object."""
    return b"".join(b",%b:%b" % (orjson.dumps(name), orjson.dumps(value)) for name, value in place)


def _value(told: str | int | None) -> bytes:
    return orjson.dumps(shown(told, LONGEST_TEXT) if isinstance(told, str) else told)


def session_digest(session_key: str) -> str:
    """Sixteen hex digits that are equal for calls in one session, by which nobody can join it."""
    return hashlib.sha256(b"audit " + session_key.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def arguments_digest(arguments: object, key: bytes) -> str:
    """The HMAC of arguments as canonical JSON, equal for equal values in any spelling.

    Without a key, whoever has the log could try out what short arguments were.
    """
    return f"hmac-sha256:{hmac.digest(key, canonical(arguments), 'sha256').hex()}"


# Parsers of URLs take backslashes for slashes, and need none after these schemes (WHATWG, "URL parsing").
_CREDENTIALS = re.compile(r"^((?:https?|wss?|ftp):[/\\]*|[^/\\:]*:?[/\\]{2})[^/\\]*@", re.IGNORECASE)


def _without_secrets(name: str, method: str) -> str:
    """The name; a URI without its query and the credentials before its host, which may be what only its user knows."""
    if method != "resources/read":
        return name
    return _CREDENTIALS.sub(r"\1", name.partition("?")[0].partition("#")[0])
