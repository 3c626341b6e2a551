"""One HTTP request: its head, its body, the way to answer it, and the branch of paths that it belongs to. A head that
came before is recognised by its bytes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol
from urllib.parse import unquote, unquote_to_bytes

import httptools

from adapter.edge.http.bodies import Body
from adapter.errors import AdapterError
from adapter.rules.access.headers import prefers
from adapter.rules.last_used import LastUsed
from adapter.wire.repeated_head import RepeatedHead, SessionHead, repeated_request, session_head
from adapter.wire.signed_urls import parameters


class Fields(Mapping[str, str]):
    """Header fields by name in any spelling; of several of one name the first. ``pairs`` has all, as they came.

    ``repeated`` are the names, in lower case, that are there more than once. Requests on one connection share them
    while they stay the same, so nothing changes them; ``derived`` is for what follows from them alone and need not be
    found out again. ``shared`` is for what follows from the others than Mcp-Session-Id: the heads of all sessions on a
    connection have it in common.
    """

    __slots__ = ("derived", "lower", "pairs", "repeated", "shared")

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs
        self.derived: dict[object, Any] = {}
        self.shared: dict[object, Any] = {}
        self.lower: dict[str, str] = {}
        """The fields by their names in lower case. A look-up here is no Python call, unlike ``get``."""
        for name, value in pairs:
            self.lower.setdefault(name.lower(), value)
        self.repeated: frozenset[str] = frozenset()
        if len(self.lower) != len(pairs):
            times = Counter(name.lower() for name, _ in pairs)
            self.repeated = frozenset(name for name, count in times.items() if count > 1)

    def with_session(self, session: str) -> Fields:
        """The same fields with another value in their first Mcp-Session-Id, which they must have."""
        other = Fields.__new__(Fields)
        other.derived, other.shared, other.repeated = {}, self.shared, self.repeated
        other.lower = {**self.lower, "mcp-session-id": session}
        other.pairs = self.pairs.copy()
        for place, (name, _) in enumerate(self.pairs):
            if name.lower() == "mcp-session-id":
                other.pairs[place] = name, session
                break
        return other

    def again(self) -> Fields:
        """The same fields on another connection, where each forgets for itself."""
        other = Fields.__new__(Fields)
        other.derived, other.shared, other.repeated = {}, self.shared.copy(), self.repeated
        other.lower, other.pairs = self.lower, self.pairs
        return other

    def forget(self) -> None:
        """Drop everything that was found out, because a fact outside of the fields has changed."""
        self.derived.clear()
        self.shared.clear()

    def get(self, name: str, default: Any = None) -> Any:
        # Mapping's own get goes through an exception for each field that is not there, ten times a call.
        return self.lower.get(name.lower(), default)

    def __getitem__(self, name: str) -> str:
        return self.lower[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.lower)

    def __len__(self) -> int:
        return len(self.lower)


class Sendable(Protocol):
    """A file that the kernel can send; see OpenFile."""

    async def send(self, receiver: int, offset: int, length: int) -> int: ...


class Reply(Protocol):
    """The way to answer a request: once whole, or a head and then pieces."""

    extra: tuple[tuple[str, str], ...]
    """Fields that its head has besides those that are given: CORS, and Allow."""

    def send(self, status: int, fields: list[tuple[str, str]], body: bytes = b"") -> None:
        """The whole answer. ``fields`` hold no framing field."""

    def begin(self, status: int, fields: list[tuple[str, str]], length: int | None) -> None:
        """The head of an answer whose body follows; without ``length`` (bytes) it is chunked."""

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """One piece, without waiting; False while the client is slow, until ``drained`` has returned.

        ``more``: another follows at once, or the end, and they may leave together.
        """

    async def drained(self) -> None:
        """Wait until the client takes more. Raises ClientGone."""

    async def write(self, piece: bytes) -> None:
        """One piece; waits while the client is slow. Raises ClientGone."""

    async def write_file(self, file: Sendable, offset: int, length: int) -> None:
        """That many bytes of a file, in an answer whose length was announced. Raises as ``write``, and what
        ``file`` raises.
        """

    def end(self) -> None:
        """The body is complete."""

    def abort(self) -> None:
        """Break the connection off, so that nobody takes the answer for complete."""

    @property
    def status(self) -> int | None:
        """The status that was sent, None before."""

    @property
    def sent(self) -> int:
        """Bytes of the body that were given to it."""


@dataclass(eq=False, slots=True)
class Request:
    """``path`` is percent-decoded, without its query; ``target`` is as it was sent.

    ``peer`` is the address at the other end of the connection, a proxy's where there is one; None if it has none.
    """

    method: str
    target: str
    path: str
    headers: Fields
    body: Body
    reply: Reply
    peer: str | None = None
    task: asyncio.Task[None] | None = field(default=None, init=False)
    """The task that answers it, while it does."""
    last_words: Callable[[AdapterError], bytes] | None = field(default=None, init=False)
    """The bytes that complete an answer which has begun and fails; None if no bytes can."""
    failure: type[AdapterError] | None = field(default=None, init=False)
    """The error that it was answered with, or that ended its answer."""

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path}>"


# --- branches --------------------------------------------------------------------------------------------------

FieldLines = list[tuple[str, str]]
"""Header fields of an answer."""
Names = tuple[str, ...]
"""The parts of a path behind a branch's prefix, each decoded by itself, so one may hold a slash."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Serves the paths that have exactly ``depth`` names behind ``prefix``; without any, a slash may stand there.

    ``serve`` answers through ``request.reply``. It raises AdapterError, and ClientGone. ``exposed`` are fields of its
    answers that a page at an allowed origin may read. ``public``: what it serves is everybody's, so a request is not
    refused for its Origin. ``sealed``: ``serve`` knows by itself who may come in, and answers every method; neither
    Host nor Origin count.
    """

    prefix: str
    depth: int
    methods: tuple[str, ...]
    exposed: tuple[str, ...]
    serve: Callable[[Request, Names], Awaitable[object]]
    public: bool = field(default=False, kw_only=True)
    sealed: bool = field(default=False, kw_only=True)
    open: ClassVar[bool] = False
    """Pages of every origin may read its answers, without credentials."""

    def names(self, request: Request) -> Names | None:
        """The names behind the prefix in the request's path; None if the request is not this branch's."""
        if not self.depth:
            return () if request.path.rstrip("/") == self.prefix.rstrip("/") else None
        names = names_behind(self.prefix, request)
        return names if names is not None and len(names) == self.depth else None


@dataclass(frozen=True, slots=True)
class SignedBranch(Branch):
    """A branch of signed links alone; all others below the prefix are left to others.

    The signature is all the right that such a request needs, so it may come from any page.
    """

    open: ClassVar[bool] = True

    def names(self, request: Request) -> Names | None:
        # Not super(): a dataclass with slots is another class than the one that its methods close over.
        found = Branch.names(self, request)
        return found if found is not None and not _OF_SIGNATURES.isdisjoint(query_of(request)) else None


_OF_SIGNATURES = frozenset({"exp", "sig"})
"""Parameters that every signed link has."""


class LateBranches(NamedTuple):
    """Branches below ``prefix`` that are not built yet. ``load`` builds them once, and returns the same ones again."""

    prefix: str
    load: Callable[[], Awaitable[Sequence[Branch]]]

    def names(self, request: Request) -> Names | None:
        """No names for any request below the prefix, None for the others."""
        prefix = self.prefix.rstrip("/")
        return () if request.path == prefix or request.path.startswith(f"{prefix}/") else None


def names_behind(prefix: str, request: Request) -> Names | None:
    """All names behind a prefix in a request's path; None where it does not begin so, or one of them is empty."""
    # Most requests ask several branches, most of them in vain.
    prefix = prefix.rstrip("/")
    if not request.path.startswith(prefix) or request.path[len(prefix) : len(prefix) + 1] != "/":
        return None
    behind = _path(request.target).split("/")[prefix.count("/") + 1 :]
    if not all(behind):
        return None
    try:
        return tuple(_decoded(name) for name in behind)
    except UnicodeDecodeError:
        return None


