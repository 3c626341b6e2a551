"""The heads of requests, and the recognition of those that came before."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools

from adapter.edge.http.request import Fields
from adapter.rules.last_used import LastUsed
from adapter.wire.repeated_head import RepeatedHead, SessionHead, repeated_request, session_head

COMMON_AT_MOST = 64
"""Heads that are remembered for all connections of a listener."""

_BODILESS = ("GET", "HEAD", "DELETE", "OPTIONS")
"""Methods whose bodies mean nothing (RFC 9110, 9.3), and that nobody here reads."""


class RequestHead:
    """A request whose head is here. ``keep``: the client wants the connection kept; ``modern``: HTTP/1.1."""

    __slots__ = ("bodiless", "expects_continue", "fields", "keep", "method", "modern", "path", "target")

    def __init__(self, parser: Any, version: str, target: bytes, fields: Fields) -> None:
        self.method: str = parser.get_method().decode("latin-1")
        self.bodiless = self.method in _BODILESS
        self.modern = version == "1.1"
        # HTTP/1.0 knows no chunks, so where such a body ends is a matter of opinion (RFC 9112, 6.1).
        self.keep: bool = parser.should_keep_alive() and (self.modern or "transfer-encoding" not in fields)
        self.target = target.decode("latin-1")
        self.path = path_of(target)
        self.fields = fields
        self.expects_continue = self.modern and fields.lower.get("expect", "").lower() == "100-continue"


class HeadKey(NamedTuple):
    """A head as the parser gives it, without Content-Length, and with an empty value in Mcp-Session-Id. ``kind`` is
    its method, its path but for GET, and whether it names a session.
    """

    kind: tuple[str, bytes, bool]
    version: str
    raw: tuple[tuple[bytes, bytes], ...]


class KnownHead:
    """A request's head that came before, and those that differ from it by the session id alone."""

    __slots__ = ("_sessions", "before", "fields", "head", "key", "repeated", "session")

    def __init__(self, key: HeadKey, session: bytes | None) -> None:
        self.key = key
        self.session = session
        self.fields = _fields(key.raw, session)
        self.head: RequestHead | None = None
        """The request that may be recognized by its bytes, and its ``repeated`` bytes."""
        self.repeated: RepeatedHead | None = None
        self._sessions: SessionHead | None = None
        self.before = b"\n"
        """The bytes with which a request begins that may be recognized; as none begins, while none may be."""

    def __repr__(self) -> str:
        return f"<KnownHead of {len(self.key.raw)} fields>"

    def again(self) -> KnownHead:
        """The same head for another connection, which has other sessions and forgets for itself."""
        other = copy.copy(self)
        other.fields = self.fields.again()
        if self.head is not None:
            other.head = copy.copy(self.head)
            other.head.fields = other.fields
        return other

    def enter(self, session: bytes | None) -> None:
        """Go on with the fields of this session, which is None only where it was before."""
        if session is not None and session != self.session:
            self.session = session
            self.fields = self.fields.with_session(_text(session))
            # One session's fields at a time: those of another would keep what "forget" dropped meanwhile.
            # The bytes are those of another session.
            self.repeated = None
            if self.head is not None and self._sessions is not None:
                self.head.fields = self.fields
            else:
                self.head = None

    def learn(self, head: RequestHead, data: bytes) -> None:
        """Have such a request be recognized by its bytes from now on; ``data`` was all of one."""
        self.head, self._sessions = head, None
        self.repeated = repeated_request(data)
        if self.repeated is not None and self.session is not None:
            self._sessions = session_head(self.repeated, self.fields.lower["mcp-session-id"])
        if self.repeated is not None:
            self.before = (self._sessions or self.repeated).before

    def body_in(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is exactly one request with this head, in any session; None for all else."""
        if self.head is None:
            return None
        # Most are of the session before, and to see that takes no look for the id.
        content = None if self.repeated is None else self.repeated.body_of(data)
        if content is not None or self._sessions is None:
            return content
        found = self._sessions.of(data)
        if found is None:
            return None
        session, self.repeated, body = found
        if session != self.head.fields.lower["mcp-session-id"]:
            self.session = session.encode("ascii")
            self.fields = self.head.fields = self.fields.with_session(session)
        return body


CommonHeads = LastUsed[HeadKey, KnownHead]
"""The last heads of all connections of a listener: COMMON_AT_MOST of them."""


def _fields(raw: tuple[tuple[bytes, bytes], ...], session: bytes | None) -> Fields:
    """All fields but Content-Length.

    Without it the head hardly changes from call to call, so that the work done for one call serves the next on its
    connection.
    """
    pairs = [(name.decode("latin-1"), _text(value)) for name, value in raw]
    fields = Fields(pairs)
    return fields if session is None else fields.with_session(_text(session))


def _text(value: bytes) -> str:
    # The parser leaves the white space behind a value, which is no part of it (RFC 9110, 5.5).
    return value.decode("latin-1").strip(" \t")


def path_of(target: bytes) -> str:
    """The path of a request target in origin or absolute form, decoded; empty where there is none; ``*`` is itself."""
    if not target.startswith(b"/"):
        try:
            target = httptools.parse_url(target).path or b""
        except httptools.HttpParserInvalidURLError:
            return ""
    path = target.partition(b"?")[0].decode("latin-1")
    return unquote(path) if "%" in path else path
