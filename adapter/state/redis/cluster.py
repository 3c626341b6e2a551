"""The map of a cluster: the server of each partition."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from redis.crc import key_slot
from redis.exceptions import RedisError

from adapter.errors import StoreUnavailable
from adapter.state.redis.address import RedisServer
from adapter.state.redis.dialer import LinkConnection
from adapter.state.redis.failures import code_of, unavailable

NO_CLUSTER = "The Redis server is not a node of a cluster: set state_persistence.redis.cluster to false."


ClusterMap: TypeAlias = "list[RedisServer | None]"
"""The servers by the numbers of partitions; None is the only server there is."""


def slot_of(partition: int) -> int:
    """The slot of a cluster that all keys of a partition are in, by their hash tag."""
    return int(key_slot(b"%d" % partition))


def cluster_map(slots: Any, asked: RedisServer, partitions: int) -> ClusterMap:
    """The map that an answer to CLUSTER SLOTS of the server ``asked`` shows.

    Raises StoreUnavailable if a partition has no server.
    """
    servers: dict[int, RedisServer] = {}
    wanted = {slot_of(number) for number in range(partitions)}
    for first, last, primary, *_ in slots:
        host = primary[0].decode() if primary[0] else ""
        # A server that does not know its own name is the one that was asked.
        server = RedisServer(asked.host if host in ("", "?") else host, int(primary[1]))
        servers.update((slot, server) for slot in wanted if first <= slot <= last)
    if len(servers) < len(wanted):
        raise StoreUnavailable("The Redis Cluster does not serve all slots: see CLUSTER INFO.")
    return [servers[slot_of(number)] for number in range(partitions)]


async def read_map(
    connection: LinkConnection, asked: RedisServer, partitions: int, timeout: float
) -> ClusterMap:
    """Ask a server for the map, and close the connection. Raises StoreUnavailable."""
    try:
        async with asyncio.timeout(timeout):
            await connection.send_command("CLUSTER", "SLOTS")
            slots = await connection.read_response(disable_decoding=True)
    except (RedisError, OSError) as error:
        if code_of(error) == "ERR":
            raise StoreUnavailable(NO_CLUSTER) from None
        raise unavailable(error) from None
    finally:
        connection.abort()
        await connection.disconnect(nowait=True)
    return cluster_map(slots, asked, partitions)
