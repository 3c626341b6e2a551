"""Outgoing HTTP requests that are not the relay's, on aiohttp's client: the few to issuers of keys and tokens.

Import this module late: an adapter that makes no such request does without the library.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial

import aiohttp

from adapter.errors import UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.rules.access.network_addresses import NetworkKind, network_kind
from adapter.upstream.http import UpstreamAddress, connect_failure
from adapter.upstream.port import unreachable

_CHUNK = 1 << 16


class OutgoingHttp:
    """Requests of ``timeout`` seconds each, connection and answer together, whose answers have ``limit`` bytes at most.

    Servers are known by the certificates that the system trusts. No redirect is followed, no cookie is kept, and no
    proxy of the environment is used. The constructor reads files, which is work for a thread.

    ``near`` is the host of who named the URLs that are asked: connections to private addresses are then only made in
    networks of the same kind as that host's own: it must not reach others through the adapter.
    """

    def __init__(self, *, timeout: float, limit: int, near: str | None = None) -> None:
        self._near = near
        self._timeout = timeout
        self._limit = limit
        self._tls = ssl.create_default_context()

    async def get(self, url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of a document at ``url`` (http or https); the body is read for status 200 only.

        Raises UpstreamUnreachable; UpstreamSilent when it took too long; UpstreamBroken for what is no HTTP, breaks
        off, or is too large; ValueError for what is no such URL. None of their sentences holds the URL.
        """
        UpstreamAddress(url)
        async with (
            _translated(self._timeout),
            await self._session() as session,
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            return response.status, await self._body(response) if response.status == 200 else b""

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of the answer to a POST, whatever its status is. Raises as ``get``."""
        UpstreamAddress(url)
        async with (
            _translated(self._timeout),
            await self._session() as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            return response.status, await self._body(response)

    async def _session(self) -> aiohttp.ClientSession:
        make = None if self._near is None else partial(_near_socket, await _kinds_of(self._near))
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, force_close=True, socket_factory=make),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            auto_decompress=False,
        )

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > self._limit:
                raise UpstreamBroken(f"The document is larger than {self._limit} bytes.")
        return bytes(body)


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
