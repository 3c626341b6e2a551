"""How an answer is read: framing, slicing, pace, and every way in which it can end."""

from __future__ import annotations

import asyncio
import socket
import struct
import zlib

import pytest

from adapter.errors import UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import UpstreamReply, UpstreamRequest
from adapter.upstream.timeouts import SLOW
from tests.upstream.raw_peer import GET, OK, PATIENCE, POST, Peer, Site, body_of

RESET_ON_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello", b"hello"),
    "odd case": (b"HTTP/1.1 200 OK\r\ncONTENT-lENGTH: 5\r\n\r\nhello", b"hello"),
    "chunked": (CHUNKED_HEAD + b"2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: t\r\n\r\n", b"hello"),
    "nothing": (b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", b""),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", b""),
    "interim": (b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n" + OK, b"{}"),
}


async def begin(
    upstream: HttpUpstream, site: Site, request: UpstreamRequest = POST, read_timeout: float | None = PATIENCE
) -> tuple[Peer, asyncio.Task[UpstreamReply]]:
    """A request that has arrived at the peer and waits for its answer."""
    sending = asyncio.create_task(upstream.send(request, read_timeout))
    peer = await site.accept()
    await peer.request()
    return peer, sending


async def test_request_is_written_as_given(upstream: HttpUpstream, site: Site) -> None:
    """A request leaves with its fields in order and nothing added but Host and Content-Length."""
    sending = asyncio.create_task(upstream.send(POST, PATIENCE))
    peer = await site.accept()
    host = f"127.0.0.1:{site.port}".encode()
    assert await peer.request() == (
        b"POST /mcp HTTP/1.1\r\nHost: " + host + b"\r\nAccept: application/json\r\nContent-Length: 8\r\n\r\n"
        b'{"id":1}'
    )
    await peer.says(OK)
    await sending


async def test_whole_answer_comes_with_its_head(upstream: HttpUpstream, site: Site) -> None:
    """An answer that arrives in one piece is whole at once, and can still be read."""
    peer, sending = await begin(upstream, site)
    await peer.says(b"HTTP/1.1 404 Gone\r\nX-oDD: a  b\r\nx-odd: c\r\nContent-Length: 2\r\n\r\n{}")
    reply = await sending
    assert (reply.status, reply.whole) == (404, b"{}")
    assert reply.headers == [("X-oDD", "a  b"), ("x-odd", "c"), ("Content-Length", "2")]
    assert [await reply.read(None), await reply.read(None), await reply.read(None)] == [b"{}", b"", b""]


@pytest.mark.parametrize("name", ANSWERS)
async def test_slicing_never_changes_the_answer(upstream: HttpUpstream, site: Site, name: str) -> None:
    """Wherever the network cuts an answer, the same status and body come out, on one connection."""
    wire, body = ANSWERS[name]
    sending = asyncio.create_task(upstream.send(POST, PATIENCE))
    peer = await site.accept()
    for cut in range(1, len(wire)):
        await peer.request()
        await peer.says(wire[:cut], wire[cut:])
        reply = await sending
        assert await body_of(reply) == body
        sending = asyncio.create_task(upstream.send(POST, PATIENCE))
    await peer.request()
    await peer.says(*(wire[i : i + 1] for i in range(len(wire))))
    assert await body_of(await sending) == body
    assert site.accepted == 1


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", CHUNKED_HEAD + b"9\r\nhello"]
)
async def test_body_that_breaks_off_is_an_error(upstream: HttpUpstream, site: Site, head: bytes) -> None:
    """What came before the break is delivered, then the break is told, each time it is asked."""
    peer, sending = await begin(upstream, site)
    await peer.says(head)
    reply = await sending
    peer.hang_up()
    assert await reply.read(PATIENCE) == b"hello"
    for _ in range(2):
        with pytest.raises(UpstreamBroken):
            await reply.read(PATIENCE)


async def test_reset_is_no_end_of_a_body(upstream: HttpUpstream, site: Site) -> None:
    """A body without a length that ends in a reset was broken off."""
    peer, sending = await begin(upstream, site)
    await peer.says(b"HTTP/1.1 200 OK\r\n\r\nhello")
    reply = await sending
    assert await reply.read(PATIENCE) == b"hello"
    peer.writer.get_extra_info("socket").setsockopt(*RESET_ON_CLOSE)
    peer.reset()
    with pytest.raises(UpstreamBroken):
        await reply.read(PATIENCE)


