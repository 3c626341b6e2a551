"""Streams of servers that do not keep to the transport, or are not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapter.errors import UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import header
from adapter.upstream.sse.stream import LONGEST_ENDPOINT, SseAddress, target_of
from tests.upstream.raw_peer import PATIENCE
from tests.upstream.sse.clients import INITIALIZE, Front
from tests.upstream.sse.scripted_server import OPENED, SseSite

URL = "https://mcp.example/a/sse?key=1"
ADDRESS = SseAddress(HttpUpstream(URL), URL, 1 << 20, PATIENCE)


@pytest.mark.parametrize(
    ("uri", "target"),
    [
        (b"/m?s=1", "https://mcp.example/m?s=1"),
        (b"m", "https://mcp.example/a/m"),
        (b"https://MCP.example:443/m", "https://MCP.example:443/m"),
        (b"//mcp.example/m", "https://mcp.example/m"),
        (b"/\\\\evil.example/m", "https://mcp.example/\\\\evil.example/m"),
    ],
)
async def test_an_endpoint_is_of_the_upstreams_origin(uri: bytes, target: str) -> None:
    """A URI is resolved as a link on the page of the upstream's URL would be."""
    assert target_of(uri, ADDRESS) == target


@pytest.mark.parametrize(
    "uri",
    [
        b"http://mcp.example/m",
        b"https://mcp.example:8443/m",
        b"https://evil.example/m",
        b"//evil.example/m",
        b"https://mcp.example@evil.example/m",
        b"https://user:pass@mcp.example/m",
        b"https://mcp.example.evil.example/m",
        b"https://[::1/m",
        b"https://mcp.example:x/m",
        b"file:///etc/passwd",
        b"javascript:alert(1)",
        b"/m\tx",
        b"/m x",
        b"/\xc3\xa9",
        b"/" + b"x" * LONGEST_ENDPOINT,
    ],
)
async def test_any_other_endpoint_is_refused(uri: bytes) -> None:
    """Scheme, host and port are those of the URL, and the URI has nothing that another reader could take otherwise."""
    with pytest.raises(UpstreamBroken, match="named an endpoint that is"):
        target_of(uri, ADDRESS)


async def test_an_endpoint_elsewhere_gets_no_message(site: SseSite, front: Front) -> None:
    """The client is told why, and the stream is dropped."""
    waits = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens(site.origin("localhost") + "/messages")
    with pytest.raises(UpstreamBroken, match="scheme, host and port must be the same"):
        await waits
    await stream.left()
    assert site.posts.empty()


async def test_an_endpoint_that_never_comes_is_waited_for_so_long(site: SseSite) -> None:
    """Comments, messages and a part of an event do not count."""
    front = Front(site, patience=0.05)
    waits = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens(None)
    await stream.sends(b": ping\n\n", b"data: {}\n\n", b"event: endpoint\n\n", b"event: endpoint\ndata: /m\n")
    with pytest.raises(UpstreamSilent, match=r"named no endpoint .* within 0\.05 s"):
        await waits
    await stream.left()
    await front.close()


async def test_a_stream_that_ends_before_its_endpoint_is_broken(site: SseSite, front: Front) -> None:
    """The client does not wait for one that cannot come."""
    waits = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens(None)
    await stream.ends()
    with pytest.raises(UpstreamBroken, match="before it named an endpoint"):
        await waits


async def test_an_event_without_an_end_takes_no_memory(site: SseSite) -> None:
    """What is longer than the limit is read past, and the endpoint behind it is found."""
    front = Front(site, limit=1000)
    waits = front.posting(INITIALIZE)
    stream = await (await site.stream()).opens(None)
    await stream.sends(b"data: " + b"x" * 100_000, b"y" * 100_000 + b"\n\n")
    await stream.sends(b"event: endpoint\ndata: /m\n\n")
    assert (await site.post()).target == "/m"
    waits.cancel()
    await front.close()


@pytest.mark.parametrize("status", [401, 404, 405, 503])
async def test_a_server_that_opens_no_stream_is_quoted(site: SseSite, front: Front, status: int) -> None:
    """Its status, fields and text are the answer to initialize."""
    waits = front.posting(INITIALIZE)
    stream = await site.stream()
    await stream.refuses(b"HTTP/1.1 %d No\r\nWWW-Authenticate: Bearer x" % status, b"not you")
    reply = await waits
    assert (reply.status, reply.whole, header(reply.headers, "www-authenticate")) == (
        status, b"not you", "Bearer x",
    )  # fmt: skip
    assert header(reply.headers, "content-length") is None
    assert repr(front.server) == "<SseServer: 0 sessions>"


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip",
    ],
)
async def test_what_is_no_stream_is_told(site: SseSite, front: Front, head: bytes) -> None:
    """The sentence names the likely cause."""
    waits = front.posting(INITIALIZE)
    await (await site.stream()).refuses(head, b"{}")
    with pytest.raises(UpstreamBroken, match="no event stream"):
        await waits


async def test_a_server_that_is_not_there_is_unreachable(site: SseSite, front: Front) -> None:
    """As for any upstream; a stream that was promised and broke off is broken."""
    gone = Front(site)
    gone.server._address = replace(ADDRESS, http=HttpUpstream("http://127.0.0.1:1/sse"))
    with pytest.raises(UpstreamUnreachable):
        await gone.post(INITIALIZE)
    await gone.close()
    waits = front.posting(INITIALIZE)
    stream = await site.stream()
    await stream.peer.says(OPENED)
    stream.breaks()
    with pytest.raises(UpstreamBroken):
        await waits
