"""Which connection serves which request, when one is tried again, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from adapter.errors import LimitReached, UpstreamUnanswered, UpstreamUnreachable
from adapter.upstream.connection import KEPT_SECONDS, Connection, kept_for
from adapter.upstream.http import HttpUpstream
from adapter.upstream.pool import Pool
from adapter.upstream.port import Purpose, UpstreamRequest
from adapter.upstream.timeouts import ExchangeLimit
from tests.upstream.raw_peer import GET, OK, PATIENCE, PING, POST, Peer, Site, answer_all, body_of, sent

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def say_ok(peer: Peer) -> None:
    await peer.says(OK)


async def warmed(upstream: HttpUpstream, site: Site) -> Peer:
    """A kept connection that has served one exchange."""
    peer, sending = await sent(upstream, site)
    await peer.says(OK)
    await sending
    return peer


async def test_calls_in_a_row_share_one_connection(upstream: HttpUpstream, site: Site) -> None:
    """A thousand sequential calls open one connection."""
    serving = asyncio.create_task(answer_all(site, say_ok))
    for _ in range(1000):
        assert (await upstream.send(POST, PATIENCE)).whole == b"{}"
    assert site.accepted == 1
    assert repr(upstream) == f"<HttpUpstream '{site.url()}': 0 active, 1 idle>"
    serving.cancel()


async def test_connection_is_free_before_the_last_bytes_are_read(upstream: HttpUpstream, site: Site) -> None:
    """A complete answer keeps its bytes, not its connection; its abort harms nobody."""
    serving = asyncio.create_task(answer_all(site, say_ok))
    first = await upstream.send(POST, PATIENCE)
    second = await upstream.send(POST, PATIENCE)
    first.abort()
    assert await body_of(first) == await body_of(second) == b"{}"
    assert site.accepted == 1
    serving.cancel()


async def test_answered_connection_that_says_close_is_not_kept(upstream: HttpUpstream, site: Site) -> None:
    """After "Connection: close" the next request gets a new connection."""
    peer = await warmed(upstream, site)
    sending = asyncio.create_task(upstream.send(POST, PATIENCE))
    await peer.request()
    await peer.says(b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\n{}")
    assert (await sending).whole == b"{}"
    await peer.left()
    await warmed(upstream, site)
    assert site.accepted == 2


async def test_second_failure_is_told(upstream: HttpUpstream, site: Site) -> None:
    """The new connection is not replaced in its turn."""
    stale = await warmed(upstream, site)
    sending = asyncio.create_task(upstream.send(PING, PATIENCE))
    await stale.request()
    stale.reset()
    peer = await site.accept()
    await peer.request()
    peer.hang_up()
    with pytest.raises(UpstreamUnreachable, match="before it answered"):
        await sending
    assert site.accepted == 2


@pytest.mark.parametrize(("request_", "failure"), [(POST, UpstreamUnanswered), (PING, UpstreamUnreachable)])
async def test_new_connection_is_never_tried_again(
    upstream: HttpUpstream, site: Site, request_: UpstreamRequest, failure: type[Exception]
) -> None:
    """A server that closes a connection on its first request does so on the next one too."""
    peer, sending = await sent(upstream, site, request_)
    peer.hang_up()
    with pytest.raises(failure):
        await sending
    assert site.accepted == 1


async def test_connection_that_is_just_closing_is_not_used(upstream: HttpUpstream, site: Site) -> None:
    """The socket tells of the end before the loop has seen it, so no call is written into it."""
    peer = await warmed(upstream, site)
    peer.hang_up_at_once()
    await warmed(upstream, site)
    assert site.accepted == 2
    assert await peer.reader.read() == b""


async def answered(upstream: HttpUpstream, peer: Peer, keep_alive: bytes) -> None:
    """One exchange on that connection, whose answer has this Keep-Alive field."""
    sending = asyncio.create_task(upstream.send(POST, PATIENCE))
    await peer.request()
    await peer.says(OK.replace(b"\r\n", b"\r\nKeep-Alive: %s\r\n" % keep_alive, 1))
    assert (await sending).status == 200


async def test_connection_is_used_no_longer_than_its_server_keeps_it(
    upstream: HttpUpstream, site: Site
) -> None:
    """Of a Keep-Alive of one second half is used, of one of none nothing."""
    peer = await warmed(upstream, site)
    await answered(upstream, peer, b"timeout=1, max=5")
    await answered(upstream, peer, b"timeout=1, max=4")
    await asyncio.sleep(0.55)
    second = await warmed(upstream, site)
    await peer.left()
    await answered(upstream, second, b"timeout=0")
    await second.left()
    await warmed(upstream, site)
    assert site.accepted == 3


@pytest.mark.parametrize(
    ("field", "seconds"),
    [
        (b"timeout=5", 4.0),
        (b"timeout=5, max=1000", 4.0),
        (b'max=7, Timeout = "60"', 59.0),
        (b"timeout=1", 0.5),
        (b"timeout=0", 0.0),
        (b"max=7", KEPT_SECONDS),
        (b"xtimeout=9", KEPT_SECONDS),
        (b"timeout=-1", KEPT_SECONDS),
        (b"", KEPT_SECONDS),
    ],
)
def test_what_keep_alive_says(field: bytes, seconds: float) -> None:
    """Less than the server says, for what is sent at the last moment arrives later; four seconds where it says
    nothing.
    """
    assert kept_for(field) == seconds


async def test_connection_closed_while_idle_is_dropped(upstream: HttpUpstream, site: Site) -> None:
    """An end that is seen in time is no failure at all."""
    peer = await warmed(upstream, site)
    peer.hang_up()
    await peer.left()
    await warmed(upstream, site)
    assert site.accepted == 2


@pytest.mark.parametrize("surplus", [OK, b"HTTP/1.1 408 Request Timeout\r\n\r\n", b"H", b"garbage"])
async def test_unasked_bytes_never_answer_the_next_request(
    upstream: HttpUpstream, site: Site, surplus: bytes
) -> None:
    """What follows an answer, at once or later, ends the connection instead of answering somebody else."""
    peer, sending = await sent(upstream, site)
    await peer.says(OK + surplus)
    assert (await sending).whole == b"{}"
    await peer.left()
    later = await warmed(upstream, site)
    await later.says(surplus)
    await later.left()
    await warmed(upstream, site)
    assert site.accepted == 3


async def test_early_answer_does_not_leave_a_poisoned_connection(upstream: HttpUpstream, site: Site) -> None:
    """When the answer overtakes the request, the rest of the request is not taken for the next one."""
    large = type(POST)("POST", [], bytes(64 * 1024 * 1024))
    sending = asyncio.create_task(upstream.send(large, PATIENCE))
    peer = await site.accept()
    await peer.says(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    assert (await sending).status == 413
    assert repr(upstream).endswith("0 idle>")


async def test_idle_connections_grow_old(site: Site) -> None:
    """A connection nobody needs is closed after ``idle_ttl`` seconds."""
    upstream = HttpUpstream(site.url(), idle_ttl=0.05)
    peer = await warmed(upstream, site)
    await peer.left()
    assert repr(upstream).endswith("0 active, 0 idle>")
    await upstream.close()


@pytest.mark.timed
async def test_as_many_connections_are_kept_as_were_used(site: Site) -> None:
    """After a burst the next one opens none, however large; what is not needed any more goes with time."""
    upstream = HttpUpstream(site.url(), idle_ttl=1.5)
    serving = asyncio.create_task(answer_all(site, say_ok))
    for _ in range(3):
        await asyncio.gather(*(upstream.send(POST, PATIENCE) for _ in range(200)))
    assert site.accepted == 200
    assert repr(upstream).endswith("0 active, 200 idle>")
    async with asyncio.timeout(PATIENCE):
        while not repr(upstream).endswith("0 active, 1 idle>"):
            await upstream.send(POST, PATIENCE)
            await asyncio.sleep(0.05)
    serving.cancel()
    await upstream.close()


async def test_full_pool_queues_in_order(site: Site) -> None:
    """At the limit, requests wait their turn for the connection that becomes free."""
    upstream = HttpUpstream(site.url(), max_connections=1)
    sending = [asyncio.create_task(upstream.send(POST, PATIENCE)) for _ in range(3)]
    peer = await site.accept()
    for task in sending:
        await peer.request()
        assert not task.done()
        await peer.says(OK)
        assert (await task).whole == b"{}"
    assert site.accepted == 1
    await upstream.close()


async def test_full_pool_names_its_setting(site: Site) -> None:
    """Who waits too long learns which limit was hit, and the place is not lost."""
    upstream = HttpUpstream(site.url(), max_connections=1, connect_timeout=0.5)
    holding = asyncio.create_task(upstream.send(POST, None))
    peer = await site.accept()
    await peer.request()
    with pytest.raises(LimitReached, match=r"upstream\.max_connections") as refused:
        await upstream.send(POST, PATIENCE)
    assert refused.value.data == {"limit": 1, "setting": "core.upstream.max_connections", "retry_after": 1}
    waiting = asyncio.create_task(upstream.send(POST, PATIENCE))
    await asyncio.sleep(0)
    holding.cancel()
    other = await site.accept()
    await other.request()
    await other.says(OK)
    assert (await waiting).whole == b"{}"
    await upstream.close()


async def test_streams_calls_and_pings_do_not_take_each_others_places(site: Site) -> None:
    """One stream more than there may be is refused at once, calls and pings go on beside all of them."""
    upstream = HttpUpstream(site.url(), max_connections=1, max_streams=2)
    pinging = UpstreamRequest("POST", [], b"{}", purpose=Purpose.PING)
    peers: list[Peer] = []
    for request in (GET, GET, POST):
        sending = asyncio.create_task(upstream.send(request, PATIENCE))
        peers.append(await site.accept())
        await peers[-1].request()
        await peers[-1].says(STREAM_HEAD)
        await sending
    with pytest.raises(LimitReached, match=r"All 2 streams .* core\.upstream\.max_connections"):
        await upstream.send(GET, PATIENCE)
    peer, sending = await sent(upstream, site, pinging)
    await peer.says(OK)
    assert (await sending).whole == b"{}"
    peers[0].reset()
    await peers[0].gone()
    await asyncio.sleep(0.01)
    sending = asyncio.create_task(upstream.send(GET, PATIENCE))
    await peer.request()
    await peer.says(STREAM_HEAD)
    assert (await sending).status == 200
    await upstream.close()


async def test_calls_that_became_long_streams_make_room_for_calls(site: Site) -> None:
    """An answer that has been coming in for long counts as a stream when calls have no place left."""
    upstream = HttpUpstream(site.url(), max_connections=1, max_streams=1, connect_timeout=0.2, long_call=0.1)
    sending = asyncio.create_task(upstream.send(POST, PATIENCE))
    streaming = await site.accept()
    await streaming.request()
    await streaming.says(STREAM_HEAD)
    long = await sending
    await asyncio.sleep(0.15)
    await warmed(upstream, site)
    with pytest.raises(LimitReached, match="streams"):
        await upstream.send(GET, PATIENCE)
    await streaming.says(b"2\r\nhi\r\n0\r\n\r\n")
    assert await body_of(long) == b"hi"
    sending = asyncio.create_task(upstream.send(GET, PATIENCE))
    await asyncio.sleep(0)
    assert repr(upstream).endswith("1 active, 1 idle>")
    sending.cancel()
    await upstream.close()


async def test_cancelled_turn_goes_to_the_next(site: Site) -> None:
    """Who gives up in the very moment of being served passes the connection on."""

    async def dial(released: Callable[[Connection], None], lost: Callable[[Connection], None]) -> Connection:
        loop = asyncio.get_running_loop()
        _, dialled = await loop.create_connection(
            lambda: Connection(loop, released, lost), "127.0.0.1", site.port
        )
        releases.append(released)
        return dialled

    releases: list[Callable[[Connection], None]] = []
    places, told = (
        ExchangeLimit[Connection](1, patience=PATIENCE, noun="connections", setting=""),
        list[bool](),
    )
    places.on_wait = lambda seconds, given: told.append(given)
    pool = Pool(dial, idle_ttl=PATIENCE, streams=places)
    connection = await pool.take(places)
    gives_up, patient = asyncio.create_task(pool.take(places)), asyncio.create_task(pool.take(places))
    await asyncio.sleep(0)
    releases[0](connection)
    gives_up.cancel()
    assert await patient is connection
    assert (pool.active, pool.idle, places.taken) == (1, 0, 1)
    assert sorted(told) == [False, True] and (pool.opened, pool.kept) == (1, 1)
    await pool.close()
    assert (pool.active, pool.idle, places.taken) == (0, 0, 0)


async def test_refused_connection_is_unreachable() -> None:
    """A port nobody listens on is told without naming it."""
    upstream = HttpUpstream("http://127.0.0.1:1/secret?key=1")
    with pytest.raises(
        UpstreamUnreachable, match=r"cannot be reached: it refused the connection\. Try again"
    ):
        await upstream.send(POST, PATIENCE)
    assert repr(upstream) == "<HttpUpstream 'http://127.0.0.1:1/secret': 0 active, 0 idle>"


async def test_unknown_host_is_unreachable() -> None:
    """A name that cannot be resolved is told without naming it."""
    upstream = HttpUpstream("http://nowhere.invalid/mcp", connect_timeout=PATIENCE)
    with pytest.raises(UpstreamUnreachable):
        await upstream.send(POST, PATIENCE)
