"""Fetching a small document that an issuer publishes, such as its keys."""

from __future__ import annotations

import asyncio

from adapter.errors import UpstreamBroken, UpstreamSilent
from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import UpstreamReply, UpstreamRequest, always

LARGEST = 1 << 20
"""Bytes of a document that are read unless somebody says otherwise."""

_FIELDS = (
    ("Accept", "application/jwk-set+json, application/json"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", "mcp-file-adapter"),
)


async def fetch_document(url: str, *, timeout: float = 5.0, limit: int = LARGEST) -> bytes:
    """The document at ``url`` (http or https), all of it within ``timeout`` seconds.

    Nothing is asked but what was said: a redirect is not followed. Raises UpstreamUnreachable; UpstreamSilent when it
    took too long; UpstreamBroken for any answer but 200, and one of more than ``limit`` bytes; ValueError for what
    is no such URL. None of their sentences holds the URL.
    """
    # In a thread: to read the certificates that are trusted takes longer than a call may wait for another.
    upstream = await asyncio.to_thread(HttpUpstream, url, connect_timeout=timeout, max_connections=1)
    try:
        async with asyncio.timeout(timeout):
            reply = await upstream.send(UpstreamRequest("GET", _FIELDS, repeatable=always), timeout)
            return await _body(reply, limit, timeout)
    except TimeoutError as error:
        raise UpstreamSilent(f"The document did not arrive within {timeout:g} s.") from error
    finally:
        await upstream.close()


async def _body(reply: UpstreamReply, limit: int, read_timeout: float) -> bytes:
    try:
        if reply.status != 200:
            raise UpstreamBroken(f"The answer has status {reply.status} instead of the document.")
        body = bytearray()
        while chunk := await reply.read(read_timeout):
            body += chunk
            if len(body) > limit:
                raise UpstreamBroken(f"The document is larger than {limit} bytes.")
        return bytes(body)
    finally:
        reply.abort()
