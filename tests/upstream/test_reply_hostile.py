"""An upstream that lies about where its answer ends must not reach the next exchange."""

from __future__ import annotations

import contextlib

import pytest

from adapter.errors import UpstreamBroken
from adapter.upstream.http import HttpUpstream
from tests.upstream.raw_peer import PATIENCE, Site, body_of, sent

START = b"HTTP/1.1 200 OK\r\n"
HEADS = {
    "two lengths": START + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "list of lengths": START + b"Content-Length: 3, 4\r\n\r\nabcd",
    "length and chunks": START + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": START + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "negative length": START + b"Content-Length: -1\r\n\r\n",
    "signed length": START + b"Content-Length: +3\r\n\r\nabc",
    "endless length": START + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "coding unknown here": START + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked is not last": START + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "space before the colon": START + b"Content-Length : 3\r\n\r\nabc",
    "folded value": START + b"X: a\r\n b: c\r\n\r\n",
    "bare CR": START + b"X: a\rSet-Cookie: b\r\n\r\n",
    "bare LF": START + b"X: a\nSet-Cookie: b\r\n\r\n",
    "NUL": START + b"X: a\0b\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a request": b"GET / HTTP/1.1\r\n\r\n",
    "a change of protocol": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n\x00\x01",
    "no status": b"HTTP/1.1 099 Huh\r\nContent-Length: 0\r\n\r\n",
    "large head at once": START + b"X: " + b"a" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n",
    "head without end": START + b"X: y\r\n" * 20_000,
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 4_000,
}
CHUNKS = [
    b"-3\r\nabc\r\n",
    b"fffffffffffffffff\r\nabc",
    b"3\r\nabcd\r\n0\r\n\r\n",
    b"zz\r\n",
    b"3\nabc\n0\n\n",
]


@pytest.mark.parametrize("name", HEADS)
async def test_doubtful_head_is_refused(upstream: HttpUpstream, site: Site, name: str) -> None:
    """A head that two readers could understand differently ends the exchange and the connection."""
    peer, sending = await sent(upstream, site)
    await peer.says(HEADS[name])
    with pytest.raises(UpstreamBroken):
        await sending
    await peer.left()


@pytest.mark.parametrize("chunks", CHUNKS)
async def test_doubtful_chunks_are_refused(upstream: HttpUpstream, site: Site, chunks: bytes) -> None:
    """A chunk whose size is not what it says breaks the body off."""
    peer, sending = await sent(upstream, site)
    await peer.says(START + b"Transfer-Encoding: chunked\r\n\r\n", chunks)
    reply = await sending
    with pytest.raises(UpstreamBroken):
        await body_of(reply)
    await peer.left()


async def test_trailers_do_not_become_headers(upstream: HttpUpstream, site: Site) -> None:
    """Fields behind a chunked body are dropped: they came after every decision was made."""
    peer, sending = await sent(upstream, site)
    await peer.says(START + b"Transfer-Encoding: chunked\r\n\r\n0\r\nSet-Cookie: a=b\r\nX: y\r\n\r\n")
    reply = await sending
    assert reply.headers == [("Transfer-Encoding", "chunked")]
    assert reply.whole == b""


@pytest.mark.parametrize("endless", [b"1;x=", b"0\r\nX-Trailer: "], ids=["chunk extension", "trailer"])
async def test_framing_without_an_end_is_cut(upstream: HttpUpstream, site: Site, endless: bytes) -> None:
    """What comes within a body and is none of it is bounded as a head is: the parser would keep a trailer."""
    peer, sending = await sent(upstream, site)
    await peer.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", endless)
    reply = await sending
    assert await reply.read(PATIENCE) == b"hi"
    with contextlib.suppress(ConnectionError):
        for _ in range(64):
            await peer.says(b"a" * 4096)
    with pytest.raises(UpstreamBroken, match="framing"):
        await reply.read(PATIENCE)
    await peer.left()
