"""Connections: through Sentinel to the primary of the moment, and over TLS."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from adapter.errors import StoreUnavailable
from adapter.state.port import ABSENT, Put
from adapter.state.redis.address import RedisServer, RedisTls, parse_address
from adapter.state.redis.dialer import Dialer, cluster_map, slot_of
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


@pytest.mark.deep
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
    address = replace(servers.dialer([server]).address, tls=tls, endpoints=(RedisServer(host, server.port),))
    return RedisStore(Dialer(address, 2.0), Layout("test", 4), TIMES)


async def test_a_server_over_tls(secured: Server, authority: certificates.Authority) -> None:
    """With the authority of the server and a certificate of its own, or without looking at the server's."""
    own = RedisTls(str(authority.path), str(authority.issue("adapter")[0]))
    for tls in (own, own._replace(ca=None, insecure=True)):
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
    own = RedisTls(str(authority.path), str(authority.issue("adapter")[0]))
    stores = [
        store_over(secured, own._replace(ca=None)),
        store_over(secured, own._replace(ca=str(certificates.Authority(tmp_path).path))),
        store_over(secured, own, "localhost"),
    ]
    for store in stores:
        with pytest.raises(StoreUnavailable, match="The TLS connection to Redis failed"):
            await store.open()


# --- a cluster that changes while it is used ---------------------------------------------------------------------


A, B = RedisServer("a", 1), RedisServer("b", 2)


@pytest.fixture
def nodes() -> Iterator[list[Server]]:
    """A cluster of the test's own."""
    with servers.cluster() as nodes:
        yield nodes


def store_on(nodes: list[Server]) -> RedisStore:
    return RedisStore(servers.dialer(nodes), Layout("test", 64), TIMES)


def id_of(server: Server) -> str:
    return servers.command(server, "CLUSTER", "MYID", password=None).strip()


@pytest.mark.deep
async def test_slots_move_under_load(nodes: list[Server]) -> None:
    """While partitions move to another server no write fails, none is done twice, and changes are still heard."""
    store, other = store_on(nodes), store_on(nodes)
    await store.open()
    for n in range(500):
        await store.put("files", f"{n}/a", b"x" * 50, due=float(n))
    written: list[str] = []
    moved = asyncio.Event()

    async def write(writer: int) -> None:
        while not moved.is_set():
            key = f"{writer}-{len(written)}"
            await store.commit(
                [Put("sessions", f"{key}/a", b"", 1.0, ABSENT), Put("files", f"{key}/b", b"", None, ABSENT)]
            )
            written.append(key)
            await asyncio.sleep(0.002)

    writing = [asyncio.ensure_future(write(writer)) for writer in range(4)]
    ends = ("--cluster-from", id_of(nodes[0]), "--cluster-to", id_of(nodes[1]))
    move = partial(
        servers.arrange,
        "reshard",
        servers.address(nodes[2]),
        *ends,
        "--cluster-slots",
        "1500",
        "--cluster-yes",
    )
    await asyncio.to_thread(move)
    moved.set()
    await asyncio.gather(*writing)
    assert await store.count("files") == 500 + len(written)
    assert sorted(row.key for row in await store.scan("sessions", limit=100_000)) == sorted(
        f"{key}/a" for key in written
    )
    ear = Ear()
    store.listeners.append(ear)
    await other.open()
    layout = Layout("test", 64)
    one_of_each = {layout.partition_of_key(f"{n}"): f"{n}" for n in range(2000)}
    heard: set[str] = set()
    async with asyncio.timeout(20):
        while len(heard) < 64:
            for key in one_of_each.values():
                await other.put("hearing", key, b"")
            await asyncio.sleep(0.05)
            heard |= {key for table, key in ear.rows if table == "hearing"}
    await store.close()
    await other.close()


@pytest.mark.deep
async def test_a_replica_takes_over(nodes: list[Server]) -> None:
    """When a primary dies, its partitions fail at once and not slowly, the others go on, and then all is as before."""
    with ExitStack() as stack:
        replica = stack.enter_context(servers.cluster_node())
        first = ("--cluster-slave", "--cluster-master-id", id_of(nodes[0]))
        servers.arrange("add-node", servers.address(replica), servers.address(nodes[1]), *first)
        servers.until(replica, "master_link_status:up", "INFO", "replication")
        servers.until(nodes[0], "slave0", "INFO", "replication")
        store, other = store_on([*nodes[1:], nodes[0]]), store_on(nodes[1:])
        await store.open()
        keys = [f"{n}" for n in range(300)]
        for key in keys:
            await store.put("sessions", key, b"", expected=ABSENT)
        servers.until_copied(nodes[0], replica)
        nodes[0].signal(signal.SIGKILL)
        outcomes = await asyncio.gather(*(store.get("sessions", key) for key in keys), return_exceptions=True)
        assert any(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
        assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) > 100
        async with asyncio.timeout(30):
            while True:
                try:
                    await store.put("sessions", "new", b"")
                    rows = await store.scan("sessions", limit=1000)
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
        assert {row.key for row in rows} == {*keys, "new"}
        ear = Ear()
        store.listeners.append(ear)
        await ear.until_hearing(other)
        await store.close()


def test_a_map_names_a_server_for_each_partition() -> None:
    """Slots belong to primaries; a server without a name of its own is the one that was asked."""
    first, second = sorted((slot_of(0), slot_of(1)))
    slots = [[0, first, [b"", 7, b"id"], [b"replica", 8, b"id"]], [first + 1, 16383, [b"b", 2, b"id"]]]
    found = cluster_map(slots, A, 2)
    assert set(found) == {RedisServer("a", 7), B}
    assert found[0 if slot_of(0) == first else 1] == RedisServer("a", 7)
    assert second > first


def test_a_map_with_a_gap_is_refused() -> None:
    """A partition without a server cannot be used."""
    with pytest.raises(StoreUnavailable, match="does not serve all slots"):
        cluster_map([[0, 5, [b"a", 1, b"id"]]], A, 8)
