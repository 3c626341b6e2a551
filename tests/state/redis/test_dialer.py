"""Connections: through Sentinel to the primary of the moment, and over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.errors import StoreUnavailable
from adapter.state.redis.address import RedisServer, parse_address
from adapter.state.redis.dialer import Dialer, RedisTls
from adapter.state.redis.layout import Layout
from adapter.state.redis.nodes import RedisTimes
from adapter.state.redis.store import RedisStore
from tests.hosted.databases import PASSWORD, URL_PASSWORD, Server
from tests.ports import free_port
from tests.state.redis import certificates, servers
from tests.state.redis.listening import Ear

TIMES = RedisTimes(timeout=2.0, cache=0.5)


@pytest.fixture
def watched() -> Iterator[tuple[Server, Server, Server]]:
    """A primary, its replica, and a Sentinel that watches them as ``main``."""
    with ExitStack() as stack:
        login = ("--masterauth", PASSWORD)
        primary = stack.enter_context(servers.single(*login))
        following = (*login, "--replicaof", servers.HOST, str(primary.port))
        replica = stack.enter_context(servers.single(*following))
        servers.until(replica, "master_link_status:up", "INFO", "replication", password=PASSWORD)
        yield primary, replica, stack.enter_context(servers.sentinel("main", primary))


def store_behind(sentinel: Server, service: str = "main") -> RedisStore:
    url = f"redis+sentinel://:{URL_PASSWORD}@127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/{service}/1"
    return RedisStore(Dialer(parse_address(url), 2.0), Layout("test", 4), TIMES)


async def test_sentinel_names_the_primary(watched: tuple[Server, Server, Server]) -> None:
    """The store finds the primary, also if the first Sentinel is away, and the new one after a failover."""
    primary, replica, sentinel = watched
    store, other = store_behind(sentinel), store_behind(sentinel)
    ear = Ear()
    store.listeners.append(ear)
    await store.open()
    await store.put("sessions", "a", b"1")
    servers.until(sentinel, f"port\n{replica.port}\n", "SENTINEL", "REPLICAS", "main")
    servers.until(sentinel, "OK", "SENTINEL", "FAILOVER", "main")
    servers.until(replica, "role:master", "INFO", "replication", password=PASSWORD)
    servers.until(primary, "role:slave", "INFO", "replication", password=PASSWORD)
    async with asyncio.timeout(20):
        while True:
            try:
                await store.put("sessions", "b", b"2")
                break
            except StoreUnavailable:
                await asyncio.sleep(0.05)
    layout = Layout("test", 4)
    rows = layout.keys_of("sessions", layout.partition_of("b")).rows
    assert "1" in servers.command(replica, "-n", "1", "EXISTS", rows.decode())
    assert await store.get("sessions", "a") is not None
    await ear.until_hearing(other)
    await store.close()


async def test_a_service_that_sentinel_does_not_know(watched: tuple[Server, Server, Server]) -> None:
    """The sentence says that nobody knows a primary."""
    with pytest.raises(StoreUnavailable, match="knows a primary of the service"):
        await store_behind(watched[2], "other").open()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> certificates.Authority:
    return certificates.Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(authority: certificates.Authority) -> Iterator[Server]:
    """A server that speaks TLS only, and asks clients for a certificate."""
    certificate, key = authority.issue("server")
    options = (
        "--tls-cert-file",
        str(certificate),
        "--tls-key-file",
        str(key),
        "--tls-ca-cert-file",
        str(authority.path),
    )
    with servers.single(*options, tls=True) as server:
        yield server


def store_over(server: Server, tls: RedisTls, host: str = "127.0.0.1") -> RedisStore:
    address = replace(servers.dialer([server]).address, tls=True, endpoints=(RedisServer(host, server.port),))
    return RedisStore(Dialer(address, 2.0, tls), Layout("test", 4), TIMES)


async def test_a_server_over_tls(secured: Server, authority: certificates.Authority) -> None:
    """With the authority of the server and a certificate of its own, or without looking at the server's."""
    own = RedisTls(authority.path, *authority.issue("adapter"))
    for tls in (own, replace(own, ca=None, insecure=True)):
        store, other = store_over(secured, tls), store_over(secured, tls)
        ear = Ear()
        store.listeners.append(ear)
        await store.open()
        await store.put("sessions", "a", b"x" * 1_000_000)
        assert await store.get("sessions", "a") is not None
        await ear.until_hearing(other)
        await store.close()


async def test_a_certificate_that_is_not_trusted(
    secured: Server, authority: certificates.Authority, tmp_path: Path
) -> None:
    """A server of an unknown authority, and one with another name, are told as a failure of TLS."""
    own = RedisTls(authority.path, *authority.issue("adapter"))
    stores = [
        store_over(secured, replace(own, ca=None)),
        store_over(secured, replace(own, ca=certificates.Authority(tmp_path).path)),
        store_over(secured, own, "localhost"),
    ]
    for store in stores:
        with pytest.raises(StoreUnavailable, match="The TLS connection to Redis failed"):
            await store.open()