async def test_head_that_breaks_off_is_an_error(upstream: HttpUpstream, site: Site) -> None:
    """With a byte of answer the request may have run, so it is broken rather than unreachable."""
    peer, sending = await begin(upstream, site)
    await peer.says(b"HTTP/1.1 200 OK\r\nConte")
    peer.hang_up()
    with pytest.raises(UpstreamBroken):
        await sending


async def test_silence_before_the_head(upstream: HttpUpstream, site: Site) -> None:
    """A peer that says nothing is given up after ``read_timeout`` seconds and loses the connection."""
    peer, sending = await begin(upstream, site, read_timeout=0.05)
    with pytest.raises(UpstreamSilent, match=r"no message for 0\.05 s"):
        await sending
    await peer.left()


async def test_silence_in_the_body_leaves_the_answer_intact(upstream: HttpUpstream, site: Site) -> None:
    """A reader may wait a little, do something else, and go on waiting."""
    peer, sending = await begin(upstream, site)
    await peer.says(CHUNKED_HEAD)
    reply = await sending
    for _ in range(2):
        with pytest.raises(UpstreamSilent):
            await reply.read(0.02)
    await peer.says(b"2\r\nhi\r\n0\r\n\r\n")
    assert await body_of(reply) == b"hi"


@pytest.mark.parametrize(("coding", "wbits"), [(b"gzip", 31), (b"Deflate", 15)])
async def test_compressed_comments_end_no_silence(
    upstream: HttpUpstream, site: Site, coding: bytes, wbits: int
) -> None:
    """An event stream is looked into where its server compressed it, on a connection that is used again too."""
    peer, sending = await begin(upstream, site)
    await peer.says(OK)
    await sending
    sending = asyncio.create_task(upstream.send(POST, PATIENCE))
    await peer.request()
    fields = b"Content-Type: text/event-stream\r\nContent-Encoding: " + coding
    await peer.says(CHUNKED_HEAD.replace(b"\r\n\r\n", b"\r\n" + fields + b"\r\n\r\n"))
    reply = await sending
    packer = zlib.compressobj(wbits=wbits)
    begun = asyncio.get_running_loop().time()

    async def read_all() -> None:
        while await reply.read(0.2):
            pass

    reading = asyncio.create_task(read_all())
    while not reading.done() and asyncio.get_running_loop().time() - begun < 0.2 * SLOW / 2:
        ping = packer.compress(b": ping\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
        await peer.says(b"%x\r\n%b\r\n" % (len(ping), ping))
        await asyncio.sleep(0.05)
    assert reading.done()
    with pytest.raises(UpstreamSilent):
        await reading


async def test_shorter_patience_is_kept_after_a_longer_one(upstream: HttpUpstream, site: Site) -> None:
    """The alarm that outlives a wait of hours does not delay the next wait of milliseconds."""
    peer, sending = await begin(upstream, site, read_timeout=3600)
    await peer.says(OK)
    await sending
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(UpstreamSilent):
            await upstream.send(POST, 0.02)


async def test_cancelled_send_drops_the_connection(upstream: HttpUpstream, site: Site) -> None:
    """Who stops waiting for the head takes the connection down; the peer sees it."""
    peer, sending = await begin(upstream, site, read_timeout=None)
    sending.cancel()
    await peer.left()
    assert repr(upstream).endswith("0 active, 0 idle>")


async def test_abort_drops_the_connection(upstream: HttpUpstream, site: Site) -> None:
    """An aborted answer frees the peer at once, and reading on is an error; twice is as good as once."""
    peer, sending = await begin(upstream, site)
    await peer.says(CHUNKED_HEAD)
    reply = await sending
    reading = asyncio.create_task(reply.read(None))
    await asyncio.sleep(0)
    reply.abort()
    reply.abort()
    await peer.left()
    with pytest.raises(UpstreamBroken):
        await reading


async def test_close_ends_what_is_under_way(upstream: HttpUpstream, site: Site) -> None:
    """Closing the upstream ends streams and calls with an error and refuses new ones."""
    peer, sending = await begin(upstream, site, GET)
    await peer.says(CHUNKED_HEAD)
    reply = await sending
    _, waiting = await begin(upstream, site)
    await upstream.close()
    with pytest.raises(UpstreamBroken):
        await reply.read(PATIENCE)
    with pytest.raises(UpstreamBroken):
        await waiting
    with pytest.raises(UpstreamUnreachable):
        await upstream.send(POST, PATIENCE)
