"""Counts that others keep: keys of Redis, sessions of the upstream."""

from __future__ import annotations

import asyncio
import time

import orjson

from tests.edge.raw import RawClient
from tests.faults.topology import Deployment

SPENT = 90_000.0
"""Seconds within which rows that end by themselves are not counted. Nonces of spent upload URLs are kept for minutes,
tombstones and unused catalogues for up to a day."""

_LASTING = """
local lasting = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
    local kind = redis.call('TYPE', key).ok
    if kind == 'hash' then
        lasting = lasting + redis.call('HLEN', key)
    elseif kind == 'zset' and string.find(key, ':dues:', 1, true) then
        lasting = lasting - redis.call('ZCOUNT', key, '-inf', ARGV[1])
    elseif kind ~= 'zset' and redis.call('PTTL', key) < 0 then
        lasting = lasting + 1
    end
end
return lasting
"""
"""Rows are fields of hashes; a sorted set has the times at which they are due."""


async def keys_of_redis(port: int) -> int:
    """The rows and other keys that last."""
    soon = str(time.time() + SPENT)
    command = ("EVAL", _LASTING, "0", soon)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"*%d\r\n" % len(command))
    writer.writelines(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in command)
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return int(answer.removeprefix(b":"))


async def upstream_sessions(deployment: Deployment) -> int:
    """Sessions that are open at the upstream."""
    (upstream,) = (node for node in deployment.others if node.name == "upstream")
    async with RawClient(upstream.port) as client:
        _, body = await client.request("GET", path="/census")
    return int(orjson.loads(body)["sessions"])
