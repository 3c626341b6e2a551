"""Requests to authorization servers: bounded in time and size, without redirects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from adapter.errors import UpstreamBroken

if TYPE_CHECKING:
    from adapter.upstream.outgoing import OutgoingHttp

TIMEOUT = 5.0
"""Seconds of a request, its connection and its answer together."""

LARGEST = 1 << 20
"""Bytes of an answer. Sets of keys may be as large; other documents are bounded by their values too."""

TOKEN_TIMEOUT = 10.0
"""Seconds of a request for tokens and what belongs to it: a token that was issued and not received may be lost."""

LARGEST_TOKENS = 1 << 18
"""Bytes of an answer to such a request: metadata and tokens have a few thousand."""

FORM = "application/x-www-form-urlencoded"

_HEADERS = {
    "Accept": "application/json, application/jwk-set+json",
    "Accept-Encoding": "identity",
    "User-Agent": "mcp-file-adapter",
}


class IssuerHttp:
    """Asks authorization servers. Answers have ``limit`` bytes at most.

    ``near`` is the host of the upstream that names the servers; None: the settings do. Failures are those of
    ``OutgoingHttp``, whose sentences hold no URL: UpstreamUnreachable, UpstreamSilent, UpstreamBroken, and ValueError
    for what is no URL.
    """

    def __init__(self, *, timeout: float = TIMEOUT, limit: int = LARGEST, near: str | None = None) -> None:
        self._timeout = timeout
        self._limit = limit
        self._near = near
        self._making: asyncio.Future[OutgoingHttp] | None = None

    async def get(self, url: str) -> tuple[int, bytes]:
        """Status and body of a document; the body is read for status 200 only."""
        return await (await self._client()).get(url, _HEADERS)

    async def post(
        self, url: str, body: bytes, kind: str, headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        """Status and body of the answer to a ``body`` of this media type."""
        return await (await self._client()).post(url, body, {**_HEADERS, "Content-Type": kind, **headers})

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

    async def _client(self) -> OutgoingHttp:
        if self._making is None:
            # In a thread: to load the library and to read the certificates takes longer than a call may wait.
            self._making = asyncio.ensure_future(asyncio.to_thread(self._make))
        try:
            return await asyncio.shield(self._making)
        except Exception:
            self._making = None
            raise

    def _make(self) -> OutgoingHttp:
        from adapter.upstream.outgoing import OutgoingHttp

        return OutgoingHttp(timeout=self._timeout, limit=self._limit, near=self._near)


def token_http(near: str | None = None) -> IssuerHttp:
    """Requests for tokens, and for the metadata of who issues them; ``near`` as for IssuerHttp."""
    return IssuerHttp(timeout=TOKEN_TIMEOUT, limit=LARGEST_TOKENS, near=near)
