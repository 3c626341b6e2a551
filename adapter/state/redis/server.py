"""The state of the server at start: the format that the rows have there, and settings with which rows may be lost."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from adapter.errors import StoreUnavailable
from adapter.state.redis.layout import FORMAT, Layout
from adapter.state.redis.nodes import RedisNodes

EVICTS = (
    "The maxmemory-policy of Redis is {}: when its memory is full it deletes sessions and records of files. Set it to "
    "noeviction."
)
FORGETS = (
    "Redis keeps no log of its writes (appendonly no): when it stops, sessions and records of files since its last "
    "snapshot are lost. Set appendonly to yes."
)


async def check_server(nodes: RedisNodes, layout: Layout) -> None:
    """Write the row of the format if there is none, and tell nothing to nobody.

    Raises StoreUnavailable for any format but the own one, and for a server without the commands or the rights.
    """
    # In a script it would fail after the rows were written.
    await nodes.ask(0, b"SPUBLISH", layout.channels[0], b"")
    own = {"format": FORMAT, "partitions": layout.partitions}
    await nodes.ask(0, b"SET", layout.format, orjson.dumps(own), b"NX")
    found = _format(await nodes.ask(0, b"GET", layout.format, reads=True))
    if found["format"] > FORMAT:
        raise StoreUnavailable(
            f"The state in Redis was written by a newer version of the adapter (format {found['format']}, this one"
            f" reads {FORMAT}): upgrade, or set another state_persistence.redis.key_base."
        )
    if found["partitions"] != layout.partitions:
        raise StoreUnavailable(
            f"The state in Redis has {found['partitions']} partitions, and this version of the adapter writes"
            f" {layout.partitions}: set another state_persistence.redis.key_base."
        )


def _format(row: Any) -> dict[str, int]:
    try:
        match orjson.loads(row):
            case {"format": int(number), "partitions": int(partitions)}:
                return {"format": number, "partitions": partitions}
    except (ValueError, TypeError):
        pass
    raise StoreUnavailable(
        "The keys in Redis were written by another program: set another state_persistence.redis.key_base."
    )


async def server_warnings(nodes: RedisNodes) -> list[str]:
    """Sentences on settings of the server with which rows may be lost; none where it does not tell its settings."""
    policy, log = await asyncio.gather(_setting(nodes, b"maxmemory-policy"), _setting(nodes, b"appendonly"))
    found = [EVICTS.format(policy)] if policy not in (None, "noeviction") else []
    return [*found, FORGETS] if log == "no" else found


async def _setting(nodes: RedisNodes, name: bytes) -> str | None:
    try:
        match await nodes.ask(0, b"CONFIG", b"GET", name, reads=True):
            case [_, bytes(value)]:
                return value.decode()
    except StoreUnavailable:
        # Many services forbid CONFIG.
        pass
    return None
