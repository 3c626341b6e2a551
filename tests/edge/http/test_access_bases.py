"""The base of the URLs that are handed out: what was configured, or what this client itself can reach."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from ipaddress import ip_network

import pytest

from adapter.edge.http.access import Bases, Guard
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Request
from adapter.settings.core import Core
from tests.edge.raw import RawClient


def guard(*, loopback: bool = True, hosts: list[str] | None = None) -> Guard:
    return Guard(Core(host="127.0.0.1" if loopback else "10.0.0.5", allowed_hosts=hosts))


def bases(public: str | None = None, *, proxies: str | None = None, **guarded: bool | list[str]) -> Bases:
    networks = [ip_network(proxies)] if proxies else []
    return Bases(public, guard(**guarded), networks)  # type: ignore[arg-type]  # the two fields above


@contextlib.asynccontextmanager
async def telling(told: Bases, host: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    """A server that answers every request with its base."""

    async def answer(request: Request) -> None:
        request.reply.send(200, [], told.of(request).encode())

    listener = await Listener.open(answer, host, 0)
    try:
        async with RawClient(listener.address[1]) as client:
            yield client
    finally:
        listener.close()
        await listener.drop()


async def base(client: RawClient, **fields: str) -> str:
    head, body = await client.request("GET", b"", **fields)
    assert head.status == 200
    return body.decode()


FORWARDED = {"x_forwarded_proto": "https", "x_forwarded_host": "files.example:8443"}


async def test_what_is_configured_counts_for_everybody() -> None:
    """No header changes a base that the operator has written down, and no slash ends it."""
    async with telling(bases("https://adapter.example/tools/", proxies="127.0.0.0/8")) as client:
        assert await base(client, **FORWARDED) == "https://adapter.example/tools"


async def test_otherwise_it_is_the_host_that_the_client_named() -> None:
    """The client reached that Host, so it can again."""
    async with telling(bases()) as client:
        assert await base(client, host="localhost:8932") == "http://localhost:8932"
        assert await base(client, host="[::1]:8932") == "http://[::1]:8932"


async def test_forwarded_fields_of_a_stranger_count_for_nothing() -> None:
    """Neither without trusted proxies nor from a peer outside their networks."""
    for told in (bases(), bases(proxies="10.0.0.0/8")):
        async with telling(told) as client:
            assert await base(client, host="localhost:1", **FORWARDED) == "http://localhost:1"


@pytest.mark.parametrize("network", ["127.0.0.1/32", "127.0.0.0/8"])
async def test_a_trusted_proxy_says_what_the_client_sees(network: str) -> None:
    """Scheme and Host of the proxy, though the adapter itself is bound to loopback and serves only that."""
    async with telling(bases(proxies=network)) as client:
        assert await base(client, **FORWARDED) == "https://files.example:8443"
        assert await base(client, host="localhost:1", x_forwarded_proto="https") == "https://localhost:1"


async def test_only_the_nearest_proxys_word_counts() -> None:
    """What stands before it in the list may have come from the client."""
    async with telling(bases(proxies="127.0.0.0/8")) as client:
        said = await base(
            client, x_forwarded_proto="http, https", x_forwarded_host="evil.example, good.example"
        )
        assert said == "https://good.example"


async def test_a_forwarded_host_that_is_not_listed_is_not_handed_out() -> None:
    """Where core.allowed_hosts lists what is served, a proxy that passes any Host on brings none in."""
    async with telling(bases(proxies="127.0.0.0/8", hosts=["good.example"])) as client:
        assert await base(client, x_forwarded_host="good.example") == "http://good.example"
        assert await base(client, x_forwarded_host="evil.example") == ""


@pytest.mark.parametrize(
    "host", ["$(reboot)", "a b", "a/b", "a'b", 'a"b', "user@host", "h\u00f6st", "a:b", "evil.example"]
)
async def test_what_is_no_host_is_never_part_of_a_url(host: str) -> None:
    """URLs are pasted into shells; and a Host that is not served is not handed out either: they are relative then."""
    async with telling(bases(loopback=host == "evil.example")) as client:
        assert await base(client, host=host) == ""


async def test_a_request_without_host_gets_a_relative_url() -> None:
    """HTTP/1.0 has no Host, and an adapter open to the network serves it all the same."""
    async with telling(bases(loopback=False)) as client:
        await client.send_more(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.head()).status == 200
        assert await client.reader.read() == b""
