"""What callers without a credential may see where there are no tokens: more on this machine than through a proxy."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import orjson
import pytest

from adapter.edge.http.access import Bases, Guard
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Request
from adapter.settings.core import Core
from tests.edge.conftest import Adapter, StartRoad
from tests.edge.raw import RawClient

OPEN = {"console": {"enabled": True}, "telemetry": {"prometheus": {"enabled": True}}}
PINGED = {"upstream_ping": {"enabled": True}}
BY_A_PROXY: list[dict[str, str]] = [
    {"Forwarded": "for=192.0.2.7"},
    {"Via": "1.1 proxy"},
    {"X-Real-IP": "192.0.2.7"},
    {"x-forwarded-for": "192.0.2.7"},
    {"X-Forwarded-Proto": "https"},
    {"X-Forwarded-Whatever": "1"},
    {"host": "tools.example"},
]


async def answers(front: Adapter, **fields: str) -> dict[str, tuple[int, Any]]:
    """Status and body of what only operators may see."""
    async with front.client() as client:
        asked = {}
        for path in ("/metrics", "/explorer/-/servers", "/healthz"):
            head, body = await client.request("GET", b"", path, **fields)
            asked[path] = head.status, body
        return asked


async def test_a_caller_on_this_machine_is_an_operator(road: StartRoad) -> None:
    """No token is asked for, since nobody else reaches the adapter."""
    async with road(**OPEN) as (_, front, _):
        found = await answers(front)
        assert found["/metrics"][0] == found["/explorer/-/servers"][0] == 200


@pytest.mark.parametrize("fields", BY_A_PROXY)
async def test_a_caller_behind_a_proxy_is_nobody(road: StartRoad, fields: dict[str, str]) -> None:
    """The proxy stands on this machine, and its callers anywhere; the answer says what to enable."""
    core = {"allowed_hosts": ["127.0.0.1", "tools.example"]}
    async with road(core=core, **OPEN) as (_, front, _):
        found = await answers(front, **fields)
        for path in ("/metrics", "/explorer/-/servers"):
            status, body = found[path]
            assert status == 403 and b"enable core.auth" in body, path


@pytest.mark.parametrize(
    ("core", "fields", "told"),
    [
        ({}, {}, True),
        ({}, {"Via": "1.1 proxy"}, False),
        ({"public_base_url": "https://tools.example"}, {}, False),
        ({"host": "0.0.0.0"}, {}, False),
    ],
)
async def test_health_has_details_for_nobody_else(
    road: StartRoad, core: dict[str, Any], fields: dict[str, str], told: bool
) -> None:
    """The text of a failed ping stays on this machine."""
    gone = {"upstream": {"url": "http://127.0.0.1:9/mcp"}}
    async with road(server=gone, core={**PINGED, **core}) as (_, front, _):
        await front.app.server_parts.monitors["raw"].ping_once()
        _, body = (await answers(front, **fields))["/healthz"]
        error = orjson.loads(body)["servers"][0]["ping"]["last_error"]
        assert (error != "failed") == told


# --- the base of the URLs that are handed out --------------------------------------------------------------------


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
