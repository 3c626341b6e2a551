"""A streamable-HTTP upstream behind a pool of HTTP/1.1 connections of our own.

connection.py reads answers, pool.py chooses connections; this module writes requests (``UpstreamAddress``, which opens
nothing), joins the others, and translates failures of the network into those of the catalogue.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import re
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from adapter.errors import BadRequest, UpstreamUnanswered, UpstreamUnreachable
from adapter.rules.access.headers import SharedFields
from adapter.upstream.connection import Connection, NoAnswerError, NotSentError
from adapter.upstream.pool import LONG_CALL, Pool, closed
from adapter.upstream.port import CALL, STREAM, ConnectionUse, UpstreamReply, UpstreamRequest, unreachable
from adapter.upstream.reply import KnownAnswers
from adapter.upstream.timeouts import ExchangeLimit
from adapter.wire.repeated_head import content_length
from adapter.wire.signed_urls import is_query

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 §5.6.2
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_ADDRESS = re.compile(r"[0-9.]+|[^:]*:.*")
_URL_CHARACTERS = "%/:?@!$&'()*+,;=[]~-._"
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
# HEAD and CONNECT are missing on purpose: their answers are framed by other rules, and MCP uses neither.
_METHODS = _METHODS_WITH_BODY | {"GET", "DELETE", "OPTIONS"}
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade"})

LONGEST_KEPT = 8 * 1024
"""Bytes of a head that is kept with its fields; a longer one is written each time."""

_DEFAULT_PORTS = {"http": 80, "https": 443}


class UpstreamAddress:
    """One http or https URL, parsed once. Raises ValueError with a sentence when it is not usable.

    ``str(endpoint)`` is the URL without its query, which may hold a key.
    """

    __slots__ = ("_openings", "_target", "authority", "host", "path", "port", "tls")

    def __init__(self, url: str) -> None:
        if _CONTROL.search(url):
            raise ValueError("The upstream URL contains white space or control characters.")
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise ValueError("The upstream URL must look like http://host[:port]/path or https://….")
        if "@" in parts.netloc:
            raise ValueError(
                "The upstream URL contains credentials; send them as an Authorization header in "
                "upstream.static_headers instead."
            )
        self.tls = parts.scheme == "https"
        self.host = parts.hostname if ":" in parts.hostname else parts.hostname.encode("idna").decode("ascii")
        self.port = parts.port or _DEFAULT_PORTS[parts.scheme]
        self.path = quote(parts.path or "/", safe=_URL_CHARACTERS)
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = shown if self.port == _DEFAULT_PORTS[parts.scheme] else f"{shown}:{self.port}"
        query = quote(parts.query, safe=_URL_CHARACTERS)
        self._target = f"{self.path}?{query}" if query else self.path
        self._openings = {method: self._opening(method, self._target) for method in _METHODS}

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path}"

    @property
    def origin(self) -> tuple[bool, str, int]:
        """Scheme (true for https), host and port (RFC 6454)."""
        return self.tls, self.host, self.port

    def head(self, request: UpstreamRequest) -> bytes:
        """Request line and fields up to the empty line. Raises BadRequest for what cannot be sent safely."""
        method, fields, body = request.method, request.headers, request.body
        opening = self._openings.get(method)
        if opening is None:
            raise BadRequest(f"The method {method!r} cannot be sent to an upstream.")
        lines: bytes | None
        if request.query:
            lines = self._opening(method, self._with(request.query)) + _encoded(tuple(fields))
        elif type(fields) is not SharedFields:
            lines = opening + _encoded(tuple(fields))
        elif (lines := fields.derived.get(opening)) is None:
            lines = _kept(opening, fields)
        if request.traceparent:
            lines += b"traceparent: " + request.traceparent.encode("ascii") + b"\r\n"
        if body or method in _METHODS_WITH_BODY:
            return lines + content_length(len(body))
        return lines + b"\r\n"

    def _opening(self, method: str, target: str) -> bytes:
        return f"{method} {target} HTTP/1.1\r\nHost: {self.authority}\r\n".encode("ascii")

    def _with(self, query: str) -> str:
        """The target with ``query`` behind its own."""
        if not is_query(query):
            raise BadRequest("The query of the request's target contains characters that a URL may not have.")
        return f"{self._target}{'&' if '?' in self._target else '?'}{query}"


def _kept(opening: bytes, fields: SharedFields) -> bytes:
    """The request line and the fields, kept with them where they are not long. Raises as ``_encoded``."""
    base = fields.base
    if base is None:
        lines = opening + _encoded(tuple(fields))
    else:
        lines = (base.derived.get(opening) or _kept(opening, base)) + _encoded((fields[-1],))
    if len(lines) <= LONGEST_KEPT:
        fields.derived[opening] = lines
    return lines


# The calls of one session bring the same fields each time; to know them again costs an eighth of this.
@lru_cache(maxsize=512)
def _encoded(fields: tuple[tuple[str, str], ...]) -> bytes:
    """The fields as lines. Raises BadRequest for what cannot be sent safely."""
    lines = []
    for name, value in fields:
        _check_name(name)
        lines.append(f"{name}: {value}\r\n")
    head = "".join(lines)
    # One look at the joined text costs less than one at each value: every line end has to be ours.
    if head.count("\n") != len(lines) or head.count("\r") != len(lines) or "\0" in head:
        raise BadRequest("A header value contains a line break or NUL.")
    try:
        return head.encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadRequest("A header value contains characters that HTTP does not allow.") from error


@lru_cache(maxsize=1024)
def _check_name(name: str) -> None:
    """Raises BadRequest for what is no field name, and for fields that decide where a message ends."""
    if not _TOKEN.fullmatch(name):
        raise BadRequest("A header name contains characters that HTTP does not allow.")
    if name.lower() in _OURS:
        raise BadRequest(f"The header {name} is set by the adapter itself.")


PINGS = 4
"""Connections that only the adapter's own pings use: they tell of the server, not of how busy its clients are."""

