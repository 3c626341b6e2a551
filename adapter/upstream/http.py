"""A streamable-HTTP upstream behind a pool of HTTP/1.1 connections of our own.

endpoint.py writes requests, connection.py reads answers, pool.py says who serves whom; this module joins
them and translates what the network says into the catalogue of failures.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable

from adapter.errors import UpstreamUnanswered, UpstreamUnreachable
from adapter.upstream.connection import Connection, NoAnswerError, NotSentError
from adapter.upstream.endpoint import UpstreamAddress
from adapter.upstream.places import ExchangeLimit
from adapter.upstream.pool import LONG_CALL, Pool, closed
from adapter.upstream.port import Purpose, UpstreamReply, UpstreamRequest, unreachable

PINGS = 4
"""Connections that only the adapter's own pings use: they tell of the server, not of how busy its clients are."""

# A peer that vanished without a word is noticed within three minutes, also on a stream quiet for hours.
_PROBES = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 6))


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
        setting = "core.upstream.max_connections"
        self._calls = ExchangeLimit[Connection](
            max_connections, patience=connect_timeout, noun="connections", setting=setting
        )
        self._pings = ExchangeLimit[Connection](
            PINGS, patience=connect_timeout, noun="pings", setting=setting
        )
        self._streams = ExchangeLimit[Connection](
            max_streams, patience=0.0, noun="streams", setting="core.upstream.max_streams"
        )
        self._pool = Pool(self._connect, idle_ttl=idle_ttl, streams=self._streams, long_call=long_call)

    def __repr__(self) -> str:
        return f"<HttpUpstream '{self._endpoint}': {self._pool.active} active, {self._pool.idle} idle>"

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Also raises BadRequest when the method or a header cannot be sent safely.

        A request is written a second time only where it is repeatable and a *kept* connection ended before a byte of
        answer: its server may have closed it without having read what crossed with the closing. What was not
        written at all goes to a new connection in any case.
        """
        head = self._endpoint.head(request)
        places = self._calls
        if request.purpose is not Purpose.CALL:
            places = self._streams if request.purpose is Purpose.STREAM else self._pings
        connection = self._pool.kept(places) or await self._pool.take(places)
        kept = connection.reused
        if request.purpose is Purpose.STREAM:
            _prepare_stream(connection)
        try:
            return await connection.exchange(head, request.body, read_timeout)
        except NotSentError:
            pass
        except NoAnswerError as error:
            if not kept or not request.repeatable():
                raise _unanswered(request) from error
        connection = await self._pool.take(places, fresh=True)
        if request.purpose is Purpose.STREAM:
            _prepare_stream(connection)
        try:
            return await connection.exchange(head, request.body, read_timeout)
        except NotSentError as error:
            raise unreachable("it closed the connection as soon as it was open") from error
        except NoAnswerError as error:
            raise _unanswered(request) from error

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
                    loop, lambda: Connection(loop, released, lost), self._endpoint, self._tls
                )
        except TimeoutError as error:
            raise unreachable(f"it accepted no connection within {self._connect_timeout:g} s") from error
        except ssl.SSLCertVerificationError as error:
            raise unreachable("its TLS certificate is not trusted") from error
        except ssl.SSLError as error:
            raise unreachable("the TLS handshake failed") from error
        except socket.gaierror as error:
            raise unreachable("its host name cannot be resolved") from error
        except ConnectionRefusedError as error:
            raise unreachable("it refused the connection") from error
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise _without_files() from error
            raise UpstreamUnreachable from error
        if connection.leaves_few(1):
            connection.abort()
            raise _without_files()
        _notice_dead_peers(transport)
        return connection


async def _create_connection(
    loop: asyncio.AbstractEventLoop,
    protocol: Callable[[], Connection],
    endpoint: UpstreamAddress,
    tls: ssl.SSLContext | None,
) -> tuple[asyncio.Transport, Connection]:
    server_hostname = endpoint.host if tls is not None else None
    if isinstance(loop, asyncio.BaseEventLoop):
        return await loop.create_connection(
            protocol,
            endpoint.host,
            endpoint.port,
            ssl=tls,
            server_hostname=server_hostname,
            happy_eyeballs_delay=0.25,
        )
    # uvloop, which tries the addresses one after another and does not know the option.
    return await loop.create_connection(
        protocol, endpoint.host, endpoint.port, ssl=tls, server_hostname=server_hostname
    )


def _notice_dead_peers(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES:
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


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
