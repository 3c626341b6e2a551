"""Counts that others keep: keys of Redis, sessions of the upstream."""

from __future__ import annotations

import asyncio

import orjson

from tests.edge.raw import RawClient
from tests.faults.topology import Deployment

SPENT = 120.0
"""Seconds within which rows that end by themselves are not counted: nonces of spent upload URLs are among them."""

_LASTING = f"""
local lasting = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
    local left = redis.call('PTTL', key)
    if left < 0 or left > {SPENT * 1000:.0f} then lasting = lasting + 1 end
end
return lasting
"""


async def keys_of_redis(port: int) -> int:
    """The keys that last."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"*3\r\n$4\r\nEVAL\r\n$%d\r\n%s\r\n$1\r\n0\r\n" % (len(_LASTING), _LASTING.encode()))
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
