"""Outgoing HTTP requests that are not the relay's, on aiohttp's client: the few to issuers of keys and tokens.

Import this module late: an adapter that makes no such request does without the library.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import aiohttp
from aiohttp.abc import ResolveResult

from adapter.errors import UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.upstream.http import UpstreamAddress, connect_failure
from adapter.upstream.port import unreachable

_CHUNK = 1 << 16


class OutgoingHttp:
    """Requests of ``timeout`` seconds each, connection and answer together, whose answers have ``limit`` bytes at most.

    Servers are known by the certificates that the system trusts. No redirect is followed, no cookie is kept, and no
    proxy of the environment is used. The constructor reads files, which is work for a thread.

    ``near`` is the host of who named the URLs that are asked: names of private addresses are then only followed to
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
            self._session() as session,
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            return response.status, await self._body(response) if response.status == 200 else b""

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of the answer to a POST, whatever its status is. Raises as ``get``."""
        UpstreamAddress(url)
        async with (
            _translated(self._timeout),
            self._session() as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            return response.status, await self._body(response)

    def _session(self) -> aiohttp.ClientSession:
        resolver = None if self._near is None else _NearResolver(self._near)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, force_close=True, resolver=resolver),
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


class _NearResolver(aiohttp.ThreadedResolver):
    """Finds the addresses of public hosts, and of those in networks of the same kind as the host ``near``."""

    def __init__(self, near: str) -> None:
        super().__init__()
        self._near = near

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See AbstractResolver. The connection is made to these very addresses. Raises OSError."""
        found = await super().resolve(host, port, family)
        kinds = {network_kind(each["host"]) for each in found} - {"public"}
        if kinds:
            own = await super().resolve(self._near, port, socket.AF_UNSPEC)
            if not kinds <= {network_kind(each["host"]) for each in own}:
                raise OSError(None, "the host has an address in a private network")
        return found


def network_kind(address: str) -> Literal["public", "private", "local", "loopback"]:
    """The kind of the network of an address; ``local`` is the link's own, where clouds keep their secrets."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_loopback or found.is_unspecified:
        return "loopback"
    if found.is_link_local:
        return "local"
    return "public" if found.is_global else "private"


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