# A peer that vanished without a word is noticed within three minutes, also on a stream quiet for hours.
_PROBES = tuple(
    (getattr(socket, option), value)
    for option, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 6))
    if hasattr(socket, option)
)


NO_FILES = (errno.EMFILE, errno.ENFILE)


def _nobody_hears(_: UpstreamUnreachable) -> None:
    """Do nothing: nobody wants to know."""


class HttpUpstream:
    """An Upstream at ``url`` (http or https; ValueError if it is neither or holds credentials).

    ``connect_timeout`` (seconds) bounds name lookup, connect and TLS handshake together, and by itself the
    wait for one of ``max_connections``. Streams count apart, ``max_streams`` at most, and so do pings. A connection
    that is idle is closed after ``idle_ttl`` seconds, or earlier where the server keeps it for less.
    """

    def __init__(
        self,
        url: str,
        *,
        insecure_tls: bool = False,
        connect_timeout: float = 5.0,
        max_connections: int = 512,
        max_streams: int = 2048,
        idle_ttl: float = 30.0,
        long_call: float = LONG_CALL,
    ) -> None:
        self._endpoint = UpstreamAddress(url)
        self._tls = _tls_context(insecure_tls) if self._endpoint.tls else None
        self._connect_timeout = connect_timeout
        self.on_unreachable: Callable[[UpstreamUnreachable], None] = _nobody_hears
        """Is told why a connection could not be opened, whoever needed it."""
        setting = "core.upstream.max_connections"
        self._calls = ExchangeLimit[Connection](
            max_connections, patience=connect_timeout, noun="connections", setting=setting
        )
        self._pings = ExchangeLimit[Connection](
            PINGS, patience=connect_timeout, noun="pings", setting=setting
        )
        self._streams = ExchangeLimit[Connection](max_streams, patience=0.0, noun="streams", setting=setting)
        self._known = KnownAnswers()
        self._pool = Pool(self._connect, idle_ttl=idle_ttl, streams=self._streams, long_call=long_call)

    def __repr__(self) -> str:
        return f"<HttpUpstream '{self._endpoint}': {self._pool.active} active, {self._pool.idle} idle>"

    @property
    def use(self) -> ConnectionUse:
        """The connections of now, and those that were used since the start."""
        pool = self._pool
        return ConnectionUse(pool.active, pool.idle, pool.opened, pool.kept)

    def watch(self, waited: Callable[[float, bool], None]) -> None:
        """Tell of the seconds that each exchange waited for a connection, with True if it got one."""
        self._calls.on_wait = self._pings.on_wait = waited

    def toward(self, url: str) -> HttpUpstream:
        """The same upstream at another URL, over the same connections and within the same limits.

        Raises ValueError with a sentence where the URL is not usable, or not of the same origin.
        """
        endpoint = UpstreamAddress(url)
        if endpoint.origin != self._endpoint.origin:
            raise ValueError(
                "The URL is not of the upstream's origin: scheme, host and port must be the same."
            )
        other = copy.copy(self)
        other._endpoint = endpoint
        return other

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Also raises BadRequest when the method or a header cannot be sent safely.

        A request is written a second time only where it is repeatable and a *kept* connection ended before a byte of
        answer: its server may have closed it without having read what crossed with the closing. What was not
        written at all goes to a new connection in any case.
        """
        head = self._endpoint.head(request)
        places, purpose = self._calls, request.purpose
        if purpose is not CALL:
            places = self._streams if purpose is STREAM else self._pings
        fresh = False
        while True:
            connection = None if fresh else self._pool.idle_connection(places)
            if connection is None:
                connection = await self._pool.take(places, fresh=fresh)
            reused = connection.reused
            if purpose is STREAM:
                _prepare_stream(connection)
            try:
                return await connection.exchange(head, request.body, read_timeout)
            except NotSentError as error:
                if fresh:
                    raise unreachable("it closed the connection as soon as it was open") from error
            except NoAnswerError as error:
                if fresh or not reused or not request.repeatable():
                    raise _unanswered(request) from error
            fresh = True

    async def close(self) -> None:
        """See Upstream. Exchanges under way end as UpstreamBroken, queued ones as UpstreamUnreachable."""
        for places in (self._calls, self._streams, self._pings):
            places.refuse(closed())
        await self._pool.close()

    async def _connect(
        self, released: Callable[[Connection], None], lost: Callable[[Connection], None]
    ) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout):
                transport, connection = await _create_connection(
                    loop, lambda: Connection(loop, released, lost, self._known), self._endpoint, self._tls
                )
        except TimeoutError as error:
            failure = unreachable(f"it accepted no connection within {self._connect_timeout:g} s")
            self.on_unreachable(failure)
            raise failure from error
        except OSError as error:
            failure = connect_failure(error)
            # A process without files for more connections learns nothing of the server.
            if error.errno not in NO_FILES:
                self.on_unreachable(failure)
            raise failure from error
        if connection.leaves_few(1):
            connection.abort()
            raise _without_files()
        _notice_dead_peers(transport)
        return connection


def connect_failure(error: OSError) -> UpstreamUnreachable:
    """The failure of a connection that could not be opened."""
    if error.errno in NO_FILES:
        return _without_files()
    why = connect_problem(error)
    return UpstreamUnreachable() if why is None else unreachable(why)


def connect_problem(error: OSError) -> str | None:
    """Why a connection could not be opened, to be put behind "cannot be reached: "; None where that says nothing."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its TLS certificate is not trusted"
    if isinstance(error, ssl.SSLError):
        return "the TLS handshake failed"
    if isinstance(error, socket.gaierror):
        return "its host name cannot be resolved"
    return "it refused the connection" if isinstance(error, ConnectionRefusedError) else None


