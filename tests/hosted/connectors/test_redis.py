"""The Redis connector, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adapter.hosted.connectors.port import QueryFailed
from tests.hosted.connectors import scenarios
from tests.hosted.databases import URL_PASSWORD, Server
from tests.hosted.stating import Asking, opened
from tests.ports import free_port
from tests.waiting import until


@pytest.fixture
async def database(redis: Server) -> AsyncIterator[Asking]:
    """A connector to an empty database."""
    async with opened(redis) as asking:
        await asking.redis("FLUSHALL")
        yield asking


async def test_answers_have_the_shapes_of_their_kind(database: Asking) -> None:
    """A text is a value, a list is values, a hash is an object as the value."""
    assert (await database.redis("set", "name", "Ada")).rows == [{"value": "OK"}]
    assert (await database.redis("get", "name")).rows == [{"value": "Ada"}]
    assert (await database.redis("INCR", "n")).rows == [{"value": 1}]
    assert (await database.redis("EXPIRE", "n", "100")).rows == [{"value": 1}]
    await database.redis("RPUSH", "list", "a", "b")
    assert (await database.redis("LRANGE", "list", "0", "-1")).rows == [{"values": ["a", "b"]}]
    assert (await database.redis("LRANGE", "nowhere", "0", "-1")).rows == [{"values": []}]
    await database.redis("HSET", "hash", "name", "Ada", "age", "36")
    assert (await database.redis("HGETALL", "hash")).rows == [{"value": {"name": "Ada", "age": "36"}}]
    await database.redis("SETBIT", "bits", "0", "1")
    assert (await database.redis("GET", "bits")).rows == [{"value": "gA=="}]
    await database.redis("SADD", "set", "a")
    assert (await database.redis("SMEMBERS", "set")).rows == [{"values": ["a"]}]
    await database.redis("ZADD", "scores", "1.5", "a")
    assert (await database.redis("ZRANGE", "scores", "0", "-1", "WITHSCORES")).rows == [
        {"values": [["a", 1.5]]}
    ]


async def test_each_argument_stays_one(database: Asking) -> None:
    """Spaces, line ends and protocol of another command are only what the value holds."""
    hostile = 'x\r\n*1\r\n$8\r\nFLUSHALL\r\n "y z"'
    await database.redis("SET", "key with spaces", hostile)
    assert (await database.redis("GET", "key with spaces")).rows == [{"value": hostile}]


async def test_a_key_that_is_not_there_fails_as_it_always_did(database: Asking) -> None:
    """Nothing is not an empty text."""
    with pytest.raises(QueryFailed, match=r"^redis: nil$"):
        await database.redis("GET", "nowhere")


async def test_a_refused_command_says_why(database: Asking) -> None:
    """The server's sentence is the failure's, and the connection serves the next command."""
    with pytest.raises(QueryFailed, match="unknown command"):
        await database.redis("NONSENSE")
    assert (await database.redis("PING")).rows == [{"value": "PONG"}]


async def test_members_beyond_the_limit_are_cut(database: Asking) -> None:
    """A long list gives its first members and says that there are more."""
    await database.redis("RPUSH", "list", "a", "b", "c")
    cut = await database.redis("LRANGE", "list", "0", "-1", max_rows=2)
    assert (cut.rows, cut.truncated) == ([{"values": ["a", "b"]}], True)


async def test_what_a_command_changes_of_its_connection_is_no_other_calls(redis: Server) -> None:
    """Another database, a transaction: they end with the call."""
    async with opened(redis, pool_size=1) as single:
        await single.redis("SELECT", "5")
        await single.redis("MULTI")
        assert (await single.redis("SET", "here", "1")).rows == [{"value": "OK"}]
        assert (await single.redis("GET", "here")).rows == [{"value": "1"}]


async def test_what_is_no_unicode_is_a_failure_like_any_other(redis: Server) -> None:
    """Nothing of it is sent, and the connection's place is free again."""
    async with opened(redis, pool_size=1) as single:
        with pytest.raises(QueryFailed, match="not valid Unicode"):
            await single.redis("ECHO", "a\udcff")
        assert (await single.redis("ECHO", "a")).rows == [{"value": "a"}]


async def test_a_full_pool_makes_calls_wait(redis: Server) -> None:
    """More calls than connections all get their answer, and one that waits too long says so."""
    async with opened(redis, pool_size=2) as small:
        await scenarios.crowds_a_pool_of_two(small, "ECHO", "BLPOP queue 0")


async def test_many_commands_leak_no_connection(redis: Server, database: Asking) -> None:
    """A thousand commands, good and bad and cancelled, use no more connections than the pool has."""
    async with opened(redis, pool_size=4) as leaky:
        await scenarios.sends_a_thousand(leaky)
        await until(lambda: _at_most(database, 4 + 1))
    await until(lambda: _at_most(database, 1))


async def test_a_restarted_server_is_found_again(redis: Server, database: Asking) -> None:
    """A server that went away fails the calls of that time, and none afterwards."""
    await scenarios.loses_its_server(redis, database, "BLPOP queue 0", lambda watching: _blocked(watching, 1))


async def test_a_connector_that_cannot_open_gives_a_safe_reason(redis: Server) -> None:
    """The reason helps whoever configured it, and repeats nothing of the connection string."""
    wrong = {
        redis.url.replace(URL_PASSWORD, "hunter2"): "the server refused the credentials",
        redis.url.replace(f":{URL_PASSWORD}@", ""): "the server refused the credentials",
        redis.url.replace(f":{redis.port}", f":{free_port()}"): "nothing listens at the configured address",
        "redis://:hunter2@127.0.0.1:hunter2": "the connection string is not valid",
        "hunter2": "the connection string is not valid",
    }
    await scenarios.cannot_open("redis", wrong)


async def _blocked(database: Asking, count: int) -> bool:
    (row,) = (await database.redis("INFO", "clients")).rows
    return f"blocked_clients:{count}\r\n" in row["value"]


async def _at_most(database: Asking, count: int) -> bool:
    (row,) = (await database.redis("CLIENT", "LIST")).rows
    return len(row["value"].splitlines()) <= count
