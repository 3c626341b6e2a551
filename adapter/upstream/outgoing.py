"""Outgoing HTTP requests that are not the relay's, on aiohttp's client: those to issuers of keys and tokens, and for
files at URLs that callers name.

An adapter that makes no such request does without the library.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlencode, urljoin

from adapter.errors import AdapterError, UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.rules.access.host_and_origin_check import (
    NetworkKind,
    canonical_host,
    host_spellings,
    network_kind,
    read_url,
)
from adapter.upstream.http import NO_FILES, UpstreamAddress, connect_failure, connect_problem
from adapter.upstream.port import Download, DownloadFailed

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver

TIMEOUT = 5.0
"""Seconds of a request, its connection and its answer together."""

LARGEST = 1 << 20
"""Bytes of an answer. Sets of keys may be as large; other documents are bounded by their values too."""

TOKEN_TIMEOUT = 10.0
"""Seconds of a request for tokens and what belongs to it: a token that was issued and not received may be lost."""

LARGEST_TOKENS = 1 << 18
"""Bytes of an answer to such a request: metadata and tokens have a few thousand."""

FORM = "application/x-www-form-urlencoded"

_CHUNK = 1 << 16

_HEADERS = {
    "Accept": "application/json, application/jwk-set+json",
    "Accept-Encoding": "identity",
    "User-Agent": "mcp-file-adapter",
}


class IssuerHttp:
    """Requests to authorization servers, of ``timeout`` seconds each, whose answers have ``limit`` bytes at most.

    Servers are known by the certificates that the system trusts. No redirect is followed, no cookie is kept, and no
    proxy of the environment is used.

    ``near`` is the host of the upstream that names the servers; None: the settings do. Connections to private addresses
    are then only made in networks of the same kind as that host's own: it must not reach others through the adapter.

    Every method raises UpstreamUnreachable; UpstreamSilent when it took too long; UpstreamBroken for what is no HTTP,
    breaks off, or is too large; ValueError for what is no URL. None of their sentences holds the URL.
    """

    def __init__(self, *, timeout: float = TIMEOUT, limit: int = LARGEST, near: str | None = None) -> None:
        self._timeout = timeout
        self._limit = limit
        self._near = near
        self._trusted = cache(_load)

    async def get(self, url: str) -> tuple[int, bytes]:
        """Status and body of a document; the body is read for status 200 only."""
        async with self._answer("GET", url, None, _HEADERS) as response:
            return response.status, await self._body(response) if response.status == 200 else b""

    async def post(
        self, url: str, body: bytes, kind: str, headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        """Status and body of the answer to a ``body`` of this media type, whatever the status is."""
        fields = {**_HEADERS, "Content-Type": kind, **headers}
        async with self._answer("POST", url, body, fields) as response:
            return response.status, await self._body(response)

    async def form(
        self, url: str, fields: Mapping[str, str], headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        """Status and body of the answer to a form."""
        return await self.post(url, urlencode(fields).encode(), FORM, headers)

    async def document(self, url: str) -> bytes:
        """The document at ``url``. Raises UpstreamBroken for any answer but 200 too."""
        status, document = await self.get(url)
        if status != 200:
            raise UpstreamBroken(f"The answer has status {status} instead of the document.")
        return document

    @asynccontextmanager
    async def _answer(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        UpstreamAddress(url)
        tls = await asyncio.to_thread(self._trusted)
        import aiohttp

        make = None if self._near is None else partial(_near_socket, await _kinds_of(self._near))
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        async with (
            _translated(self._timeout),
            _session(tls, timeout, make) as session,
            session.request(method, url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            yield response

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > self._limit:
                raise UpstreamBroken(f"The document is larger than {self._limit} bytes.")
        return bytes(body)


def _load() -> ssl.SSLContext:
    """The certificates that the system trusts. To be called in a thread: to load the library and to read them takes
    longer than a call may wait.
    """
    import aiohttp  # noqa: F401 (for those who ask)

    return ssl.create_default_context()


def _session(
    tls: ssl.SSLContext,
    timeout: aiohttp.ClientTimeout,
    make: Callable[[aiohttp.AddrInfoType], socket.socket] | None,
    resolver: AbstractResolver | None = None,
) -> aiohttp.ClientSession:
    """A client for one request: no cookie is kept, and no proxy of the environment used."""
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, force_close=True, socket_factory=make, resolver=resolver),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=timeout,
        auto_decompress=False,
    )


def token_http(near: str | None = None) -> IssuerHttp:
    """Requests for tokens, and for the metadata of who issues them; ``near`` as for IssuerHttp."""
    return IssuerHttp(timeout=TOKEN_TIMEOUT, limit=LARGEST_TOKENS, near=near)


REDIRECTS = 3
"""Redirects of one download that are followed."""

LONGEST_URL = 8192
"""Characters of the URL of a download, and of those that it redirects to."""

CONNECT_TIMEOUT = 10.0
"""Seconds in which the name of a host must lead to an address, and a connection be there."""

_NAMES = ThreadPoolExecutor(4, thread_name_prefix="names")
"""The threads that look up names which callers chose: some servers of names never answer, and must hold up nobody else.
"""

_ANYWHERE = get_args(NetworkKind)
_REDIRECTING = (301, 302, 303, 307, 308)
_NO_URL = "its URL must begin with https:// and hold no user name and no fragment."


class FileHttp:
    """Downloads of files at URLs that callers name: by https, and from public addresses only.

    ``private`` names the hosts (``name`` or ``name:port``) that may have other addresses. A download may be silent for
    ``stall`` seconds.
    """

    def __init__(self, private: Collection[str], stall: float) -> None:
        self._private = frozenset(map(canonical_host, private))
        self._stall = stall
        self._trusted = cache(_load)

    @asynccontextmanager
    async def open(self, url: str) -> AsyncIterator[Download]:
        """See OpenDownload."""
        for _ in range(REDIRECTS + 1):
            parts = read_url(url, LONGEST_URL)
            if parts is None or parts.scheme != "https":
                raise DownloadFailed(_NO_URL)
            host = canonical_host(parts.hostname or "")
            trusted = not self._private.isdisjoint(host_spellings(host, parts.port or 443))
            async with _told_of(host), self._answer(url, _ANYWHERE if trusted else ()) as response:
                if response.status in _REDIRECTING:
                    url = _joined(url, response.headers.get("Location", ""))
                    continue
                yield _download(response, host)
                return
        raise DownloadFailed(f"its URL is redirected more than {REDIRECTS} times.")

    @asynccontextmanager
    async def _answer(
        self, url: str, kinds: Collection[NetworkKind]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        tls = await asyncio.to_thread(self._trusted)
        import aiohttp
        from yarl import URL

        try:
            # As it is: a signature is of the spelling.
            target = URL(url, encoded=True)
        except ValueError:
            raise DownloadFailed(_NO_URL) from None
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=self._stall)
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": _HEADERS["User-Agent"]}
        async with (
            _translated(self._stall),
            _session(tls, timeout, partial(_near_socket, kinds), _resolver()) as session,
            session.get(target, headers=headers, allow_redirects=False) as response,
        ):
            yield response


def _joined(url: str, location: str) -> str:
    """The URL to which a redirect leads. Raises DownloadFailed."""
    try:
        return urljoin(url, location)
    except ValueError:
        raise DownloadFailed(_NO_URL) from None


def _resolver() -> AbstractResolver:
    """Looks names up in threads of its own."""
    # Late, as the library itself.
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Resolver(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[ResolveResult]:
            look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
            try:
                found = await asyncio.get_running_loop().run_in_executor(_NAMES, look_up)
            except UnicodeError as error:
                # A part of the name is empty, or too long for the system.
                raise OSError(None, "the host has no name that can be looked up") from error
            return [
                ResolveResult(hostname=host, host=str(place[0]), port=port, family=kind, proto=proto, flags=0)
                for kind, _, proto, _, place in found
            ]

        async def close(self) -> None:
            """Nothing to let go of."""

    return Resolver()


def _download(response: aiohttp.ClientResponse, host: str) -> Download:
    """What an answer holds. Raises DownloadFailed."""
    if response.status != 200:
        raise DownloadFailed(f"{host} answered with status {response.status} instead of the file.")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise DownloadFailed(f"{host} sent it compressed, though asked not to.")
    return Download(response.content_length, response.content_type, response.content.iter_chunked(_CHUNK))


# Of an address that is refused nothing more is said than of one where nobody answers: whoever names the URL could learn
# of the network behind the adapter.
_TOLD: dict[type[AdapterError], str] = {
    UpstreamUnreachable: "cannot be reached at a public address",
    UpstreamSilent: "sent nothing for too long (uploads.stall_timeout_seconds)",
    UpstreamBroken: "broke off its answer, or sent no valid one",
}


@asynccontextmanager
async def _told_of(host: str) -> AsyncIterator[None]:
    """Raise DownloadFailed in place of failures of the network."""
    try:
        yield
    except tuple(_TOLD) as error:
        raise DownloadFailed(f"{host} {_TOLD[type(error)]}.") from None


async def _kinds_of(host: str) -> Collection[NetworkKind]:
    """The kinds of networks in which a host is; none for a name that leads nowhere."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return {network_kind(str(place[0])) for *_, place in found}


