"""Counts that others keep: rows of Redis and SQLite, sessions of the upstream."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from pathlib import Path

import orjson

from adapter.state import watched
from tests.edge.raw import RawClient
from tests.faults.topology import Deployment

SPENT = 90_000.0
"""Seconds within which rows that end by themselves are not counted. Nonces of spent upload URLs are kept for minutes,
tombstones and unused catalogues for up to a day."""

PROBES = watched.TABLE
"""The table that is not counted. Its few rows are written over and over, and the first time whenever nothing else has
been written for seconds: on a slow machine that may be as late as at the end."""

_LASTING = """
local lasting = {}
local function add(name, more) lasting[name] = (lasting[name] or 0) + more end
for _, key in ipairs(redis.call('KEYS', '*')) do
    local kind, name = redis.call('TYPE', key).ok, string.match(key, '}:(.*)') or key
    if kind == 'hash' then
        add(string.match(name, '^rows:(.*)') or name, redis.call('HLEN', key))
    elseif kind == 'zset' and string.match(name, '^dues:') then
        add(string.match(name, '^dues:(.*)'), -redis.call('ZCOUNT', key, '-inf', ARGV[1]))
    elseif kind ~= 'zset' and redis.call('PTTL', key) < 0 then
        add(name, 1)
    end
end
return cjson.encode(lasting)
"""
"""Rows are fields of hashes; a sorted set has the times at which they are due."""


async def keys_of_redis(port: int) -> dict[str, int]:
    """The number of rows that last, by table, and of other keys that last, by name."""
    soon = str(time.time() + SPENT)
    command = ("EVAL", _LASTING, "0", soon)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"*%d\r\n" % len(command))
    writer.writelines(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in command)
    size = int((await reader.readline()).removeprefix(b"$"))
    lasting = orjson.loads(await reader.readexactly(size))
    writer.close()
    await writer.wait_closed()
    return {name: count for name, count in lasting.items() if count and name != PROBES}


def rows_of_sqlite(database: Path) -> dict[str, int]:
    """The number of rows that last, by table."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        lasting = "SELECT tbl, COUNT(*) FROM rows WHERE (due IS NULL OR due > ?) AND tbl != ? GROUP BY tbl"
        return dict(connection.execute(lasting, (time.time() + SPENT, PROBES)))


async def upstream_sessions(deployment: Deployment) -> int:
    """Sessions that are open at the upstream."""
    (upstream,) = (node for node in deployment.others if node.name == "upstream")
    async with RawClient(upstream.port) as client:
        _, body = await client.request("GET", path="/census")
    return int(orjson.loads(body)["sessions"])
