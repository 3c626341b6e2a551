"""Outgoing HTTP requests that are not the relay's, on aiohttp's client: the few to issuers of keys and tokens.

Import this module late: an adapter that makes no such request does without the library.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from adapter.errors import UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.upstream.http import UpstreamAddress, connect_failure
from adapter.upstream.port import unreachable

_CHUNK = 1 << 16


class OutgoingHttp:
    """Requests of ``timeout`` seconds each, connection and answer together, whose answers have ``limit`` bytes at most.

    Servers are known by the certificates that the system trusts. No redirect is followed, no cookie is kept, and no
    proxy of the environment is used. The constructor reads files, which is work for a thread.
    """

    def __init__(self, *, timeout: float, limit: int) -> None:
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
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, force_close=True),
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
