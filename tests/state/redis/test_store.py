"""What Redis adds to the port: the word of other replicas, partitions, few rights, and warnings at start."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapter.errors import StoreUnavailable
from adapter.state.port import Delete, Put, Row
from adapter.state.redis.address import parse_address
from adapter.state.redis.dialer import Dialer
from adapter.state.redis.layout import FORMAT, Layout
from adapter.state.redis.nodes import RedisTimes
from adapter.state.redis.store import RedisStore
from tests.hosted.databases import PASSWORD, URL_PASSWORD, Server
from tests.state.redis import servers
from tests.state.redis.listening import Ear

PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"


@pytest.fixture(params=["redis_single", "redis_cluster"])
def nodes(request: pytest.FixtureRequest) -> list[Server]:
    found: list[Server] = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def base() -> str:
    return f"test:{secrets.token_hex(8)}"


@pytest.fixture
async def replicas(nodes: list[Server], base: str) -> AsyncIterator[list[RedisStore]]:
    """Three stores on the same rows."""
    stores = [RedisStore(servers.dialer(nodes), Layout(base, 16)) for _ in range(3)]
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


async def test_changes_are_told_to_the_others(replicas: list[RedisStore]) -> None:
    """Every put, commit and delete of one replica is told to the others, with table and key, and not to itself."""
    ears = [Ear() for _ in replicas]
    for store, ear in zip(replicas, ears, strict=True):
        store.listeners.append(ear)
    one, two, three = replicas
    await ears[1].until_hearing(three)
    await three.open()
    await ears[2].until_hearing(two)
    await two.open()
    for ear in ears:
        ear.rows.clear()
    await one.put("sessions", "a\x00é/\U0001f600", b"1")
    await one.commit([Put("files", "s/a", b"1"), Put("scopes", "s", b"2"), Delete("files", "s/absent")])
    assert await one.delete("sessions", "absent") is False
    await one.delete("files", "s/a")
    changed = [
        ("sessions", "a\x00é/\U0001f600"),
        ("files", "s/a"),
        ("scopes", "s"),
        ("files", "s/absent"),
        ("files", "s/a"),
    ]
    for ear in ears[1:]:
        async with asyncio.timeout(20):
            while len(ear.rows) < len(changed):
                await ear.changed()
        assert sorted(ear.rows) == sorted(changed)
    assert ears[0].rows == []


async def test_touching_is_not_told(replicas: list[RedisStore]) -> None:
    """A due time that moves is no change."""
    ear = Ear()
    replicas[1].listeners.append(ear)
    await ear.until_hearing(replicas[2])
    await replicas[0].put("sessions", "a", b"", due=1.0)
    await replicas[0].touch("sessions", {"a": 2.0})
    await replicas[0].put("sessions", "a", b"")
    async with asyncio.timeout(20):
        while ear.rows.count(("sessions", "a")) < 2:
            await ear.changed()
    assert ear.rows.count(("sessions", "a")) == 2


async def test_announcements_come_to_the_others(replicas: list[RedisStore]) -> None:
    """Topic and body come as they are, up to 64 KiB, and not to who said them."""
    ear, own = Ear(), Ear()
    replicas[1].listeners.append(ear)
    replicas[0].listeners.append(own)
    await ear.until_hearing(replicas[2])
    bodies = [b"", b"\n\x00\xff", secrets.token_bytes(64 << 10)]
    for n, body in enumerate(bodies):
        replicas[0].announce(f"topic\n{n}", body)
    async with asyncio.timeout(20):
        while len(ear.said) < len(bodies):
            await ear.changed()
    assert sorted(ear.said) == sorted((f"topic\n{n}", body) for n, body in enumerate(bodies))
    assert own.said == []


async def test_a_change_of_very_many_rows_makes_them_unknown(replicas: list[RedisStore]) -> None:
    """A change whose rows fill more than a message is told without them."""
    ear = Ear()
    replicas[1].listeners.append(ear)
    await ear.until_hearing(replicas[2])
    unknown, heard = ear.unknown, len(ear.rows)
    await replicas[0].commit([Put("files", f"s/{n:0100}", b"") for n in range(1000)])
    async with asyncio.timeout(20):
        while ear.unknown == unknown:
            await ear.changed()
    assert len(ear.rows) == heard
    assert await replicas[1].count("files", group="s") == 1000


@pytest.mark.parametrize("reader", [1, 3, 7])
async def test_another_number_of_partitions_is_refused(nodes: list[Server], base: str, reader: int) -> None:
    """The first start decides, and any other number is refused with both in the sentence."""
    first = RedisStore(servers.dialer(nodes), Layout(base, 2))
    await first.open()
    await first.close()
    with pytest.raises(StoreUnavailable, match=rf"has 2 partitions, and .* writes {reader}: set another"):
        await RedisStore(servers.dialer(nodes), Layout(base, reader)).open()
    await first.open()
    await first.close()


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (f'{{"format": {FORMAT + 1}, "partitions": 4}}', "newer version"),
        ("x", "another program"),
        ("[]", "another program"),
    ],
)
async def test_a_foreign_format_is_refused(nodes: list[Server], base: str, row: str, sentence: str) -> None:
    """Rows of a newer version, or of another program, are left alone."""
    password = PASSWORD if len(nodes) == 1 else None
    servers.command(nodes[0], "-c", "SET", f"{base}:{{0}}:format", row, password=password)
    with pytest.raises(StoreUnavailable, match=sentence):
        await RedisStore(servers.dialer(nodes), Layout(base, 4)).open()


@pytest.mark.deep
async def test_rows_of_a_large_table_are_read_a_page_at_a_time(
    nodes: list[Server], replicas: list[RedisStore]
) -> None:
    """Of 100,000 rows a page, the overdue ones and the count each read few of them."""
    store = replicas[0]
    keys = [f"{n // 500:03}/{n % 500:03}" for n in range(100_000)]
    for at in range(0, len(keys), 500):
        part = enumerate(keys[at : at + 500], at)
        await store.commit([Put("files", key, b"x" * 100, float(n)) for n, key in part])
    before = rows_read(nodes)
    assert await store.count("files") == 100_000
    assert await store.count("files", group="007") == 500
    assert rows_read(nodes) == before
    assert [row.key for row in await store.scan("files", after=keys[50_100], limit=500)] == keys[
        50_101:50_601
    ]
    assert [row.key for row in await store.overdue("files", 99_999.0, limit=500)] == keys[:500]
    assert [row.key for row in await store.scan("files", group="007", limit=1000)] == keys[3500:4000]
    assert rows_read(nodes) - before < 6000
    assert [row.key for row in await store.overdue("files", 3.0)] == keys[:4]
    assert await store.scan("files", after=keys[-1]) == []


def rows_read(nodes: list[Server]) -> int:
    """The number of rows that these servers have looked up until now."""
    password = PASSWORD if len(nodes) == 1 else None
    told = [servers.command(each, "INFO", "commandstats", password=password) for each in nodes]
    return sum(int(number) for text in told for number in re.findall(r"cmdstat_hget:calls=(\d+)", text))


async def test_hostile_keys_and_values(replicas: list[RedisStore]) -> None:
    """Braces, spaces, line ends, zeros and words of Lua and Redis in keys and values are only keys and values."""
    texts = [
        "{1}",
        "a b",
        "\r\n",
        "\x00",
        "'",
        '"',
        "]]",
        "%d %s",
        "-",
        "+",
        "[a",
        "(a",
        "-inf",
        "é\u2028",
        "x" * 5000,
    ]
    store, other = replicas[:2]
    rows = [Row(f"g/{text}", text.encode() + b"\xff\x00 1 -", 1, None) for text in texts]
    await store.commit([Put("{t}", row.key, row.value) for row in rows])
    by_bytes = sorted(rows, key=lambda row: row.key.encode())
    assert await other.scan("{t}") == await other.scan("{t}", group="g") == by_bytes
    for row in rows:
        assert await other.get("{t}", row.key) == row
        await other.touch("{t}", {row.key: 5.0})
        assert await store.get("{t}", row.key) == replace(row, due=5.0)
    for key in ("\ud800", "a/\udfff"):
        with pytest.raises(UnicodeEncodeError):
            await store.put("sessions", key, b"")
    with pytest.raises(ValueError, match="is a number"):
        await store.put("sessions", "a", b"", due=float("nan"))


async def test_due_times_keep_every_digit(replicas: list[RedisStore]) -> None:
    """A due time comes back as it was given, and orders rows so."""
    dues = [0.1 + 0.2, 1_800_000_000.123_456_7, -1.5, 0.0, 1e300, float("inf"), float("-inf")]
    for n, due in enumerate(dues):
        await replicas[0].put("sessions", f"{n}", b"", due=due)
    rows = await replicas[1].overdue("sessions", float("inf"))
    assert [row.due for row in rows] == sorted(dues)


async def test_expired_rows_make_way_for_new_ones(nodes: list[Server], base: str) -> None:
    """In a table that expires by itself a write removes rows that were due an hour ago, also from all indexes."""
    store = RedisStore(servers.dialer(nodes), Layout(base, 1), expiring=("nonces",))
    await store.open()
    now = time.time()
    for n in range(40):
        await store.put("other", f"{n}", b"", due=now - 4000)
    await store.commit([Put("nonces", f"g/{n}", b"", now - 4000) for n in range(40)])
    await store.put("nonces", "late", b"", due=now - 3000)
    assert await store.count("nonces") < 40
    for n in range(5):
        await store.put("nonces", f"{n}", b"", due=now + 60)
    kept = {"late", *map(str, range(5))}
    assert {row.key for row in await store.scan("nonces")} == kept
    assert await store.count("nonces") == len(kept)
    assert [row.key for row in await store.overdue("nonces", now)] == ["late"]
    assert await store.count("other") == 40
    await store.close()


# --- one server -----------------------------------------------------------------------------------------------


async def test_documented_rights_are_enough(redis_single: list[Server], base: str) -> None:
    """A user with just the rights of the documentation, and a password that needs encoding, can do everything."""
    rights = re.search(r"ACL SETUSER adapter (.*?)```", PAGE.read_text(), re.DOTALL)
    assert rights is not None
    words = rights[1].replace("PASSWORD", PASSWORD).replace("mcp_adapter", base).split()
    words = [*words[:1], f">{PASSWORD}", *words[words.index("resetkeys") :]]
    servers.command(redis_single[0], "ACL", "SETUSER", base, "reset", *words)
    address = parse_address(
        f"redis://{base.replace(':', '%3A')}:{URL_PASSWORD}@127.0.0.1:{redis_single[0].port}/3"
    )
    warnings: list[str] = []
    stores = [RedisStore(Dialer(address, 5.0), Layout(base, 4), None, warnings.append) for _ in range(2)]
    for store in stores:
        await store.open()
    one, two = stores
    ear = Ear()
    one.listeners.append(ear)
    await ear.until_hearing(two)
    await one.put("sessions", "a", b"1", due=1.0)
    await one.touch("sessions", {"a": 2.0})
    assert [row.due for row in await one.overdue("sessions", 3.0)] == [2.0]
    assert [row.key for row in await one.scan("sessions")] == ["a"]
    assert (await one.count("sessions"), await one.count("sessions", group="a")) == (1, 1)
    await one.commit([Delete("sessions", "a")])
    one.announce("topic", b"")
    assert await one.get("sessions", "a") is None
    assert warnings == []
    await one.close()


async def test_a_missing_right_is_told(redis_single: list[Server], base: str) -> None:
    """The sentence names the page with the rights; it names neither key nor user."""
    servers.command(
        redis_single[0], "ACL", "SETUSER", base, "reset", "on", f">{PASSWORD}", "~*", "+set", "+get"
    )
    address = replace(servers.dialer(redis_single).address, username=base)
    with pytest.raises(
        StoreUnavailable, match=r"may not do what the adapter needs: see the rights in docs/scaling\.md"
    ) as told:
        store = RedisStore(Dialer(address, 5.0), Layout(base, 4))
        await store.open()
        await store.put("sessions", "a", b"")
    assert base not in str(told.value)
    await store.close()


async def test_a_right_to_hear_that_is_missing_is_told(redis_single: list[Server], base: str) -> None:
    """It is told once, and rows count as unknown again and again."""
    rights = ("~*", "&*", "+@all", "-ssubscribe")
    servers.command(redis_single[0], "ACL", "SETUSER", base, "reset", "on", f">{PASSWORD}", *rights)
    address = replace(servers.dialer(redis_single).address, username=base)
    warnings: list[str] = []
    store = RedisStore(Dialer(address, 5.0), Layout(base, 4), RedisTimes(cache=0.05), warnings.append)
    ear = Ear()
    store.listeners.append(ear)
    await store.open()
    async with asyncio.timeout(10):
        while ear.unknown < 10 or not warnings:
            await ear.changed()
    await store.close()
    (warning,) = warnings
    assert warning.startswith("Changes by other replicas cannot be heard. The Redis user may not")


async def test_a_node_of_a_cluster_is_told(redis_cluster: list[Server], base: str) -> None:
    """An address of a cluster that is not called one."""
    store = RedisStore(
        Dialer(replace(servers.dialer(redis_cluster).address, cluster=False), 5.0), Layout(base, 64)
    )
    with pytest.raises(StoreUnavailable, match="is a node of a cluster"):
        await store.open()
        for n in range(100):
            await store.put("sessions", f"{n}", b"")
    await store.close()


async def test_a_server_that_is_no_cluster_is_told(redis_single: list[Server], base: str) -> None:
    """An address of one server that is called a cluster."""
    address = replace(servers.dialer(redis_single).address, cluster=True)
    with pytest.raises(StoreUnavailable, match="is not a node of a cluster"):
        await RedisStore(Dialer(address, 5.0), Layout(base, 4)).open()


async def test_a_wrong_password_is_told(redis_single: list[Server], base: str) -> None:
    """It is told as a refused login, without the password."""
    address = replace(servers.dialer(redis_single).address, password="s3cret-s3cret")
    with pytest.raises(StoreUnavailable, match="refuses the login") as told:
        await RedisStore(Dialer(address, 5.0), Layout(base, 4)).open()
    assert "s3cret" not in f"{told.value} {told.value.__cause__} {address!r}"


async def test_a_missing_password_is_told(redis_single: list[Server], base: str) -> None:
    """A server that wants a login says which settings give it one, not that the connection was lost."""
    address = replace(servers.dialer(redis_single).address, username=None, password=None)
    with pytest.raises(StoreUnavailable, match=r"set state_persistence\.redis\.username and password"):
        await RedisStore(Dialer(address, 5.0), Layout(base, 4)).open()


async def test_settings_that_lose_rows_are_told(base: str) -> None:
    """A policy that evicts and a missing log are named at start; right settings are not."""
    with servers.single("--maxmemory-policy", "allkeys-lru", "--appendonly", "no") as server:
        warnings: list[str] = []
        store = RedisStore(servers.dialer([server]), Layout(base, 4), None, warnings.append)
        await store.open()
        await store.close()
        assert ["allkeys-lru" in warnings[0], "appendonly no" in warnings[1], len(warnings)] == [
            True,
            True,
            2,
        ]


async def test_full_memory_changes_nothing(base: str) -> None:
    """A server out of memory refuses a commit whole, can be read, and takes deletions."""
    with servers.single("--maxmemory", "8mb") as server:
        store = RedisStore(servers.dialer([server]), Layout(base, 4), RedisTimes(timeout=10))
        await store.open()
        written = []
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            for n in range(1000):
                key = f"s/{n:03}"
                await store.commit([Put("files", key, bytes(100_000)), Put("names", key, b"")])
                written.append(key)
        assert [row.key for row in await store.scan("names")] == written
        assert await store.count("files") == len(written)
        assert await store.delete("files", "s/000") is True
        await store.close()
