"""Outgoing HTTP requests that are not the relay's, on aiohttp's client: the few to issuers of keys and tokens.

An adapter that makes no such request does without the library.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from adapter.errors import UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.rules.access.network_addresses import NetworkKind, network_kind
from adapter.upstream.http import UpstreamAddress, connect_failure
from adapter.upstream.port import unreachable

if TYPE_CHECKING:
    import aiohttp

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
        self._loading: asyncio.Future[ssl.SSLContext] | None = None

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
        tls = await self._loaded()
        import aiohttp

        make = None if self._near is None else partial(_near_socket, await _kinds_of(self._near))
        async with (
            _translated(self._timeout),
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls, force_close=True, socket_factory=make),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                auto_decompress=False,
            ) as session,
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

    async def _loaded(self) -> ssl.SSLContext:
        if self._loading is None:
            # In a thread: to load the library and to read the certificates takes longer than a call may wait.
            self._loading = asyncio.ensure_future(asyncio.to_thread(_load))
        try:
            return await asyncio.shield(self._loading)
        except Exception:
            self._loading = None
            raise


def token_http(near: str | None = None) -> IssuerHttp:
    """Requests for tokens, and for the metadata of who issues them; ``near`` as for IssuerHttp."""
    return IssuerHttp(timeout=TOKEN_TIMEOUT, limit=LARGEST_TOKENS, near=near)


def _load() -> ssl.SSLContext:
    import aiohttp  # noqa: F401 (for those who ask)

    return ssl.create_default_context()


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


@asynccontextmanager
async def _translated(timeout: float) -> AsyncIterator[None]:
    """Raise the catalogue's failures in place of the library's."""
    import aiohttp

    try:
        yield
    except TimeoutError as error:
        raise UpstreamSilent(f"The document did not arrive within {timeout:g} s.") from error
    except aiohttp.ClientConnectorError as error:
        raise connect_failure(error if isinstance(error, ssl.SSLError) else error.os_error) from error
    except aiohttp.ClientResponseError as error:
        raise UpstreamBroken("The upstream server's answer is not valid HTTP.") from error
    except aiohttp.ClientPayloadError as error:
        raise UpstreamBroken("The upstream server broke off its answer.") from error
    except aiohttp.ClientConnectionError as error:
        raise unreachable("it closed the connection before it answered") from error
    except aiohttp.ClientError as error:
        raise UpstreamUnreachable from error