def _near_socket(kinds: Collection[NetworkKind], found: aiohttp.AddrInfoType) -> socket.socket:
    """A socket for a connection to the very address that was ``found`` for a name, or that stood in the URL: whatever a
    name leads to when it is asked again (DNS rebinding). Raises OSError for one in another private network.
    """
    family, kind, protocol, _, place = found
    network = network_kind(str(place[0]))
    if network != "public" and network not in kinds:
        raise OSError(None, "the host has an address in a private network")
    return socket.socket(family, kind, protocol)


def _unreachable(why: str | None) -> UpstreamUnreachable:
    """The failure of a request to an authorization server; of hosts of downloads their own names are told."""
    if why is None:
        return UpstreamUnreachable("The authorization server cannot be reached; try again when it is back.")
    return UpstreamUnreachable(
        f"The authorization server cannot be reached: {why}. Try again when it is back."
    )


@asynccontextmanager
async def _translated(timeout: float) -> AsyncIterator[None]:
    """Raise the catalogue's failures in place of the library's."""
    import aiohttp

    try:
        yield
    except TimeoutError as error:
        raise UpstreamSilent(f"The document did not arrive within {timeout:g} s.") from error
    except aiohttp.ClientConnectorError as error:
        cause = error if isinstance(error, ssl.SSLError) else error.os_error
        if cause.errno in NO_FILES:
            raise connect_failure(cause) from error
        raise _unreachable(connect_problem(cause)) from error
    except aiohttp.ClientResponseError as error:
        raise UpstreamBroken("The server's answer is not valid HTTP.") from error
    except aiohttp.ClientPayloadError as error:
        raise UpstreamBroken("The server broke off its answer.") from error
    except aiohttp.ClientConnectionError as error:
        raise _unreachable("it closed the connection before it answered") from error
    except aiohttp.ClientError as error:
        raise _unreachable(None) from error