async def _create_connection(
    loop: asyncio.AbstractEventLoop,
    protocol: Callable[[], Connection],
    endpoint: UpstreamAddress,
    tls: ssl.SSLContext | None,
) -> tuple[asyncio.Transport, Connection]:
    # uvloop tries the addresses one after another and does not know the option. An address is the only one; asyncio
    # would forget its socket where this is cancelled in the turn in which it has connected.
    several = isinstance(loop, asyncio.BaseEventLoop) and not _ADDRESS.fullmatch(endpoint.host)
    options: dict[str, Any] = {"happy_eyeballs_delay": 0.25} if several else {}
    server_hostname = endpoint.host if tls is not None else None
    return await loop.create_connection(
        protocol, endpoint.host, endpoint.port, ssl=tls, server_hostname=server_hostname, **options
    )


def _notice_dead_peers(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    # A socket of our own, since uvloop's makes one for each option.
    own = socket.socket(sock.family, sock.type, sock.proto, sock.fileno())
    try:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBES:
            own.setsockopt(socket.IPPROTO_TCP, option, value)
    finally:
        own.detach()


def _tls_context(insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _prepare_stream(connection: Connection) -> None:
    """Have little of a stream wait here; raise UpstreamUnreachable where it would take the last files from calls."""
    if connection.leaves_few(2):
        connection.abort()
        raise _without_files()
    connection.take_in_small_pieces()


def _without_files() -> UpstreamUnreachable:
    """The failure of a request for which no file can be opened any more."""
    return UpstreamUnreachable(
        "The adapter has reached the system's limit of open files (ulimit -n), so it cannot open a "
        "connection to the upstream server. Try again later."
    )


def _unanswered(request: UpstreamRequest) -> UpstreamUnanswered | UpstreamUnreachable:
    """The failure of a request that was written and got no byte of answer."""
    if request.repeatable():
        return unreachable("it closed the connection before it answered")
    return UpstreamUnanswered()
