"""Fetching a small document that an issuer publishes, such as its keys."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from adapter.errors import UpstreamBroken

if TYPE_CHECKING:
    from adapter.upstream.outgoing import OutgoingHttp

LARGEST = 1 << 20
"""Bytes of a document that are read unless the caller says otherwise."""

_HEADERS = {
    "Accept": "application/jwk-set+json, application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "mcp-file-adapter",
}


async def fetch_document(url: str, *, timeout: float = 5.0, limit: int = LARGEST) -> bytes:
    """The document at ``url`` (http or https), all of it within ``timeout`` seconds.

    A redirect is not followed. Raises UpstreamUnreachable; UpstreamSilent when it took too long; UpstreamBroken for
    any answer but 200, and one of more than ``limit`` bytes; ValueError for what is no such URL. None of their
    sentences holds the URL.
    """

    def client() -> OutgoingHttp:
        # Here, not above: an adapter without an issuer does not load the library.
        from adapter.upstream.outgoing import OutgoingHttp

        return OutgoingHttp(timeout=timeout, limit=limit)

    # In a thread: to load the library and to read the certificates takes longer than a call may wait for another.
    outgoing = await asyncio.to_thread(client)
    status, document = await outgoing.get(url, _HEADERS)
    if status != 200:
        raise UpstreamBroken(f"The answer has status {status} instead of the document.")
    return document