def query_of(request: Request) -> Mapping[str, str]:
    """The parameters of the request's query, without those that stand there twice."""
    query = request.target.partition("?")[2]
    try:
        return parameters(query) if query else {}
    except ValueError:
        return {}


def takes_html(request: Request) -> bool:
    """Tell whether the request asks for HTML rather than JSON, as browsers do that open a link."""
    accept = request.headers.get("Accept", "")
    return prefers(accept, _HTML, _JSON) and not any(prefers(accept, other, _HTML) for other in (_JSON, _GIF))


_HTML, _JSON = "text/html", "application/json"
_GIF = "image/gif"
"""Java's HttpURLConnection, where no Accept is set, sends ``text/html, image/gif, image/jpeg, */*; q=0.2``. No browser
that is in use wants a GIF as much as HTML.
"""


def _path(target: str) -> str:
    """The path of a target in origin or absolute form, still encoded."""
    path = target.partition("?")[0]
    return path if path.startswith("/") else "/" + path.partition("://")[2].partition("/")[2]


def _decoded(name: str) -> str:
    if "%" not in name and name.isascii():
        return name
    # A target is bytes, read as Latin-1; and a name may hold whatever its sender called the file.
    return unquote_to_bytes(name.encode("latin-1")).decode("utf-8", "surrogatepass")


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

    def again(self, fields: Fields) -> RequestHead:
        """The same head with these fields."""
        # Not copy.copy, which takes six times as long: each connection begins so.
        other = RequestHead.__new__(RequestHead)
        other.method, other.target, other.path, other.fields = self.method, self.target, self.path, fields
        other.bodiless, other.expects_continue = self.bodiless, self.expects_continue
        other.keep, other.modern = self.keep, self.modern
        return other


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
        other = KnownHead.__new__(KnownHead)
        other.key, other.session, other.repeated = self.key, self.session, self.repeated
        other.before, other._sessions = self.before, self._sessions
        other.fields = self.fields.again()
        other.head = None if self.head is None else self.head.again(other.fields)
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
